//! `telecl bench` from end to end: a private service, all paths, and what is left when it ends.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use system_tests::{Artifacts, Ended, Vendor, run};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(60);

/// `telecl bench`, where direct is the vendor's driver alone.
fn bench(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Ended {
    let artifacts = Artifacts::find().unwrap_or_else(|reason| panic!("{reason}"));
    let vendor = Vendor::select(&artifacts).unwrap_or_else(|reason| panic!("{reason}"));
    let mut command = vendor.command_direct(&artifacts.telecl);
    command.arg("bench").arg("--driver").arg(&artifacts.driver).args(arguments);
    prepare(&mut command);
    run(command, SOON).unwrap()
}

#[test]
fn all_paths_are_measured_in_the_same_rounds() {
    let place = TempDir::new().unwrap();
    let ended = bench(&["--quick", "--only", "launch-finish", "--json", "-"], |command| {
        command.env("TMPDIR", place.path());
    });
    assert!(ended.success(), "{ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}\n{ended}"));
    let names = |key: &str| -> Vec<String> {
        report[key].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("paths"), ["direct", "tcp", "shared memory"]);
    assert_eq!(names("results"), ["launch-finish"]);
    assert!(names("limits").contains(&"tcp round trip".to_owned()), "{ended}");
    for cell in report["results"][0]["cells"].as_array().unwrap() {
        assert_eq!(cell["error"], Value::Null, "{ended}");
        let rounds = cell["rounds"].as_array().unwrap();
        assert_eq!(Some(rounds.len() as u64), report["rounds"].as_u64());
        assert!(rounds.iter().all(|round| (1e-7..1.0).contains(&round.as_f64().unwrap())), "{ended}");
        let through = cell["path"] != "direct";
        assert_eq!(cell["ratio"].is_f64() && cell["bar"]["met"].is_boolean(), through, "{ended}");
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while place.path().read_dir().unwrap().next().is_some() {
        assert!(Instant::now() < deadline, "the private directory goes away");
        thread::sleep(Duration::from_millis(20));
    }
    for key in ["telecl", "date", "machine", "device", "notes"] {
        assert_ne!(report[key], Value::Null, "{key}\n{ended}");
    }
}

#[test]
fn what_cannot_be_measured_is_an_error_that_says_why() {
    let ended = bench(&["--quick", "--only", "read-4", "--service", "unix:/nowhere/service.sock"], |_| {});
    assert_eq!(ended.status.and_then(|status| status.code()), Some(3), "{ended}");
    assert!(ended.stderr.contains("error: no service can be used"), "{ended}");
    assert!(ended.stderr.contains("telecl serve --listen unix:/nowhere/service.sock"), "{ended}");
    let ended = bench(&["--quick", "--only", "read-4", "--device", "no such device"], |_| {});
    assert_eq!(ended.status.and_then(|status| status.code()), Some(3), "{ended}");
    assert!(ended.stderr.contains("no device is named no such device; there is "), "{ended}");
}
