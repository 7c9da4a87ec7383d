//! Many processes at once, each of which launches kernels one at a time.

use std::time::Duration;

use super::catalog::CROWDS;
use super::child::{Request, Wanted};
use super::path::Path;
use super::rounds::{self, Effort};
use super::talk::Talk;

/// How long all of them launch: long enough that where they take turns, all of the largest crowd have theirs.
const TIME: Duration = Duration::from_secs(1);

/// For each round the rates of all crowds. `say` hears how large the crowd is becoming.
pub(crate) fn run(
    path: &Path,
    device: &str,
    effort: Effort,
    mut say: impl FnMut(usize),
) -> Result<Vec<Vec<f64>>, String> {
    let wanted = Wanted::Named(device.to_owned());
    let rounds = effort.rounds.min(3) as usize;
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); rounds];
    let mut crowd: Vec<Talk> = Vec::new();
    // Small crowds first: processes are only added, and all of them stay until the end.
    for size in CROWDS {
        say(size);
        while crowd.len() < size {
            let number = crowd.len() + 1;
            let opened = rounds::open(path, &wanted);
            let (talk, _) = opened.map_err(|reason| format!("process {number}: {reason}"))?;
            crowd.push(talk);
        }
        for rates in &mut all {
            rates.push(launch(&mut crowd)?);
        }
    }
    Ok(all)
}

/// Launches per second of all together. Where they take turns, one that is due for its last launch when the time is over waits
/// for it: all begin together, and the time is that of the last to end.
fn launch(crowd: &mut [Talk]) -> Result<f64, String> {
    let request = Request::LaunchFor { milliseconds: TIME.as_millis() as u64 };
    for talk in crowd.iter_mut() {
        talk.send(&request)?;
    }
    let (mut all, mut longest) = (0.0, 0.0_f64);
    for talk in crowd {
        match talk.values(TIME + Duration::from_secs(60))?.as_slice() {
            [launched, seconds] => (all, longest) = (all + launched, longest.max(*seconds)),
            other => return Err(format!("an answer of {} values", other.len())),
        }
    }
    Ok(all / longest)
}
