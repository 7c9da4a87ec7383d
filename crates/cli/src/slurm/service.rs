//! `telecl slurm service`: the body of a batch script. Starts a service on every node, says when all are ready, and cleans up.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM, SIGURG, SIGUSR1};
use signal_hook::iterator::Signals;

use super::job::{self, JobId};
use super::place::{self, NodeFile, Place};
use super::{ServiceArgs, containers};
use crate::exit::{Exit, Failure, Outcome, print};
use crate::serve;

/// How often the files of nodes are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Beyond their grace, the services of nodes get this long to end.
const ENDING: Duration = Duration::from_secs(10);

/// What the service is told.
#[derive(Debug)]
enum News {
    Signal(i32),
    /// The step with the services has ended.
    Ended(io::Result<ExitStatus>),
}

pub(super) fn service(args: &ServiceArgs) -> Outcome {
    let job = JobId::own().ok_or_else(|| {
        let advice = "Put it into a batch script, or have one submitted: telecl slurm start";
        Failure::new(Exit::Usage, "this is no Slurm job: SLURM_JOB_ID is not set", advice)
    })?;
    let nodes = number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES")).unwrap_or(1);
    place::remove_stale(&job);
    let place = Place::make(&job)?;
    let outcome = serve_in(&job, nodes, &place, args);
    let removed = place.remove();
    if let Err(error) = removed {
        eprintln!("warning: cannot remove {}: {error}", place.path.display());
    }
    outcome
}

fn serve_in(job: &JobId, nodes: usize, place: &Place, args: &ServiceArgs) -> Outcome {
    if let Err(failure) = containers::provide(place) {
        eprintln!("warning: containers cannot be pointed at this service: {failure}");
    }
    let step = Step::start(nodes, place, args)?;
    let deadline = Instant::now() + args.ready_within;
    let mut seen = 0;
    loop {
        let ready = place.nodes_ready();
        if ready.len() != seen {
            seen = ready.len();
            eprintln!("job {job}: {seen} of {nodes} nodes are ready");
        }
        if seen >= nodes {
            return serve_until_told(job, place, &step, &ready, args);
        }
        match step.news.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Ok(News::Ended(status)) => return Err(ended_early(job, &status)),
            Ok(News::Signal(_)) => {
                step.end(job, place, Duration::ZERO);
                return Ok(Exit::Ok);
            }
            Err(_) => {
                step.end(job, place, Duration::ZERO);
                let what = format!("job {job}: {seen} of {nodes} nodes were ready after {:?}", args.ready_within);
                return Err(Failure::new(
                    Exit::Failed,
                    what,
                    "What the others say stands above; --ready-within gives more time",
                ));
            }
        }
    }
}

fn serve_until_told(job: &JobId, place: &Place, step: &Step, nodes: &[NodeFile], args: &ServiceArgs) -> Outcome {
    place.mark_ready(job, nodes).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot write {}: {error}", place.ready_mark().display()), "Is there room?")
    })?;
    for node in nodes {
        let gpus = node.gpus.as_ref().map(|gpus| format!(", GPUs {gpus}")).unwrap_or_default();
        print(format_args!("{} serves at {}{gpus}\n", node.node, node.address));
    }
    print(format_args!("job {job} is ready: telecl slurm run --service {job} -- PROGRAM\n"));
    match step.news.recv() {
        Ok(News::Signal(SIGUSR1)) => {
            print(format_args!("job {job} takes no new sessions; those there are have {:?}\n", args.drain));
            step.end(job, place, args.drain);
            Ok(Exit::Ok)
        }
        Ok(News::Signal(_)) => {
            print(format_args!("job {job} was told to end\n"));
            // Slurm tells the services the same, and srun, which kills them a moment later.
            step.end(job, place, Duration::ZERO);
            Ok(Exit::Ok)
        }
        Ok(News::Ended(status)) => Err(ended_early(job, &status)),
        // Both senders live as long as this process.
        Err(_) => Ok(Exit::Failed),
    }
}

