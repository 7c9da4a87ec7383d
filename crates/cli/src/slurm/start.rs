//! `telecl slurm start` and `stop`: a service job, from a login node.

use std::io::Write;
use std::process::{Command, Stdio};

use super::job::{self, Asked, JobId};
use super::{StartArgs, place, run, script};
use crate::exit::{Exit, Failure, Outcome, print};
use crate::human;

pub(super) fn start(args: &StartArgs) -> Outcome {
    let log = place::home_directory()?.join("log");
    let text = script::service(&args.resources, &args.offer, args.drain, log.join("%j.log").to_str())?;
    if args.print {
        print(text);
        return Ok(Exit::Ok);
    }
    for path in log.parent().into_iter().chain([log.as_path()]) {
        place::private_directory(path).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("cannot make {}: {error}", path.display()),
                "Is your home directory writable?",
            )
        })?;
    }
    let job = submit(&text, &args.options)?;
    eprintln!("submitted job {job}; its log is {}", log.join(format!("{job}.log")).display());
    if args.wait.is_zero() {
        print(format_args!("{job}\n"));
        return Ok(Exit::Ok);
    }
    match run::wait(&job, args.wait) {
        Ok((_, ready)) => {
            let services: Vec<String> = ready.services.iter().map(ToString::to_string).collect();
            eprintln!("job {job} is ready: {}: {}", human::count(services.len(), "service"), services.join(", "));
            print(format_args!("{job}\n"));
            Ok(Exit::Ok)
        }
        Err(failure) => {
            // Scripts need it to cancel the job.
            print(format_args!("{job}\n"));
            Err(failure)
        }
    }
}

fn submit(text: &str, options: &[String]) -> Result<JobId, Failure> {
    let failed = |what: String| Failure::new(Exit::Failed, what, "telecl slurm start --print shows the script");
    let mut child = Command::new("sbatch")
        .arg("--parsable")
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot run sbatch: {error}")))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).map_err(|error| failed(format!("cannot give sbatch its script: {error}")))?;
    }
    let done = child.wait_with_output().map_err(|error| failed(format!("sbatch: {error}")))?;
    if !done.status.success() {
        return Err(failed("sbatch refused the job (its message stands above)".to_owned()));
    }
    let printed = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    // With several clusters: NUMBER;CLUSTER.
    let number = printed.split(';').next().unwrap_or_default();
    number.parse().map_err(|_| failed(format!("sbatch printed {printed:?} where a job's number should be")))
}

/// Has the service end as if its time limit came near.
pub(super) fn stop(service: JobId) -> Outcome {
    match job::ask(&service) {
        Asked::Found(found) if !found.is_alive() => {
            print(format_args!("job {service} has ended already ({})\n", found.state));
            return Ok(Exit::Ok);
        }
        Asked::Found(found) if found.state == "PENDING" => {
            job::output("scancel", &[&service.to_string()]).map_err(|what| refused(&what))?;
            print(format_args!("job {service} had not begun, and is cancelled\n"));
            return Ok(Exit::Ok);
        }
        Asked::Found(_) => {}
        Asked::Unknown => return Err(job::no_such_job(&service)),
        Asked::Silent(what) => return Err(refused(&what)),
    }
    job::signal(&service, None, "USR1").map_err(|what| refused(&what))?;
    print(format_args!("job {service} ends when its sessions have\n"));
    Ok(Exit::Ok)
}

fn refused(what: &str) -> Failure {
    Failure::new(Exit::Failed, format!("Slurm does not do it: {what}"), "Is it your job? squeue --me lists yours")
}
