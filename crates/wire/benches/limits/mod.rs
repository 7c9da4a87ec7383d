//! How many instructions a case may take, from the table beside its benchmark.
//!
//! A line of the table has a case, what it was measured to take, and its limit. `make guard-bless` writes it.

use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};

/// The C library copies memory in the way that suits the processor. Without these features they are all alike.
const ANY_PROCESSOR: &str = "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX2,-AVX512F,-AVX512VL,-SSSE3,-ERMS,-FSRM";

/// The configuration of a case: it fails beyond its limit. A case that is not in the table may take nothing.
pub(crate) fn within(table: &str, case: &str) -> LibraryBenchmarkConfig {
    let limit = table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next() == Some(case) { words.nth(1)?.parse().ok() } else { None }
    });
    let mut callgrind = Callgrind::with_args(["--cache-sim=no"]);
    callgrind.format([EventKind::Ir]).hard_limits([(EventKind::Ir, limit.unwrap_or(0_u64))]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind).env("GLIBC_TUNABLES", ANY_PROCESSOR);
    config
}
