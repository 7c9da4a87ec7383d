//! Help, versions, errors and exit codes: what a person meets first.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;

use support::{Manner, assert_error, output, pretend, stderr, stdout, telecl};

#[test]
fn help_teaches_every_command_with_examples() {
    let top = stdout(&output(&["--help"]));
    for part in [
        "serve",
        "devices",
        "run",
        "drain",
        "doctor",
        "bench",
        "policy",
        "pki",
        "token",
        "secret",
        "Examples:",
        "Exit codes:",
        "127",
    ] {
        assert!(top.contains(part), "{part}\n{top}");
    }
    for hidden in ["worker", "keep", "probe", "bench-child"] {
        assert!(!top.contains(&format!("\n  {hidden} ")), "{hidden}\n{top}");
    }
    for command in ["serve", "devices", "run", "drain", "doctor", "bench", "policy", "pki", "token", "secret"] {
        let help = output(&[command, "--help"]);
        assert!(help.status.success());
        assert!(stdout(&help).contains("Examples:"), "{command}");
    }
}

#[test]
fn the_version_is_the_workspace_s() {
    assert_eq!(stdout(&output(&["--version"])), format!("telecl {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_exit_code_2_and_explained() {
    for (arguments, part) in [
        (&["dance"][..], "unrecognized subcommand"),
        (&["devices", "--on", "node7:port"], "has a port that is not a number"),
        (&["devices", "--timeout", "2"], "is not a duration"),
        (&["serve", "--listen", "::1"], "needs brackets"),
        (&["serve", "--log-format", "xml"], "text, json"),
        (&["run"], "PROGRAM"),
        (&["drain", "--grace", "5"], "is not a duration"),
        (&["drain", "--undo", "--keep"], "cannot be used with"),
        (&["drain", "--on", "a:1,b:2"], "Name one with --on"),
        (&["bench", "--only", "read-4,dance"], "no test is named dance. There are launch-stream, "),
        (&["bench", "--rounds", "0"], "0 is not in 1..=1000"),
        (&["policy", "check", "x.toml", "--tenant", "team red"], "not ' '"),
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.starts_with("error: ") && text.contains(part), "{text}");
    }
}

#[test]
fn a_wrong_configuration_is_exit_code_2_and_names_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("telecl.toml");
    fs::write(&file, "strict = true\nservces = []\n").unwrap();
    for arguments in [&["devices"][..], &["run", "--", "true"], &["serve"]] {
        let output = telecl(arguments).env("TELECL_CONFIG", &file).output().unwrap();
        assert_error(&output, 2, "line 2: unknown key \"servces\" (did you mean \"services\"?)");
        let output = telecl(arguments).env("TELECL_STRICT", "maybe").output().unwrap();
        assert_error(&output, 2, "TELECL_STRICT: \"maybe\" is neither");
    }
    assert_error(&output(&["serve", "--config", "/nowhere"]), 2, "--config names /nowhere");
}

#[test]
fn devices_without_a_service_says_how_to_name_one() {
    assert_error(&output(&["devices"]), 2, "Name one: telecl devices --on HOST:PORT");
}

#[test]
fn devices_are_listed_with_their_distance() {
    let address = pretend(Manner::Offers);
    let output = output(&["devices", "--on", &address]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let row = text.lines().nth(1).unwrap();
    for part in ["far-away", &address, "Pretence", "Pretended?[31m Device", "GPU", "8 GiB", "132", "3 of 16", "no"] {
        assert!(row.contains(part), "{part}\n{text}");
    }
    assert!(row.contains("µs") || row.contains("ms"), "{text}");
    assert!(!text.contains('\x1b'), "what a service sends does not reach the terminal as it is");
}

#[test]
fn devices_can_be_json() {
    let (good, bad) = (pretend(Manner::Offers), pretend(Manner::Refuses));
    let output = output(&["devices", "--json", "--on", &format!("{good},{bad}")]);
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &json["devices"][0];
    assert_eq!(device["device"], "Pretended?[31m Device");
    assert_eq!(device["memory_bytes"], 8u64 << 30);
    assert_eq!((&device["same_node"], &device["type"]), (&false.into(), &"GPU".into()));
    assert!(device["round_trip_ns"].as_u64().unwrap() > 0);
    assert_eq!(json["unreachable"][0]["address"], bad);
}

#[test]
fn services_that_cannot_be_used_are_listed_with_what_to_do() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (address, parts) in [
        (gone, &["Connection refused", "telecl serve --listen"][..]),
        (pretend(Manner::Refuses), &["refused: too old", "protocol 999"]),
        (pretend(Manner::Babbles), &["cannot be used", "another program"]),
        (pretend(Manner::Silent), &["no answer within 300ms", "firewall"]),
        (pretend(Manner::Empty), &["offers no device", "clinfo"]),
        ("unix:/nowhere.sock".to_owned(), &["No such file", "telecl serve --listen unix:/nowhere.sock"]),
        ("no-such-host.invalid".to_owned(), &["cannot be", "host"]),
    ] {
        let output = output(&["devices", "--timeout", "300ms", "--on", &address]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(3), "{address}: {text}{}", stderr(&output));
        assert!(text.starts_with("No device can be reached.\n\n"), "{text}");
        for part in parts {
            assert!(text.contains(part) || address.ends_with(".invalid"), "{address}: {part}\n{text}");
        }
    }
}

#[test]
fn one_silent_service_does_not_hide_the_others() {
    let (good, silent) = (pretend(Manner::Offers), pretend(Manner::Silent));
    let output = output(&["devices", "--timeout", "300ms", "--on", &format!("{silent},{good}")]);
    assert!(output.status.success());
    let text = stdout(&output);
    assert!(text.contains("Pretence") && text.contains(&format!("{silent} cannot be used")), "{text}");
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let address = pretend(Manner::Offers);
    let mut child = telecl(&["devices", "--on", &address]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn doctor_reports_every_part_and_what_to_do() {
    let silent = pretend(Manner::Refuses);
    let output = output(&["doctor", "--on", &silent, "--driver", "/nowhere/libtelecl.so"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    for part in ["loader", "ICD file", "✗ driver", "configuration", "✗ service", "protocol 999", "problems found"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn doctor_can_be_json_and_says_when_the_configuration_is_wrong() {
    let output = telecl(&["doctor", "--json"]).env("TELECL_SERVICES", "node7:port").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["ok"], false);
    let checks = json["checks"].as_array().unwrap();
    let wrong = checks.iter().find(|check| check["check"] == "configuration").unwrap();
    assert_eq!(wrong["state"], "failed");
    assert!(wrong["detail"].as_str().unwrap().contains("TELECL_SERVICES: address \"node7:port\""));
}
