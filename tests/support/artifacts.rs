//! Where cargo has put what is tested.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The built command and driver, of the same profile as the running test.
#[derive(Clone, Debug)]
pub struct Artifacts {
    pub telecl: PathBuf,
    pub driver: PathBuf,
    /// For what the tests build and write; cargo removes it with the rest of the target directory.
    pub scratch: PathBuf,
}

impl Artifacts {
    /// Finds them beside the test executable, which is `target/<profile>/deps/<name>`.
    pub fn find() -> Result<Artifacts, String> {
        let scratch = Artifacts::scratch()?;
        let profile = profile_directory()?;
        let (telecl, driver) = (profile.join("telecl"), profile.join("libtelecl.so"));
        for file in [&telecl, &driver] {
            if !file.is_file() {
                let release = if profile.ends_with("release") { " --release" } else { "" };
                let file = file.display();
                return Err(format!("{file} is missing. Run: cargo build -p telecl-cli -p telecl-driver{release}"));
            }
        }
        Ok(Artifacts { telecl, driver, scratch })
    }

    /// The directory for what the tests build; needs nothing to be built before.
    pub fn scratch() -> Result<PathBuf, String> {
        let directory = profile_directory()?.with_file_name("system-tests");
        fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(directory)
    }
}

fn profile_directory() -> Result<PathBuf, String> {
    let test = env::current_exe().map_err(|error| format!("cannot find the test executable: {error}"))?;
    let profile = test.parent().and_then(Path::parent);
    profile.map(Path::to_owned).ok_or_else(|| format!("{} is not in a target directory", test.display()))
}
