//! `telecl bench` from end to end: a private service, all paths, and what is left when it ends.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use system_tests::{Artifacts, Bench, Ended, Running, Vendor, is_alive, run, wait_until};
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

/// `telecl bench share`, whose temporary files are below `place`.
fn share(bench: &Bench, place: &Path, arguments: &[&str], program: &[&str]) -> Command {
    let mut command = bench.vendor.command_direct(&bench.artifacts.telecl);
    command.args(["bench", "share", "--driver"]).arg(&bench.artifacts.driver).args(arguments);
    command.arg("--").args(program).env("TMPDIR", place);
    command
}

/// Everything that a bench has made goes away with it, soon.
fn assert_emptied(place: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while place.read_dir().unwrap().next().is_some() {
        assert!(Instant::now() < deadline, "the private directories go away");
        thread::sleep(Duration::from_millis(20));
    }
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
    assert_eq!(names("paths"), ["direct", "tcp", "tls", "shared memory"]);
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
    assert_emptied(place.path());
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

#[test]
fn tenants_load_a_device_and_every_bar_has_its_figure() {
    let place = TempDir::new().unwrap();
    // Other users must get there, if the tests are run by root.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["tenants", "--seconds", "1", "--only", "weights-1ms,flood-1ms,cap-1ms", "--json", "-"];
    let artifacts = Artifacts::find().unwrap_or_else(|reason| panic!("{reason}"));
    let vendor = Vendor::select(&artifacts).unwrap_or_else(|reason| panic!("{reason}"));
    let mut command = vendor.command_direct(&artifacts.telecl);
    command.arg("bench").args(arguments).arg("--driver").arg(&artifacts.driver).env("TMPDIR", place.path());
    let ended = run(command, SOON).unwrap();
    assert!(ended.success(), "{ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}\n{ended}"));
    let results = report["results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["weights-1ms", "flood-1ms", "flood-1ms-longest", "cap-1ms"], "{ended}");
    for row in results {
        assert!(row["figure"].as_f64().unwrap() > 0.0, "{ended}");
        assert!(row["met"].is_boolean() && row["error"].is_null(), "{ended}");
    }
    let expected = if rustix::process::geteuid().is_root() { "users 60001 and 60002" } else { "anonymous over TCP" };
    assert!(report["tenants"].as_str().unwrap().starts_with(expected), "{ended}");
    assert_emptied(place.path());
}

#[test]
fn copies_share_a_device_directly_and_through_telecl_and_the_last_goes_elsewhere() {
    let (bench, place, kept) = (Bench::new(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let (json, svg) = (kept.path().join("share.json"), kept.path().join("share.svg"));
    let (json_text, svg_text) = (json.to_str().unwrap(), svg.to_str().unwrap());
    let service = bench.service();
    let arguments = ["--counts", "1,2", "--rounds", "1", "--first", "1", "--also", service.address(), "--tcp"];
    let arguments = [&arguments[..], &["--expect", "served", "--json", json_text]].concat();
    // Each copy must find its directory empty, and be able to write there.
    let script = "test -z \"$(ls {dir})\" && touch {dir}/{copy} && exec \"$0\" use_once";
    let program = ["sh", "-c", script, bench.client.to_str().unwrap()];
    let ended = run(share(&bench, place.path(), &arguments, &program), SOON).unwrap();
    assert!(ended.success(), "{ended}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["paths"], serde_json::json!(["direct", "shared memory", "tcp"]));
    for (line, copies) in report["results"].as_array().unwrap().iter().zip([1, 2]) {
        assert_eq!(line["copies"], copies);
        for cell in line["cells"].as_array().unwrap() {
            assert_eq!(cell["error"], Value::Null, "{ended}");
            assert_eq!(cell["rounds"][0]["copies"].as_array().unwrap().len(), copies, "{ended}");
            assert!(cell["makespan"].as_f64().unwrap() > 0.0);
            assert_eq!(cell["speed_up"].is_f64(), cell["path"] != "direct", "{ended}");
        }
    }
    assert!(report["second"].as_str().unwrap().ends_with(&format!("at {}", service.address())), "{ended}");
    // Two warm-ups, and one copy of each batch of two through telecl.
    let elsewhere = service.log().matches("connection taken over").count();
    assert_eq!(elsewhere, 4, "{}", service.log());
    assert_emptied(place.path());

    // What was kept can be drawn again, and says the same.
    let mut again = bench.vendor.command_direct(&bench.artifacts.telecl);
    again.args(["bench", "share", "--from", json_text, "--svg", svg_text]);
    let again = run(again, SOON).unwrap();
    assert!(again.success() && again.stdout == ended.stdout, "{ended}\n{again}");
    assert!(fs::read_to_string(&svg).unwrap().contains("Speed-up"));
}

#[test]
fn a_copy_that_fails_is_named_with_its_last_words() {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    // The second copy fails, so that the warm-up passes.
    let program = ["sh", "-c", "echo alas; test {copy} = 1"];
    let arguments = ["--counts", "1,2", "--rounds", "2", "--expect", "alas"];
    let ended = run(share(&bench, place.path(), &arguments, &program), SOON).unwrap();
    assert_eq!(ended.status.and_then(|status| status.code()), Some(1), "{ended}");
    for path in ["direct", "shared memory"] {
        let line = format!("! 2 copies, {path}: copy 2 of 2 ended with exit status: 1; it said: alas");
        assert!(ended.stdout.contains(&line), "{ended}");
    }
    let arguments = ["--counts", "1", "--expect", "hooray"];
    let ended = run(share(&bench, place.path(), &arguments, &program), SOON).unwrap();
    assert!(ended.stderr.contains("copy 1 of 1 did not print \"hooray\"; it said: alas"), "{ended}");
    assert_emptied(place.path());
}

#[test]
fn a_bench_that_is_told_to_stop_leaves_no_copy_behind() {
    let (bench, place, kept) = (Bench::new(), TempDir::new().unwrap(), TempDir::new().unwrap());
    for signal in [Signal::INT, Signal::TERM] {
        let noted = kept.path().join("child");
        let _ = fs::remove_file(&noted);
        // A child of the copy, which it waits for.
        let script = format!("sleep 600 & echo $! >{0}.new; mv {0}.new {0}; wait", noted.display());
        let command = share(&bench, place.path(), &["--counts", "1"], &["sh", "-c", &script]);
        let running = Running::start(command).unwrap();
        wait_until("the copy runs", SOON, || noted.exists());
        let child: u32 = fs::read_to_string(&noted).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(running.id().try_into().unwrap()).unwrap(), signal).unwrap();
        let ended = running.end(SOON);
        assert!(!ended.success() && ended.status.is_some_and(|status| status.code().is_none()), "{ended}");
        wait_until("its child is gone", SOON, || !is_alive(child));
        assert_emptied(place.path());
    }
}
