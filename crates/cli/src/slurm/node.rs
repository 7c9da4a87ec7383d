//! `telecl slurm node`: the service of one node of a job, for one user, until the job ends.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::SIGURG;
use signal_hook::iterator::Signals;
use telecl_config::Address;
use telecl_wire::status::DrainMode;

use super::NodeArgs;
use super::job::JobId;
use super::place::{self, NodeFile, Place};
use crate::exit::{Exit, Failure, Outcome};
use crate::{LogFormat, ServeArgs, serve, watch};

/// What Slurm's GPU plugins say to the vendors' libraries. Where none is set, the job was given no GPU.
const VISIBLE: [&str; 4] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"];

pub(super) fn node(args: NodeArgs) -> Outcome {
    match args.private.clone() {
        Some(private) => serve_node(args, &private),
        None => begin(&args),
    }
}

/// Starts this process anew with the variables that it needs. It stays the task that Slurm started.
fn begin(args: &NodeArgs) -> Outcome {
    let job = JobId::own().ok_or_else(|| {
        Failure::new(Exit::Usage, "this is no Slurm job", "This command is for telecl slurm service only")
    })?;
    let private = private_directory(&job)?;
    let mut command = Command::new(serve::this_executable()?);
    command.args(std::env::args_os().skip(1)).arg("--private").arg(&private);
    command.envs([
        // Nothing of a job outlives it: workers end with their broker.
        ("TELECL_ORPHAN_GRACE", "0s"),
        ("TELECL_STATE_DIR", "none"),
        // SIGTERM comes from scancel, and SIGKILL so soon after it that sessions could not end by themselves. Those who have time
        // say SIGURG.
        ("TELECL_DRAIN_GRACE", "0s"),
        // There is a socket in the private directory.
        ("TELECL_LOCAL_SOCKET", "false"),
    ]);
    command.env("TMPDIR", &private).env_remove("XDG_RUNTIME_DIR").env_remove("TELECL_SESSION_DIR");
    if std::env::var_os("TELECL_ACCOUNTING").is_none() {
        command.env("TELECL_ACCOUNTING", accounting_file(&job)?);
    }
    // Where users are not in /etc/passwd, Slurm knows their names.
    let user = std::env::var("SLURM_JOB_USER").ok().filter(|user| telecl_policy::Tenant::parse(user).is_ok());
    if let (Some(user), None) = (user, std::env::var_os("TELECL_SECRET_TENANT")) {
        command.env("TELECL_SECRET_TENANT", format!("user:{user}"));
    }
    let given = VISIBLE.iter().any(|name| std::env::var_os(name).is_some());
    if !given && !args.offer.all_gpus {
        command.envs(VISIBLE.map(|name| (name, "-1")));
    }
    let error = command.exec();
    Err(Failure::new(Exit::Failed, format!("cannot start the service: {error}"), "Try again"))
}

/// For sockets and scratch files: on the node's own disk, for this user alone. Those of jobs that were killed are removed.
fn private_directory(job: &JobId) -> Result<PathBuf, Failure> {
    let parent = std::env::temp_dir();
    // A longer path leaves no room for sockets.
    let parent = if parent.is_absolute() && parent.as_os_str().len() <= 50 { parent } else { "/tmp".into() };
    let prefix = format!("telecl-{}-", rustix::process::geteuid().as_raw());
    remove_left(&parent, &prefix);
    let private = parent.join(format!("{prefix}{job}-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&private).map_err(|error| {
        let what = format!("cannot make {}: {error}", private.display());
        Failure::new(Exit::Failed, what, "Set TMPDIR to a directory of the node that can be written to")
    })?;
    Ok(private)
}

/// Their names end with the number of a process: if that is no more, or is another's, they are nobody's.
fn remove_left(parent: &Path, prefix: &str) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((_, pid)) = name.strip_prefix(prefix).and_then(|rest| rest.rsplit_once('-')) else { continue };
        if pid.parse::<u32>().is_err() || entry.metadata().map(|meta| meta.uid()).ok() != Some(own) {
            continue;
        }
        let lives = fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(name.len()).any(|part| part == name.as_bytes()));
        if !lives {
            // Another job's start may be doing the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// One for each job and node: appending to one file from several nodes is not safe on every file system.
fn accounting_file(job: &JobId) -> Result<PathBuf, Failure> {
    let home = place::home_directory()?;
    let directory = home.join("accounting");
    for path in [&home, &directory] {
        place::private_directory(path).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot make {}: {error}", path.display()), "Or set TELECL_ACCOUNTING")
        })?;
    }
    Ok(directory.join(format!("{job}-{}.jsonl", node_name())))
}

