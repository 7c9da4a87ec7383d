//! `telecl run` and `telecl serve`: processes, their ends, and what they leave behind.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::{Manner, assert_error, output, pretend, stderr, stdout, telecl};

/// A file in the place of a driver. `telecl run` only hands its path on.
fn driver(directory: &Path) -> String {
    let path = directory.join("libtelecl.so");
    fs::write(&path, "").unwrap();
    path.canonicalize().unwrap().display().to_string()
}

/// Runs a shell command under `telecl run`.
fn run(script: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    output(&["run", "--on", "node7,unix:/a.sock", "--driver", &driver(directory.path()), "--", "sh", "-c", script])
}

/// Waits for what the keeper does after the program has ended.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_program_finds_the_driver_and_nothing_is_left_behind() {
    let output = run(
        "echo $TELECL_SERVICES; echo $OCL_ICD_VENDORS; ls $OCL_ICD_VENDORS; cat $OCL_ICD_VENDORS/*.icd; echo $OCL_ICD_FILENAMES",
    );
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "node7:7701,unix:/a.sock");
    assert_eq!(lines[2], "telecl.icd");
    assert!(lines[3].ends_with("/libtelecl.so"), "{text}");
    assert_eq!(lines[4], lines[3]);
    let directory = PathBuf::from(lines[1]).parent().unwrap().to_owned();
    eventually("the private directory goes away", || !directory.exists());
}

#[test]
fn the_program_s_end_is_the_command_s_end() {
    assert_eq!(run("exit 0").status.code(), Some(0));
    assert_eq!(run("exit 42").status.code(), Some(42));
    assert_eq!(run("kill -TERM $$").status.signal(), Some(15));
    let shell = format!(
        "{} run --on x --driver {} -- sh -c 'kill -KILL $$'; echo $?",
        env!("CARGO_BIN_EXE_telecl"),
        env!("CARGO_BIN_EXE_telecl")
    );
    let output = Command::new("sh").args(["-c", &shell]).output().unwrap();
    assert_eq!(stdout(&output), "137\n");
}

#[test]
fn the_program_has_no_child_that_it_did_not_start() {
    // `wait` for all children, as some programs do at their end, must not wait for the keeper.
    let output = run("read children < /proc/$$/task/$$/children; echo \"children: $children\"");
    assert_eq!(stdout(&output), "children: \n");
}

#[test]
fn arguments_and_input_pass_through_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let driver = driver(directory.path());
    let output = output(&["run", "--on", "x", "--driver", &driver, "printf", "%s|", "--on", "-x", "a b", "--", ""]);
    assert_eq!(stdout(&output), "--on|-x|a b|--||");
}

#[test]
fn a_program_that_cannot_be_run_is_127_or_126() {
    let directory = tempfile::tempdir().unwrap();
    let driver = driver(directory.path());
    for (program, code, part) in [
        ("no-such-program", 127, "program no-such-program not found"),
        ("/nowhere/at/all", 127, "program /nowhere/at/all not found"),
        (&driver, 126, "cannot run"),
        ("/tmp", 126, "cannot run /tmp"),
    ] {
        assert_error(&output(&["run", "--on", "x", "--driver", &driver, "--", program]), code, part);
    }
}

#[test]
fn a_missing_driver_is_exit_code_2() {
    assert_error(&output(&["run", "--on", "x", "--driver", "/nowhere.so", "--", "true"]), 2, "Give --driver the path");
    assert_error(&output(&["run", "--on", "x", "--driver", "/tmp", "--", "true"]), 2, "/tmp is not a file");
    // The executable in a directory of its own, with no driver beside it.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = directory.path().join("telecl");
    fs::hard_link(env!("CARGO_BIN_EXE_telecl"), &alone).unwrap();
    let output =
        Command::new(&alone).args(["run", "--on", "x", "true"]).env("TELECL_CONFIG", "/dev/null").output().unwrap();
    if !Path::new("/usr/lib/telecl/libtelecl.so").exists() && !Path::new("/usr/local/lib/telecl/libtelecl.so").exists()
    {
        assert_error(&output, 2, "the driver libtelecl.so is in none of its places");
    }
}

#[test]
fn without_a_service_the_machine_s_own_devices_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let script = "echo $TELECL_SERVICES; \"$0\" devices --json";
    let output =
        output(&["run", "--driver", &driver(directory.path()), "--", "sh", "-c", script, env!("CARGO_BIN_EXE_telecl")]);
    if output.status.code() == Some(3) {
        // A machine without OpenCL.
        return assert_error(&output, 3, "this machine has no OpenCL device of its own");
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let (address, json) = text.split_once('\n').unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["devices"][0]["address"], address);
    assert_eq!(json["devices"][0]["same_node"], true);
    let socket = PathBuf::from(address.strip_prefix("unix:").unwrap());
    eventually("the private service and its directory go away", || !socket.parent().unwrap().exists());
}

#[test]
fn serve_says_where_it_listens_and_ends_on_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let unix = format!("unix:{}", socket.display());
    let mut child = telecl(&["serve", "--listen", "127.0.0.1:0", "--listen", &unix, "--log-format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let tcp = first.strip_prefix("listening on ").unwrap();
    assert!(tcp.starts_with("127.0.0.1:") && !tcp.ends_with(":0"), "{first}");
    assert_eq!(lines.next().unwrap().unwrap(), format!("listening on {unix}"));
    for address in [tcp, &unix] {
        let output = output(&["devices", "--json", "--on", address]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["unreachable"], serde_json::json!([]), "{json}");
    }
    let taken = output(&["serve", "--listen", tcp]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(stderr(&taken).lines().last().unwrap().starts_with("error: cannot listen at"), "{}", stderr(&taken));

    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!socket.exists());
    for line in stderr(&output).lines().filter(|line| line.starts_with('{')) {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_pretended_service_is_enough_for_run_to_start() {
    // The program decides what an unreachable or odd service means to it; `run` does not ask first.
    let address = pretend(Manner::Silent);
    let directory = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let output = output(&["run", "--on", &address, "--driver", &driver(directory.path()), "--", "true"]);
    assert!(output.status.success() && started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_service_that_does_not_answer_is_named_and_the_program_runs_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let done = output(&["run", "--on", &gone, "--driver", &driver(directory.path()), "--", "sh", "-c", "exit 7"]);
    assert_eq!(done.status.code(), Some(7));
    let warning = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(warning.starts_with(&format!("warning: {gone} cannot be used: ")), "{warning}");
}
