//! The ways from a program to a device that are compared: a name, an address and an environment.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;
use telecl_config::{Address, INSIDE_SERVICE};
use telecl_net::Security;

use crate::exit::{Exit, Failure};
use crate::keeper::{self, Duty, Serving};
use crate::launch;
use crate::survey::{self, Answer};

/// A way from a program to a device.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// The head of its column.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The service; none if there is none on the way.
    pub(crate) address: Option<Address>,
    /// What a program finds in its environment, or must not find there.
    variables: Vec<(&'static str, Option<OsString>)>,
    /// The user who is to measure, if that is another, and the executable that this user can reach.
    user: Option<(u32, PathBuf)>,
}

/// What lies between, which decides what can be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The vendor's driver alone.
    Direct,
    /// TCP within this machine.
    Tcp,
    /// The same, encrypted.
    Tls,
    /// A Unix socket, and shared memory.
    SharedMemory,
    /// TCP to another machine.
    Remote,
}

impl Path {
    /// The vendor's driver, through the system's loader. A telecl driver that is installed there stays silent.
    pub(crate) fn direct() -> Path {
        let variables = vec![(INSIDE_SERVICE, Some("1".into())), ("TELECL_SERVICES", None)];
        Path { name: "direct".to_owned(), kind: Kind::Direct, address: None, variables, user: None }
    }

    fn through(name: String, kind: Kind, address: &Address, place: &Place) -> Path {
        let variables = launch::variables(&place.directory, &place.driver, std::slice::from_ref(address));
        let variables = variables.into_iter().map(|(name, value)| (name, Some(value)));
        // Whoever runs the bench may do so where programs see no service. A path over TCP is to stay one.
        let shared_memory = if kind == Kind::SharedMemory { "1" } else { "0" };
        let others = [(INSIDE_SERVICE, None), ("TELECL_SHARED_MEMORY", Some(shared_memory.into()))];
        let variables = variables.chain(others).collect();
        Path { name, kind, address: Some(address.clone()), variables, user: None }
    }

    /// Direct, TCP and shared memory, which lead nowhere.
    #[cfg(test)]
    pub(crate) fn samples() -> Vec<Path> {
        let path =
            |name: &str, kind| Path { name: name.to_owned(), kind, address: None, variables: Vec::new(), user: None };
        vec![path("direct", Kind::Direct), path("tcp", Kind::Tcp), path("shared memory", Kind::SharedMemory)]
    }

    /// `telecl bench-child` in the environment of this path.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = match &self.user {
            Some((user, executable)) => {
                let mut command = Command::new(executable);
                command.uid(*user).gid(*user).current_dir("/");
                // Files that are somebody else's.
                command.env_remove("HOME").env_remove("XDG_CONFIG_HOME").env_remove("TELECL_CONFIG");
                command
            }
            None => Command::new(std::env::current_exe()?),
        };
        command.arg("bench-child");
        self.lead(&mut command);
        Ok(command)
    }

    /// The same for another user, who can reach this executable.
    pub(crate) fn for_user(mut self, user: u32, executable: PathBuf) -> Path {
        self.user = Some((user, executable));
        self
    }

    /// Puts a program on this path.
    pub(crate) fn lead(&self, command: &mut Command) {
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
}

/// The driver, and the directory that names it to loaders. A keeper removes it.
#[derive(Debug)]
struct Place {
    driver: PathBuf,
    directory: PathBuf,
}

/// A private service over this machine's own devices, which ends with this process.
#[derive(Debug)]
pub(crate) struct Private {
    place: Place,
    socket: Address,
    tcp: Vec<Address>,
    /// By which drivers know it where they speak TLS.
    secret: PathBuf,
}

impl Private {
    /// Starts it, with a policy if there is one.
    pub(crate) fn start(driver: Option<&FilePath>, policy: Option<&str>, warm: bool) -> Result<Private, Failure> {
        let driver = launch::find_driver(driver)?;
        let directory = launch::make_directory(&driver)?;
        let socket = launch::private_address(directory.path());
        let policy = match policy {
            Some(text) => {
                let file = directory.path().join("policy.toml");
                super::write(&file, text)?;
                Some(file)
            }
            None => None,
        };
        let secret = directory.path().join("secret");
        telecl_identity::pki::make_secret(&secret)?;
        let any_port = Address::tcp("127.0.0.1", 0);
        let kept = keeper::start(
            directory,
            Duty::Service(Serving { listen: vec![any_port], policy, secret: Some(secret.clone()), warm }),
        )?;
        Ok(Private { place: Place { driver, directory: kept.directory }, socket, tcp: kept.addresses, secret })
    }

