//! Which release of Slurm the plugin is for: it loads those of its own release only.
//!
//! The number is taken from Slurm's headers (`SLURM_INCLUDE`, or `/usr/include`). Without them the plugin is built all the same,
//! so that the workspace builds anywhere, with a number that every Slurm refuses. `make spank` insists on headers.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-env-changed=SLURM_INCLUDE");
    let include = env::var_os("SLURM_INCLUDE").map_or_else(|| PathBuf::from("/usr/include"), PathBuf::from);
    let header = include.join("slurm/slurm_version.h");
    println!("cargo:rerun-if-changed={}", header.display());
    let number = fs::read_to_string(&header).ok().and_then(|text| version_number(&text)).unwrap_or(0);
    println!("cargo:rustc-env=TELECL_SLURM_VERSION_NUMBER={number}");
}

/// Of the line `#define SLURM_VERSION_NUMBER 0x160508`.
fn version_number(text: &str) -> Option<u32> {
    let line = text.lines().find(|line| line.starts_with("#define SLURM_VERSION_NUMBER "))?;
    let digits = line.split_whitespace().nth(2)?.strip_prefix("0x")?;
    u32::from_str_radix(digits, 16).ok()
}