fn ended_early(job: &JobId, status: &io::Result<ExitStatus>) -> Failure {
    let how = match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let what = format!("job {job}: the services have ended by themselves (srun: {how})");
    Failure::new(Exit::Failed, what, "What they say stands above")
}

/// The services of all nodes: one step of the job.
#[derive(Debug)]
struct Step {
    news: Receiver<News>,
    srun: Pid,
}

impl Step {
    fn start(nodes: usize, place: &Place, args: &ServiceArgs) -> Result<Step, Failure> {
        let failed = |what: &str, error: io::Error| {
            Failure::new(Exit::Failed, format!("cannot {what}: {error}"), "Is srun in PATH on this node?")
        };
        // Before anything is started that would have to be ended.
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1]).map_err(|error| failed("take signals", error))?;
        let mut child = srun(nodes, place, args)?.spawn().map_err(|error| failed("start srun", error))?;
        let srun = pid(&child)?;
        let (tell, news) = mpsc::channel();
        let tell_signals = tell.clone();
        let watch_signals = move || {
            for signal in signals.forever() {
                if tell_signals.send(News::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        let watch_srun = move || {
            // Whoever listened has gone.
            let _ = tell.send(News::Ended(child.wait()));
        };
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        thread("telecl-signals").spawn(watch_signals).map_err(|error| failed("start a thread", error))?;
        thread("telecl-srun").spawn(watch_srun).map_err(|error| failed("start a thread", error))?;
        Ok(Step { news, srun })
    }

    /// Ends the services, with `grace` for their sessions. Returns when they have ended, or cannot be made to.
    fn end(&self, job: &JobId, place: &Place, grace: Duration) {
        place.unmark();
        let step = place.nodes_ready().into_iter().next().map(|node| node.step);
        // Without the file they take the grace that they were started with.
        let _ = place.write(&place.drain_file(), &grace.as_secs().to_string());
        if let Some(step) = &step {
            // Not to srun, which would kill the tasks: SIGURG to these has them drain, however often it comes. Slurm knows it by its
            // number only.
            if let Err(error) = job::signal(job, Some(step), &SIGURG.to_string()) {
                eprintln!("warning: cannot tell step {job}.{step} to end: {error}");
            }
            if self.ended_within(grace + ENDING) {
                return;
            }
            // Slurm may not answer in a job that it is ending.
            let _ = job::signal(job, Some(step), "KILL");
            if self.ended_within(ENDING) {
                return;
            }
        }
        // srun ends its tasks when it is terminated.
        let _ = kill_process(self.srun, Signal::TERM);
        self.ended_within(ENDING);
    }

    /// Whether the step ends in this time. A signal meanwhile is one more wish for what happens anyway, but SIGTERM after SIGUSR1
    /// says that Slurm waits no longer.
    fn ended_within(&self, time: Duration) -> bool {
        let mut deadline = Instant::now() + time;
        loop {
            match self.news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(News::Ended(_)) => return true,
                Ok(News::Signal(SIGTERM)) => deadline = deadline.min(Instant::now() + ENDING),
                Ok(News::Signal(_)) => {}
                Err(_) => return false,
            }
        }
    }
}

fn pid(child: &Child) -> Result<Pid, Failure> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| Failure::new(Exit::Failed, "srun has no process id", "Try again"))
}

/// One task on each node; other steps of the job may run beside it.
fn srun(nodes: usize, place: &Place, args: &ServiceArgs) -> Result<Command, Failure> {
    let mut command = Command::new("srun");
    command.args([&format!("--nodes={nodes}"), &format!("--ntasks={nodes}")]);
    command.args(["--ntasks-per-node=1", "--overlap", "--kill-on-bad-exit=0", "--mpi=none", "--unbuffered"]);
    command.arg(serve::this_executable()?).args(["slurm", "node", "--place"]).arg(&place.path);
    command.args(args.offer.flags());
    command.stdin(Stdio::null());
    // Options of the batch script that would bend the step, as `#SBATCH --ntasks` does.
    for name in ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_DISTRIBUTION"]
    {
        command.env_remove(name);
    }
    Ok(command)
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}
