//! The command line of `telecl bench tenants`.

use std::path::PathBuf;

use clap::Args;

/// Measure how fairly tenants share a device
///
/// Starts private services with policies of their own, and two tenants that load a device: kernels that keep all of it
/// busy for 0.1, 1 and 10 ms. Each figure stands beside the project's own bar for it, and is marked ✓ or ✗.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl bench tenants                        everything, three minutes
  telecl bench tenants --only weights         only those whose names begin so
  telecl bench tenants --seconds 2            shorter, and less certain

Tests:
  weights   two tenants with weights 1 and 3 saturate the device: the first one's part of the time
  flood     one tenant has 10,000 commands in flight, the other runs one kernel at a time: its
            99th percentile, beside its median alone, adjusted to its share (twice as long)
  cap       a tenant with a cap of 20 % saturates an otherwise idle device: its part of the time

A tenant's device time is the number of its kernels that have ended, times what one takes alone. As
root the tenants are the users 60001 and 60002 at the service's Unix socket; otherwise one of them is
you, and the other comes over TCP.

Exit codes: 0 if everything could be measured, whether or not bars are met; 1 if a test failed; 3 if
there is no device.")]
pub(crate) struct TenantsArgs {
    /// Use the first device whose name contains this [default: the first GPU, or else the first device]
    #[arg(long, value_name = "PART_OF_NAME")]
    pub(crate) device: Option<String>,
    /// How long each test loads the device [default: weights 20, the others 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: Option<u32>,
    /// Run only tests whose names begin so
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Write everything as JSON; - is stdout, instead of the table
    #[arg(long, visible_alias = "out", value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The driver's library [default: as for telecl run]
    #[arg(long, value_name = "PATH")]
    pub(crate) driver: Option<PathBuf>,
}
