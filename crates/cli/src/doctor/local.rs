//! What can be checked without a network: loader, ICD file, driver, configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use telecl_config::DriverConfig;

use super::report::Report;
use crate::exit::Failure;
use crate::{launch, probe};

/// What every loader looks up in a driver.
const DRIVER_FUNCTIONS: [&str; 3] = ["clGetExtensionFunctionAddress", "clIcdGetPlatformIDsKHR", "clGetPlatformInfo"];

/// Where loaders look for ICD files unless told otherwise.
const VENDORS: &str = "/etc/OpenCL/vendors";

/// Variables of ours that are no configuration.
const OTHER_VARIABLES: [&str; 1] = ["TELECL_OPENCL_LIBRARY"];

const LIMIT: Duration = Duration::from_secs(30);

/// The OpenCL loader that programs link with.
pub(crate) fn loader(report: &mut Report) {
    match open("libOpenCL.so.1", &["clGetPlatformIDs"]) {
        Ok(finding) => {
            let text = |key: &str| finding[key].as_str().unwrap_or_default().trim().to_owned();
            let file = text("file");
            let known = if text("loader").is_empty() {
                "a loader that does not tell its name".to_owned()
            } else {
                format!("{} {} ({})", text("loader"), text("version"), text("vendor"))
            };
            report.ok("loader", format!("{}, {}", if file.is_empty() { "libOpenCL.so.1" } else { &file }, known));
        }
        Err(reason) => report.failed(
            "loader",
            format!("libOpenCL.so.1 cannot be opened: {reason}"),
            "Install an OpenCL loader: apt-get install ocl-icd-libopencl1",
        ),
    }
}

/// What a service on this machine can keep its workers from.
pub(crate) fn confinement(report: &mut Report) {
    let parts = telecl_service::survey();
    if parts.missing().is_empty() {
        report.ok("confinement", format!("workers of a service here can be confined: {parts}"));
    } else {
        // Programs on this machine need no service on it.
        report
            .skipped("confinement", format!("workers of a service here cannot be confined fully: {}", parts.missing()));
    }
}

/// The file by which a loader finds the driver without `telecl run`.
pub(crate) fn icd_file(report: &mut Report, driver: Option<&PathBuf>) {
    let place = std::env::var_os("OCL_ICD_VENDORS").filter(|value| !value.is_empty());
    let place = place.map_or_else(|| PathBuf::from(VENDORS), PathBuf::from);
    let Some((file, library)) = icd_files(&place).into_iter().find(|(_, library)| is_ours(library)) else {
        let driver = driver.map_or_else(|| launch::DRIVER.to_owned(), |path| path.display().to_string());
        return report.skipped(
            "ICD file",
            format!(
                "{} has none for telecl, so only `telecl run` uses the driver; for all programs: \
                 echo {driver} | sudo tee {VENDORS}/telecl.icd",
                place.display()
            ),
        );
    };
    // A loader opens a bare name by the search path of the dynamic linker.
    match open(&library, &DRIVER_FUNCTIONS) {
        Ok(_) => report.ok("ICD file", format!("{} names {library}", file.display())),
        Err(reason) => report.failed(
            "ICD file",
            format!("{} names {library}, which cannot be used: {reason}", file.display()),
            format!("Write the full path of {} into it, or remove it", launch::DRIVER),
        ),
    }
}

fn is_ours(library: &str) -> bool {
    Path::new(library).file_name().is_some_and(|name| name.to_string_lossy().starts_with("libtelecl"))
}

/// ICD files at `place`, which is a directory or one file, with the library that each names.
fn icd_files(place: &Path) -> Vec<(PathBuf, String)> {
    let mut files: Vec<PathBuf> = match fs::read_dir(place) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![place.to_owned()],
    };
    files.retain(|file| file.extension().is_some_and(|extension| extension == "icd"));
    files.sort();
    files
        .into_iter()
        .filter_map(|file| {
            let text = fs::read_to_string(&file).ok()?;
            Some((file, text.lines().next().unwrap_or_default().trim().to_owned()))
        })
        .collect()
}

/// The driver that `telecl run` uses.
pub(crate) fn driver(report: &mut Report, found: Result<PathBuf, Failure>) -> Option<PathBuf> {
    let path = match found {
        Ok(path) => path,
        Err(failure) => {
            report.failed("driver", failure.to_string(), "");
            return None;
        }
    };
    match open(&path.to_string_lossy(), &DRIVER_FUNCTIONS) {
        Ok(_) => {
            report.ok("driver", format!("{} opens and has what a loader needs", path.display()));
            Some(path)
        }
        Err(reason) => {
            let advice = "Build it again (cargo build -p telecl-driver), or name another: --driver PATH";
            report.failed("driver", format!("{}: {reason}", path.display()), advice);
            None
        }
    }
}

/// Opens a library in a child and wants these functions of it.
fn open(library: &str, functions: &[&str]) -> Result<Value, String> {
    let mut arguments = vec!["library", library];
    for function in functions {
        arguments.extend(["--function", function]);
    }
    // The driver must not connect anywhere only because it is looked at.
    let inert = vec![(telecl_config::INSIDE_SERVICE, "1".into())];
    let finding = probe::start(&arguments, inert, LIMIT)?.pop().ok_or("no answer from the process that tried it")?;
    if let Some(reason) = finding["error"].as_str() {
        return Err(reason.to_owned());
    }
    let missing: Vec<_> = finding["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if missing.is_empty() { Ok(finding) } else { Err(format!("it does not export {}", missing.join(", "))) }
}

/// File and variables; `None` if they are wrong.
pub(crate) fn configuration(report: &mut Report) -> Option<DriverConfig> {
    let config = match DriverConfig::load() {
        Ok(config) => config,
        Err(error) => {
            let advice = "docs/configuration.md lists every key and variable";
            report.failed("configuration", error.to_string(), advice);
            return None;
        }
    };
    let mut sources: Vec<String> = config.source.variables.iter().map(ToString::to_string).collect();
    sources.extend(config.source.file.iter().map(|file| file.display().to_string()));
    if std::env::var_os(telecl_config::INSIDE_SERVICE).is_some() {
        let what = format!("{} is set, so the driver offers nothing", telecl_config::INSIDE_SERVICE);
        report.failed("configuration", what, format!("Unset it: unset {}", telecl_config::INSIDE_SERVICE));
    } else if sources.is_empty() {
        report.skipped("configuration", "none: no variable is set, and there is no file");
    } else {
        report.ok("configuration", sources.join(", "));
    }
    unknown_variables(report);
    Some(config)
}

/// Not a failure: Kubernetes sets TELECL_SERVICE_HOST and the like beside a service named telecl.
fn unknown_variables(report: &mut Report) {
    let known: Vec<&str> = telecl_config::variables().chain(OTHER_VARIABLES).collect();
    let mut unknown: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with("TELECL_") && !known.contains(&name.as_str()))
        .collect();
    unknown.sort();
    if !unknown.is_empty() {
        report.skipped("configuration", format!("{}: not a variable that telecl reads", unknown.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_icd_file_is_found_in_a_directory_and_by_its_own_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("telecl.icd");
        fs::write(&file, "  /opt/libtelecl.so \n# more\n").unwrap();
        fs::write(directory.path().join("README"), "libtelecl.so").unwrap();
        let expected = vec![(file.clone(), "/opt/libtelecl.so".to_owned())];
        assert_eq!(icd_files(directory.path()), expected);
        assert_eq!(icd_files(&file), expected);
        assert_eq!(icd_files(Path::new("/nowhere")), vec![]);
    }
}
