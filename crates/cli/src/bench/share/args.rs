//! The command line of `telecl bench share`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use telecl_config::Address;

/// Run several copies of a program at once, directly and through telecl
///
/// For each number of copies it starts all of them at once, with the vendor's driver and then through a private service
/// of telecl, round by round, and measures from the first start to the last end (the makespan). The table and the picture
/// have both, and the speed-up: direct's makespan divided by telecl's. Every copy must end with exit code 0.
///
/// Copies beyond the fourth (--first) go through telecl to a second device: that of --also or --second, or the machine's
/// second GPU if it has one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl bench share --json share.json --svg share.svg -- hashcat -a 0 -m 1410 hashes.txt words.txt \\
      --session share{copy} --potfile-path {dir}/pot -o {dir}/found
  telecl bench share --counts 1,2 --expect 'done' -- ./my-program --seed {copy}
  telecl bench share --also node8:7701 -- ./my-program      from the fifth copy on, through this service
  telecl bench share --from share.json --svg share.svg      draw it again

In the program's arguments {copy} is the number of the copy, from 1, and {dir} an empty directory of its
own, which is removed when it has ended. A potfile, a session or an output belongs there: copies must
not meet, and a later round must not find what an earlier one has done.

Directly, a program sees all devices of this machine, and so it does through telecl, unless copies go
to a second device of the machine: then each sees the one that it is to use.

Exit codes: 0 if everything could be measured; 1 if a copy failed; 3 if there is no device.")]
pub(crate) struct ShareArgs {
    /// How many copies run at once
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) counts: Vec<u16>,
    /// How often each number of copies is run on each path
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// So many copies share the first device
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) first: u16,
    /// Send those beyond them to this service
    #[arg(long, value_name = "ADDRESS", conflicts_with = "second")]
    pub(crate) also: Option<Address>,
    /// Send those beyond them to this device of this machine: a pattern as in a policy, such as number:2
    #[arg(long, value_name = "PATTERN")]
    pub(crate) second: Option<String>,
    /// Let telecl offer this device only: a pattern as in a policy
    #[arg(long, value_name = "PATTERN")]
    pub(crate) device: Option<String>,
    /// Let telecl follow this policy
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "second"])]
    pub(crate) policy: Option<PathBuf>,
    /// Directly, run no more than so many at once, and the others after them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) replicas: Option<u16>,
    /// Go over TCP as well
    #[arg(long)]
    pub(crate) tcp: bool,
    /// What every copy must print; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) expect: Vec<String>,
    /// How long all copies together may take
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = telecl_config::parse_duration)]
    pub(crate) timeout: Duration,
    /// Write everything as JSON, with every copy of every round; - is stdout, instead of the table
    #[arg(long, visible_alias = "out", value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Measure nothing, and read this JSON instead
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub(crate) from: Option<PathBuf>,
    /// Draw makespan and speed-up
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// The driver's library [default: as for telecl run]
    #[arg(long, value_name = "PATH")]
    pub(crate) driver: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "from", value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}
