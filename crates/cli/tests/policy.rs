//! `telecl policy check`, as an operator meets it.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // this test asks no service
mod support;

use std::fs;
use std::path::PathBuf;

use support::{assert_error, output, stderr, stdout};

/// A file of its own for each test.
fn file(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("policy.toml");
    fs::write(&path, text).unwrap();
    path
}

const GOOD: &str = r#"[defaults]
weight = 2
cap = "50 %"

[[tenant]]
match = "team-*"
weight = 5
devices = ["*H200*", "number:1"]

[users]
alice = "team-red"

[[device]]
match = "*H200*"
admission_wait = "30 s"
"#;

#[test]
fn a_policy_that_is_right_is_summed_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, GOOD);
    let output = output(&["policy", "check", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = format!(
        "\
{}: 1 tenant rule, 1 device rule, 1 user

RULE           LINE  SETS
tenant team-*  5     devices = *H200*, number:1; weight = 5
defaults       1     weight = 2; cap = 50 %
device *H200*  13    admission_wait = 30 s

USER   TENANT
alice  team-red
",
        path.display()
    );
    assert_eq!(stdout(&output), expected);
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_tenant_sees_what_it_gets_and_which_line_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, GOOD);
    let output = output(&["policy", "check", path.to_str().unwrap(), "--tenant", "team-red", "--tenant", "user:bob"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.lines().map(words).collect();
    for line in [
        "tenant team-red: rule \"team-*\", line 5",
        "devices *H200*, number:1 [[tenant]] \"team-*\", line 8",
        "weight 5 [[tenant]] \"team-*\", line 7",
        "cap 50 % [defaults], line 3",
        "sessions none built in",
        "tenant user:bob: no rule matches it",
        "weight 2 [defaults], line 2",
    ] {
        assert!(lines.iter().any(|one| one == line), "{line}\n{text}");
    }
}

#[test]
fn a_policy_can_be_asked_by_programs() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, GOOD);
    let path = path.to_str().unwrap();
    let json: serde_json::Value =
        serde_json::from_slice(&output(&["policy", "check", path, "--json", "--tenant", "team-red"]).stdout).unwrap();
    assert_eq!((&json["ok"], &json["tenants"][0]["tenant"]), (&true.into(), &"team-red".into()));
    assert_eq!(json["tenants"][0]["rule"]["line"], 5);
    let values = &json["tenants"][0]["values"];
    assert_eq!((&values["weight"]["value"], &values["weight"]["line"]), (&5.into(), &7.into()));
    assert_eq!((&values["cap"]["value"], &values["cap"]["from"]), (&"50 %".into(), &"[defaults], line 3".into()));
    assert_eq!((&values["sessions"]["value"], &values["sessions"]["line"]), (&"none".into(), &serde_json::Value::Null));
    let json: serde_json::Value = serde_json::from_slice(&output(&["policy", "check", path, "--json"]).stdout).unwrap();
    assert_eq!(json["rules"]["tenant"][0]["match"][0], "team-*");
    assert_eq!(json["rules"]["users"]["alice"], "team-red");
}

#[test]
fn a_policy_that_is_wrong_is_exit_code_2_with_a_line_for_each_problem() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "[defaults]\nweight = 0\ncpa = \"10 %\"\n");
    let path = path.to_str().unwrap();
    let wrong = output(&["policy", "check", path]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(
        stderr(&wrong),
        format!(
            "error: {path}, line 2: defaults.weight: 0 is out of range; write a whole number from 1 to 1000, without quotes\n\
             error: {path}, line 3: unknown key \"defaults.cpa\" (did you mean \"cap\"?)\n"
        )
    );
    let wrong = output(&["policy", "check", path, "--json"]);
    assert_eq!(wrong.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!((&json["ok"], &json["problems"][0]["key"]), (&false.into(), &"defaults.weight".into()));
    assert_eq!(json["problems"][1]["line"], 3);
    assert_error(&output(&["policy", "check", "/nowhere/policy.toml"]), 2, "cannot read /nowhere/policy.toml");
}

#[test]
fn a_warning_is_said_and_the_policy_is_used_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "[defaults]\nkernel_overrun = \"end\"\n");
    let output = output(&["policy", "check", path.to_str().unwrap(), "--tenant", "a"]);
    assert!(output.status.success());
    assert!(stderr(&output).starts_with("warning: ") && stderr(&output).contains("line 2: defaults.kernel_overrun"));
    assert!(stdout(&output).contains("kernel_overrun"));
}
