//! Batch scripts, for sbatch and for people.

use std::fmt::Write;
use std::time::Duration;

use super::{HetArgs, OfferArgs, ResourceArgs};
use crate::exit::{Exit, Failure, Outcome, print};
use crate::serve;

/// Beyond what sessions get, for signals to arrive: Slurm sends them up to a minute early, and never late.
const AHEAD: Duration = Duration::from_secs(30);

/// The script of a service.
pub(super) fn service(
    resources: &ResourceArgs,
    offer: &OfferArgs,
    drain: Duration,
    log: Option<&str>,
) -> Result<String, Failure> {
    let mut script = String::from("#!/bin/sh\n#SBATCH --job-name=telecl\n");
    options(&mut script, resources)?;
    let _ = writeln!(script, "#SBATCH --signal=B:USR1@{}", (drain + AHEAD).as_secs());
    if let Some(log) = log {
        let _ = writeln!(script, "#SBATCH --output={log}");
    }
    let flags: String = offer.flags().iter().map(|flag| format!(" {}", quoted(flag))).collect();
    let _ = writeln!(script, "exec {} slurm service --drain {}s{flags}", this_command()?, drain.as_secs());
    Ok(script)
}

fn options(script: &mut String, resources: &ResourceArgs) -> Result<(), Failure> {
    let _ = writeln!(script, "#SBATCH --nodes={} --ntasks-per-node=1", resources.nodes);
    for (name, value) in [("gres", &resources.gres), ("partition", &resources.partition), ("time", &resources.time)] {
        let Some(value) = value else { continue };
        let _ = writeln!(script, "#SBATCH --{name}={}", one_word(name, value)?);
    }
    Ok(())
}

/// What stands in a line of options must not make another.
fn one_word<'v>(name: &str, value: &'v str) -> Result<&'v str, Failure> {
    if value.is_empty() || value.chars().any(|c| c.is_whitespace() || c.is_control() || "#'\"\\".contains(c)) {
        let what = format!("--{name} {value:?} is not one plain word");
        return Err(Failure::new(Exit::Usage, what, "Write it as for sbatch: --gres gpu:2, --time 4:00:00"));
    }
    Ok(value)
}

/// `telecl slurm het`.
pub(super) fn het(args: &HetArgs) -> Outcome {
    let telecl = this_command()?;
    let mut script = String::from("#!/bin/sh\n# One job in two parts: accelerators, and the program that uses them.\n");
    script.push_str("\n# The part with the accelerators\n#SBATCH --job-name=telecl\n");
    options(&mut script, &args.resources)?;
    script.push_str("#SBATCH --signal=B:USR1@90\n#SBATCH hetjob\n# The part where the program runs\n");
    let _ = writeln!(script, "#SBATCH --nodes={} --ntasks={}", args.program_nodes, args.ntasks);
    if let Some(partition) = &args.program_partition {
        let _ = writeln!(script, "#SBATCH --partition={}", one_word("program-partition", partition)?);
    }
    let program = args.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let _ = write!(
        script,
        "
{telecl} slurm service &
service=$!
# Slurm sends USR1 when the time limit comes near, and TERM when the job is cancelled: to this shell alone.
trap 'kill -USR1 $service' USR1
trap 'kill -TERM $service' TERM

srun --het-group=1 {telecl} slurm run --service \"$SLURM_JOB_ID\" -- {program} &
program=$!
# A trap interrupts wait, so wait until the program has really ended.
while :; do
    wait $program
    status=$?
    kill -0 $program 2>/dev/null || break
done

kill -TERM $service 2>/dev/null
wait $service
exit $status
"
    );
    print(script);
    Ok(Exit::Ok)
}

/// This command, as a shell takes it.
fn this_command() -> Result<String, Failure> {
    Ok(quoted(&serve::this_executable()?.to_string_lossy()))
}

/// A word for a shell: as it is if it is plain, in quotes otherwise.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words_in_a_shell() {
        assert_eq!(quoted("./app"), "./app");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn an_option_is_one_line_and_one_word() {
        assert!(one_word("gres", "gpu:a100:2,accel:1").is_ok());
        for bad in ["", "gpu:1 --uid=0", "gpu\n#SBATCH --time=1"] {
            assert!(one_word("gres", bad).is_err(), "{bad:?}");
        }
    }
}
