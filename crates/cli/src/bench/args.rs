//! The command line of `telecl bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use telecl_config::Address;

use super::share::ShareArgs;
use super::tenants::TenantsArgs;

/// Measure what telecl costs on this machine
///
/// Runs the same tests through the vendor's driver alone (direct), through a service over TCP, over TCP with TLS, and over
/// shared memory, in turn, round by round. Every value stands beside direct's, and is marked ✓ or ✗ where the project
/// has set itself a bar. What the machine can do without OpenCL (round trips, streams, copies) is measured in the
/// same rounds.
///
/// Without --service, a private service over this machine's own devices is started, and ends with the command.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  telecl bench                                  everything, some minutes
  telecl bench --quick                          less certain, some seconds
  telecl bench --only launch-finish,read-4      only these tests
  telecl bench --device H200 --json bench.json  another device; all rounds as JSON
  telecl bench --service node7 --service unix:/run/telecl.sock
  telecl bench share -- hashcat ...             something else: several copies of a program at once
  telecl bench tenants                          and how fairly tenants share a device

Tests:
  launch-stream   empty kernels in a row, then clFinish; enqueue-call is the enqueue alone
  launch-finish   an empty kernel and clFinish, one at a time
  dependent       kernels that wait for the event of the one before
  wait-event      an empty kernel with an event, clWaitForEvents
  read-4          a blocking read of 4 bytes
  write-4         a blocking write of 4 bytes to an idle device; write-4-row is many in a row
  args-launch     four changing arguments and a kernel, in a row
  chain           write 4 KiB, four arguments, kernel, blocking read of 4 KiB
  buffer-4K       create a buffer, write it, clFinish, release it
  write-64M       a blocking write of 64 MiB and clFinish
  read-64M        a blocking read of 64 MiB
  stream-1M       write, kernel and read of 1 MiB, nothing waits; both directions count
  sessions        launch-finish in 1 to 32 processes at once (not with --quick)
  start           a process that lists all devices, from its start to its end
  context         a process from its start to its first finished kernel
  memory          what a first kernel takes of a process's memory

A value is the median of the rounds. Behind it stands how far p10 or p90 lies from it (of fewer
than 10 rounds: the lowest or the highest). The OpenCL loader must obey OCL_ICD_VENDORS, as ocl-icd
and the Khronos loader do; where another comes first, set LD_LIBRARY_PATH or TELECL_OPENCL_LIBRARY.

Exit codes: 0 if everything could be measured, whether or not bars are met; 1 if a test failed, or
every way through telecl; 3 if there is no device."
)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) other: Option<OtherBench>,
    /// Measure this service instead of a private one; may be repeated
    #[arg(long = "service", value_name = "ADDRESS")]
    pub(crate) services: Vec<Address>,
    /// Use the first device whose name contains this [default: the first GPU, or else the first device]
    #[arg(long, value_name = "PART_OF_NAME")]
    pub(crate) device: Option<String>,
    /// Fewer and shorter rounds, and no sessions: some seconds
    #[arg(long)]
    pub(crate) quick: bool,
    /// How often each test is run on each path [default: 11; 5 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Run only these tests
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Write everything as JSON, with all rounds; - is stdout, instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Draw how much longer than direct everything takes
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// The driver's library [default: as for telecl run]
    #[arg(long, value_name = "PATH")]
    pub(crate) driver: Option<PathBuf>,
}

/// Benches of their own.
#[derive(Debug, Subcommand)]
pub(crate) enum OtherBench {
    Share(ShareArgs),
    Tenants(TenantsArgs),
}
