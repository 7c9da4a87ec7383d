//! The OpenCL driver that everything is compared with, and the directories that loaders look into.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Artifacts, Link, Service};

/// Two vendors directories: one with the vendor's driver alone, one with telecl's alone.
#[derive(Debug)]
pub struct Vendor {
    directory: TempDir,
}

impl Vendor {
    /// The driver named by `TELECL_TEST_ICD`, or PoCL.
    pub fn select(artifacts: &Artifacts) -> Result<Vendor, String> {
        let icd = env::var_os("TELECL_TEST_ICD").unwrap_or_else(|| "/etc/OpenCL/vendors/pocl.icd".into());
        let icd = PathBuf::from(icd);
        let directory = TempDir::with_prefix("telecl-vendors-").map_err(|error| error.to_string())?;
        // Workers of a service of root are other users.
        let readable = fs::set_permissions(directory.path(), Permissions::from_mode(0o755));
        readable.map_err(|error| error.to_string())?;
        let vendor = Vendor { directory };
        let advice = "Install pocl-opencl-icd, or name another .icd file in TELECL_TEST_ICD";
        let library = fs::read(&icd).map_err(|error| format!("cannot read {}: {error}. {advice}", icd.display()))?;
        write(&vendor.direct(), "vendor.icd", &library)?;
        write(&vendor.telecl(), "telecl.icd", format!("{}\n", artifacts.driver.display()).as_bytes())?;
        Ok(vendor)
    }

    fn direct(&self) -> PathBuf {
        self.directory.path().join("direct")
    }

    fn telecl(&self) -> PathBuf {
        self.directory.path().join("telecl")
    }

    /// `program`, which will see the vendor's driver only.
    pub fn command_direct(&self, program: &Path) -> Command {
        command(program, &self.direct())
    }

    /// `program`, which will see telecl only, and `service` through it.
    pub fn command_through(&self, program: &Path, service: &Service) -> Command {
        let mut command = self.command_with_driver(program);
        command.env("TELECL_SERVICES", service.address());
        command
    }

    /// As [`Vendor::command_through`], over this link. Whether the program has used it, [`Service::check_link`] tells.
    pub fn command_over(&self, link: Link, program: &Path, service: &Service) -> Command {
        let mut command = self.command_through(program, service);
        link.choose(&mut command);
        command
    }

    /// `program`, which will see telecl only, without any setting.
    pub fn command_with_driver(&self, program: &Path) -> Command {
        command(program, &self.telecl())
    }
}

/// No setting of the developer's own reaches a test.
fn command(program: &Path, vendors: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TELECL_")) {
        command.env_remove(name);
    }
    command.env("OCL_ICD_VENDORS", vendors).env("XDG_CONFIG_HOME", vendors).env_remove("OCL_ICD_FILENAMES");
    command
}

fn write(directory: &Path, name: &str, content: &[u8]) -> Result<(), String> {
    let file = directory.join(name);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&file, content))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}