    pub(crate) fn shared_memory(&self) -> Path {
        Path::through("shared memory".to_owned(), Kind::SharedMemory, &self.socket, &self.place)
    }

    pub(crate) fn over_tcp(&self) -> Option<Path> {
        self.tcp.first().map(|address| Path::through("tcp".to_owned(), Kind::Tcp, address, &self.place))
    }

    /// As [`Private::over_tcp`], encrypted.
    pub(crate) fn over_tls(&self) -> Option<Path> {
        let Some(Address::Tcp { host, port, .. }) = self.tcp.first() else { return None };
        let address = Address::Tcp { host: host.clone(), port: *port, security: Security::Tls };
        let mut path = Path::through("tls".to_owned(), Kind::Tls, &address, &self.place);
        path.variables.push(("TELECL_SECRET", Some(self.secret.clone().into())));
        Some(path)
    }

    /// To another service, with the same driver.
    pub(crate) fn elsewhere(&self, answer: &Answer) -> Path {
        Path::through(answer.address.to_string(), kind(answer), &answer.address, &self.place)
    }

    pub(crate) fn socket(&self) -> &Address {
        &self.socket
    }

    /// Lets all users of the machine use the service, with copies of what they may not be able to reach.
    pub(crate) fn open_to_all(&mut self) -> io::Result<()> {
        let Place { driver, directory } = &mut self.place;
        let copy = directory.join(launch::DRIVER);
        fs::copy(&*driver, &copy)?;
        let executable = directory.join("telecl");
        fs::copy(std::env::current_exe()?, &executable)?;
        launch::name_driver(directory, &copy)?;
        *driver = copy;
        let open = |path: &FilePath, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        open(driver, 0o644)?;
        open(&executable, 0o755)?;
        if let Address::Unix(socket) = &self.socket {
            open(socket, 0o666)?;
        }
        open(directory, 0o711)
    }

    /// After [`Private::open_to_all`]: this executable, where all can reach it.
    pub(crate) fn executable(&self) -> PathBuf {
        self.place.directory.join("telecl")
    }
}

/// What lies between here and a service that has answered.
fn kind(answer: &Answer) -> Kind {
    match (&answer.address, answer.same_node) {
        (Address::Unix(_), _) => Kind::SharedMemory,
        (Address::Tcp { .. }, true) => Kind::Tcp,
        (Address::Tcp { .. }, false) => Kind::Remote,
    }
}

/// All paths; without services, over a private one that ends with this process. `notes` gets what is left out.
pub(crate) fn all(
    driver: Option<&FilePath>,
    services: &[Address],
    notes: &mut Vec<String>,
) -> Result<Vec<Path>, Failure> {
    let mut paths = vec![Path::direct()];
    if services.is_empty() {
        let private = Private::start(driver, None, false)?;
        paths.extend(private.over_tcp());
        paths.extend(private.over_tls());
        paths.push(private.shared_memory());
        return Ok(paths);
    }
    let driver = launch::find_driver(driver)?;
    let directory = launch::make_directory(&driver)?;
    let place = Place { driver, directory: keeper::start(directory, Duty::Directory)?.directory };
    for answer in survey::ask_all(services, Duration::from_secs(5)) {
        match answer {
            Ok(answer) => {
                paths.push(Path::through(answer.address.to_string(), kind(&answer), &answer.address, &place));
            }
            Err(silence) => {
                notes.push(format!("{} is left out: {}. {}", silence.address, silence.reason, silence.advice));
            }
        }
    }
    if paths.len() == 1 {
        let what = format!("no service can be used; {}", notes.join("; "));
        return Err(Failure::new(Exit::Unreachable, what, "Without --service, telecl bench starts a private one"));
    }
    Ok(paths)
}
