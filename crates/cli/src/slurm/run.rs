//! `telecl slurm run`: a program on the devices of a service job.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use telecl_config::SESSION_DIR;

use super::SlurmRunArgs;
use super::job::{self, Asked, Job, JobId};
use super::place::{NotReady, Place, Ready};
use crate::credentials::CredentialArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::{run, survey};

/// How often Slurm is asked: it has other users.
const ASK: Duration = Duration::from_secs(2);
/// How often the directory is looked at.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn run(args: &SlurmRunArgs) -> Outcome {
    let (name, arguments) = args.command.split_first().ok_or_else(|| {
        Failure::new(Exit::Usage, "no program was named", "Try: telecl slurm run --service JOBID -- clinfo -l")
    })?;
    let program = run::find_program(name)?;
    let (place, ready) = wait(&args.service, args.wait)?;
    let here = run::Place::make(args.driver.as_deref(), ready.services)?;
    let error = Command::new(&program)
        .arg0(name)
        .args(arguments)
        // No other file is read, whatever the user has configured for other services.
        .env(SESSION_DIR, &place.path)
        .envs(here.variables())
        .exec();
    Err(run::cannot_run(name, &error))
}

/// Waits until a service is ready and answers, for `most`, and says on stderr what it waits for.
pub(super) fn wait(job: &JobId, most: Duration) -> Result<(Place, Ready), Failure> {
    let place = Place::of(job)?;
    let deadline = Instant::now() + most;
    let mut progress = Progress::default();
    let mut asked = None;
    loop {
        let mut waits_for = "its service is not ready yet".to_owned();
        match place.read() {
            Ok(ready) => match answer(&ready) {
                Ok(()) => return Ok((place, ready)),
                Err(reason) => waits_for = format!("{} does not lead to it: {reason}", place.ready_mark().display()),
            },
            Err(NotReady::Missing) => {}
            Err(NotReady::Wrong(failure)) => return Err(failure),
        }
        if asked.is_none_or(|asked: Instant| asked.elapsed() >= ASK) {
            asked = Some(Instant::now());
            match job::ask(job) {
                Asked::Found(found) => {
                    check(job, &found, &place)?;
                    if found.state != "RUNNING" {
                        waits_for = format!("it is {}, {}", found.state, found.reason);
                    }
                }
                Asked::Unknown if place.path.exists() => return Err(stale(job, &place, "is unknown to Slurm")),
                Asked::Unknown => return Err(job::no_such_job(job)),
                // In a container there is no Slurm to ask; its files have to do.
                Asked::Silent(_) => {}
            }
            progress.say(job, &waits_for);
        }
        if Instant::now() >= deadline {
            let what = format!("job {job} is not ready after {most:?}: {waits_for}");
            let advice = format!(
                "Look at it with scontrol show job {job}, wait longer with --wait, or end it with scancel {job}"
            );
            return Err(Failure::new(Exit::Unreachable, what, advice));
        }
        thread::sleep(LOOK);
    }
}

/// Whether this job can be waited for.
fn check(job: &JobId, found: &Job, place: &Place) -> Result<(), Failure> {
    if let Ok(own) = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"))
        && own != found.user
    {
        let what = format!("job {job} is {}'s: a service can be used by its own user only", found.user);
        return Err(Failure::new(Exit::Usage, what, "Start your own: telecl slurm start"));
    }
    if found.is_alive() {
        return Ok(());
    }
    if place.path.exists() {
        return Err(stale(job, place, &format!("has ended ({})", found.state)));
    }
    let what = format!("job {job} has ended ({})", found.state);
    Err(Failure::new(Exit::Unreachable, what, "Start another service: telecl slurm start"))
}

fn stale(job: &JobId, place: &Place, how: &str) -> Failure {
    let what = format!("{} is stale: job {job} {how}", place.path.display());
    Failure::new(Exit::Unreachable, what, place.start_anew())
}

/// Whether somebody is there who has the secret. Of an earlier run of the job, nobody is.
fn answer(ready: &Ready) -> Result<(), String> {
    CredentialArgs::of_secret(&ready.secret).apply().map_err(|failure| failure.to_string())?;
    let answers = survey::ask_all(&ready.services, Duration::from_secs(5));
    if answers.iter().any(Result::is_ok) {
        return Ok(());
    }
    Err(answers.into_iter().filter_map(Result::err).map(|silence| silence.reason).next().unwrap_or_default())
}

/// Says what is waited for, when it changes, and now and then.
#[derive(Debug, Default)]
struct Progress {
    last: Option<(String, Instant)>,
}

impl Progress {
    fn say(&mut self, job: &JobId, what: &str) {
        let again = Duration::from_secs(30);
        if self.last.as_ref().is_none_or(|(before, when)| before != what || when.elapsed() >= again) {
            eprintln!("waiting for job {job}: {what}");
            self.last = Some((what.to_owned(), Instant::now()));
        }
    }
}
