//! What a program needs in its environment to find the driver, without a file of the system being touched.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use telecl_config::Address;
use tempfile::TempDir;

use crate::credentials;
use crate::exit::{Exit, Failure};

/// The name of the driver's library.
pub(crate) const DRIVER: &str = "libtelecl.so";

/// The driver's library: the one given, or the first in the places where it is installed or built.
pub(crate) fn find_driver(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        let wrong = |what: String| Failure::new(Exit::Usage, what, format!("Give --driver the path of {DRIVER}"));
        let path =
            path.canonicalize().map_err(|error| wrong(format!("cannot use the driver {}: {error}", path.display())))?;
        return if path.is_file() { Ok(path) } else { Err(wrong(format!("{} is not a file", path.display()))) };
    }
    let places = driver_places();
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let list = places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        Failure::new(
            Exit::Usage,
            format!("the driver {DRIVER} is in none of its places ({list})"),
            "Build it with cargo build -p telecl-driver, or name it: --driver PATH",
        )
    })
}

/// Beside the executable as built, beside it as installed, and the system's places.
fn driver_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(beside) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        places.push(beside.join(DRIVER));
        if let Some(prefix) = beside.parent() {
            places.push(prefix.join("lib/telecl").join(DRIVER));
        }
    }
    for prefix in ["/usr/local/lib/telecl", "/usr/lib/telecl"] {
        places.push(Path::new(prefix).join(DRIVER));
    }
    let mut seen = std::collections::HashSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

/// A private directory (0700) with a `telecl.icd` for loaders, and room for the socket of a private service.
pub(crate) fn make_directory(driver: &Path) -> Result<TempDir, Failure> {
    make_directory_in(&std::env::temp_dir(), driver).map_err(|error| {
        let what = format!("cannot make a private directory in {}: {error}", std::env::temp_dir().display());
        Failure::new(Exit::Failed, what, "Set TMPDIR to a directory that can be written to")
    })
}

fn make_directory_in(parent: &Path, driver: &Path) -> io::Result<TempDir> {
    // A path longer than this leaves no room in the address of a Unix socket.
    let parent = if parent.is_absolute() && parent.as_os_str().len() <= 60 { parent } else { Path::new("/tmp") };
    let private = fs::Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().prefix("telecl-run-").permissions(private).tempdir_in(parent)?;
    fs::create_dir(vendors(directory.path()))?;
    name_driver(directory.path(), driver)?;
    Ok(directory)
}

/// Makes the directory's `telecl.icd` say where the driver is, to whoever can reach it.
pub(crate) fn name_driver(directory: &Path, driver: &Path) -> io::Result<()> {
    let vendors = vendors(directory);
    let icd = vendors.join("telecl.icd");
    fs::write(&icd, format!("{}\n", driver.display()))?;
    fs::set_permissions(&icd, fs::Permissions::from_mode(0o644))?;
    fs::set_permissions(&vendors, fs::Permissions::from_mode(0o755))
}

fn vendors(directory: &Path) -> PathBuf {
    directory.join("vendors")
}

/// Where a private service listens.
pub(crate) fn private_address(directory: &Path) -> Address {
    Address::Unix(directory.join("service.sock"))
}

/// The variables for a program whose loader is to find only our driver, and whose driver only these services.
pub(crate) fn variables(directory: &Path, driver: &Path, services: &[Address]) -> Vec<(&'static str, OsString)> {
    let services = services.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut variables = vec![
        // A directory, which both ocl-icd and the Khronos loader take instead of /etc/OpenCL/vendors.
        ("OCL_ICD_VENDORS", vendors(directory).into()),
        // The Khronos loader adds these libraries to those it finds in the directory. It knows one that it
        // has already; setting the variable replaces a list that the user may have.
        ("OCL_ICD_FILENAMES", driver.into()),
        ("TELECL_SERVICES", services.into()),
    ];
    variables.extend(credentials::variables());
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_private_and_names_the_driver() {
        let directory = make_directory(Path::new("/opt/libtelecl.so")).unwrap();
        let mode = fs::metadata(directory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let text = fs::read_to_string(directory.path().join("vendors/telecl.icd")).unwrap();
        assert_eq!(text, "/opt/libtelecl.so\n");
    }

    #[test]
    fn a_long_temporary_directory_leaves_room_for_the_socket() {
        let long = std::env::temp_dir().join("a".repeat(80));
        let directory = make_directory_in(&long, Path::new("/opt/libtelecl.so")).unwrap();
        let address = private_address(directory.path()).to_string();
        assert_eq!(address.parse::<Address>().unwrap().to_string(), address);
    }

    #[test]
    fn a_driver_that_is_not_there_is_named() {
        let failure = find_driver(Some(Path::new("/nowhere/libtelecl.so"))).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(format!("{failure:?}").contains("/nowhere/libtelecl.so"));
    }
}
