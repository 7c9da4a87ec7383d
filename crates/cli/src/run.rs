//! `telecl run`: any program, with the driver in place.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use telecl_config::{Address, DriverConfig};

use crate::exit::{Exit, Failure, Outcome};
use crate::keeper::{self, Duty, Serving};
use crate::{RunArgs, launch, survey};

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let (name, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Failure::new(Exit::Usage, "no program was named", "Try: telecl run -- clinfo -l"))?;
    let program = find_program(name)?;
    let config = DriverConfig::load()?;
    let services = if args.on.services.is_empty() { config.services } else { args.on.services.clone() };
    let place = Place::make(args.driver.as_deref(), services)?;
    place.warn_of_silence(config.connect_timeout);

    let error = Command::new(&program).arg0(name).args(arguments).envs(place.variables()).exec();
    Err(cannot_run(name, &error))
}

/// The driver, the services and the directory that a program is pointed at. A keeper removes it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) driver: PathBuf,
    pub(crate) services: Vec<Address>,
    directory: PathBuf,
}

impl Place {
    /// Without services it starts a private one over this machine's own devices.
    pub(crate) fn make(driver: Option<&Path>, services: Vec<Address>) -> Result<Place, Failure> {
        let driver = launch::find_driver(driver)?;
        let directory = launch::make_directory(&driver)?;
        if !services.is_empty() {
            let directory = keeper::start(directory, Duty::Directory)?.directory;
            return Ok(Place { driver, services, directory });
        }
        let directory = keeper::start(directory, Duty::Service(Serving::default()))?.directory;
        let services = vec![launch::private_address(&directory)];
        let answers = survey::ask_all(&services, Duration::from_secs(10));
        match answers.first() {
            Some(Ok(answer)) if answer.devices.is_empty() => Err(Failure::new(
                Exit::Unreachable,
                "no service is configured, and this machine has no OpenCL device of its own",
                "Name a service: telecl run --on HOST:PORT -- PROGRAM",
            )),
            Some(Err(silence)) => Err(Failure::new(
                Exit::Failed,
                format!("the private service cannot be used: {}", silence.reason),
                &silence.advice,
            )),
            _ => Ok(Place { driver, services, directory }),
        }
    }

    /// Says which services do not answer: the driver leaves them out without a word, as it must in any program.
    fn warn_of_silence(&self, timeout: Duration) {
        for silence in survey::ask_all(&self.services, timeout).into_iter().filter_map(Result::err) {
            eprintln!("warning: {} cannot be used: {}. {}", silence.address, silence.reason, silence.advice);
        }
    }

    pub(crate) fn variables(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        launch::variables(&self.directory, &self.driver, &self.services)
    }
}

/// Looks for a program as a shell does, before anything is started for it.
pub(crate) fn find_program(name: &OsStr) -> Result<PathBuf, Failure> {
    let candidates: Vec<PathBuf> = if name.as_encoded_bytes().contains(&b'/') {
        vec![name.into()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&path).map(|directory| directory.join(name)).collect()
    };
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for candidate in candidates {
        match candidate.metadata() {
            Ok(metadata) if metadata.is_dir() => error = io::ErrorKind::PermissionDenied.into(),
            Ok(metadata) if metadata.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(_) => error = io::ErrorKind::PermissionDenied.into(),
            Err(_) => {}
        }
    }
    Err(cannot_run(name, &error))
}

pub(crate) fn cannot_run(name: &OsStr, error: &io::Error) -> Failure {
    let name = name.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        Failure::new(
            Exit::NotFound,
            format!("program {name} not found"),
            "Check its spelling and PATH, or give its full path",
        )
    } else {
        let what = format!("cannot run {name}: {error}");
        Failure::new(Exit::NotExecutable, what, "It must be a program that you may execute")
    }
}