/// As Slurm calls it.
fn node_name() -> String {
    let named = std::env::var("SLURMD_NODENAME").ok();
    // It becomes the name of a file.
    named
        .filter(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'))
        .unwrap_or_else(telecl_net::host_name)
}

fn serve_node(args: NodeArgs, private: &Path) -> Outcome {
    let place = Place::at(&args.place);
    let node = node_name();
    let outcome = serve_at(args, private, &place, &node);
    place.remove_node(&node);
    // What Slurm killed before it got here is removed by the next job of this user on the node.
    let _ = fs::remove_dir_all(private);
    outcome
}

fn serve_at(args: NodeArgs, private: &Path, place: &Place, node: &str) -> Outcome {
    // Should slurmstepd be killed, nobody would be left to end this process.
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot be told of the job's end: {error}"), "Is this Linux?")
    })?;
    let socket = Address::Unix(private.join("service.sock"));
    // Always an address, of any free port.
    let address = SocketAddr::new(own_address()?, 0).to_string().parse();
    let address = address.map_err(|error: telecl_net::AddressError| Failure::new(Exit::Failed, error, ""))?;
    let mut serve = ServeArgs::listening(vec![address, socket.clone()]);
    serve.platforms = args.offer.platforms;
    serve.devices = args.offer.devices;
    serve.log_format = LogFormat::Text;
    serve.credentials.use_secret(place.secret());
    let settings = serve::settings(serve)?;
    let mut told = None;
    let outcome = serve::run(settings, |addresses| {
        told = Some(tell(addresses, place, node).and_then(|()| drain_when_told(socket, place.clone())));
        if let Some(Err(error)) = &told {
            eprintln!("error: {node}: cannot say where the service is: {error}");
            // Nobody would find it.
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::INT);
        }
    });
    match told {
        Some(Err(error)) => {
            Err(Failure::new(Exit::Failed, format!("{}: {error}", place.path.display()), "Is there room?"))
        }
        _ => outcome,
    }
}

/// Writes down where this node's service is.
fn tell(addresses: &[Address], place: &Place, node: &str) -> io::Result<()> {
    let address = addresses.iter().find(|address| matches!(address, Address::Tcp { .. }));
    let address = address.ok_or_else(|| io::Error::other("it listens nowhere"))?.to_string();
    let step = std::env::var("SLURM_STEP_ID").unwrap_or_else(|_| "0".to_owned());
    let gpus = std::env::var("SLURM_STEP_GPUS").or_else(|_| std::env::var("SLURM_JOB_GPUS")).ok();
    place.write_node(&NodeFile { node: node.to_owned(), address, step, gpus })
}

/// SIGURG: the sessions there are may end, for as long as the job's directory says, and the service stops. Slurm sends a signal to
/// all processes of a step, also to workers and to compilers that they have started: this is one that nobody minds who does not know
/// it.
fn drain_when_told(socket: Address, place: Place) -> io::Result<()> {
    let mut signals = Signals::new([SIGURG])?;
    let watch = move || {
        for _ in signals.forever() {
            let seconds = fs::read_to_string(place.drain_file()).ok().and_then(|text| text.trim().parse().ok());
            let grace = seconds.map(Duration::from_secs);
            if let Err(silence) = watch::drain(&socket, DrainMode::Stop, grace, Duration::from_secs(5), |_| ()) {
                // It may have stopped before it could say so.
                eprintln!("draining: {}", silence.reason);
            }
        }
    };
    thread::Builder::new().name("telecl-drain".into()).spawn(watch).map(drop)
}

/// The address by which this node talks to the node that started it, so that there is no name to look up: containers often cannot.
fn own_address() -> Result<IpAddr, Failure> {
    let launcher = std::env::var("SLURM_LAUNCH_NODE_IPADDR").ok().and_then(|text| text.parse::<IpAddr>().ok());
    let launcher = launcher.ok_or_else(|| {
        Failure::new(
            Exit::Failed,
            "Slurm does not say where srun runs (SLURM_LAUNCH_NODE_IPADDR)",
            "Start it with srun",
        )
    })?;
    route_to(launcher).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("no address of this node leads to {launcher}: {error}"),
            "Is its network up?",
        )
    })
}

/// Which of this machine's addresses packets to another have. Nothing is sent.
fn route_to(other: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match other {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((other, 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_one_of_this_machine() {
        assert!(route_to("127.0.0.1".parse().unwrap()).unwrap().is_loopback());
    }

    #[test]
    fn directories_of_processes_that_are_no_more_are_removed_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["telecl-7-1-999999999", "telecl-7-1-x", "other"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        remove_left(parent.path(), "telecl-7-");
        let left = |name| parent.path().join(name).exists();
        assert_eq!([left("telecl-7-1-999999999"), left("telecl-7-1-x"), left("other")], [false, true, true]);
    }
}
