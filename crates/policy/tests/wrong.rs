//! Policies that are wrong, each with everything that is said about it.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use proptest::prelude::*;
use telecl_policy::{Policy, PolicyError};

const FILE: &str = "/etc/telecl/policy.toml";

/// What is said about a text, line by line.
fn said(text: &str) -> Vec<String> {
    let problems = match Policy::parse(Path::new(FILE), text) {
        Ok(policy) => policy.warnings().to_vec(),
        Err(problems) => problems,
    };
    problems.iter().map(|problem| format!("{}: {problem}", problem.severity.word())).collect()
}

/// The cases of `wrong.txt`: a name after `###`, the file, and after `=>` what is said about it.
fn cases() -> Vec<(&'static str, String, Vec<String>)> {
    let mut cases = Vec::new();
    for part in include_str!("wrong.txt").split("### ").filter(|part| !part.is_empty()) {
        let (name, rest) = part.split_once('\n').unwrap();
        let (said, text): (Vec<&str>, Vec<&str>) = rest.lines().partition(|line| line.starts_with("=> "));
        let said = said.iter().map(|line| line.trim_start_matches("=> ").to_owned()).collect();
        cases.push((name, text.join("\n"), said));
    }
    cases
}

#[test]
fn every_mistake_has_its_message() {
    let cases = cases();
    assert!(cases.len() >= 55, "{}", cases.len());
    for (name, text, expected) in cases {
        assert_eq!(said(&text), expected, "{name}:\n{text}");
    }
}

#[test]
fn every_message_names_the_place_and_is_one_line() {
    for (name, _, said) in cases() {
        assert!(!said.is_empty(), "{name}");
        for line in said {
            let rest = line.strip_prefix("error: ").or(line.strip_prefix("warning: ")).unwrap();
            assert!(rest.starts_with(&format!("{FILE}, line ")), "{line}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_errors_of_their_own() {
    let place = std::env::temp_dir().join(format!("telecl-policy-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let file = place.join("policy.toml");
    std::fs::write(&file, b"[defaults]\nweight = \xff\n").unwrap();
    let missing = place.join("nothing.toml");
    for (path, part) in [
        (missing.as_path(), "cannot read ".to_owned()),
        (place.as_path(), format!("{} is a directory, not a configuration file", place.display())),
        (file.as_path(), format!("{}, line 2: not valid TOML: the text is not UTF-8", file.display())),
    ] {
        let error = Policy::load(path).unwrap_err();
        assert!(matches!(error, PolicyError::File(_)));
        assert!(error.to_string().contains(&part), "{error}");
    }
    std::fs::remove_dir_all(&place).unwrap();
}

/// Text that looks like a policy, and is cut and joined at random.
fn nearly_a_policy() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("[defaults]\n"),
        Just("[[tenant]]\n"),
        Just("[[device]]\n"),
        Just("[service]\n"),
        Just("[users]\n"),
        Just("match = "),
        Just("weight = "),
        Just("cap = "),
        Just("device_memory = "),
        Just("session_memory = "),
        Just("longest_idle = "),
        Just("devices = "),
        Just("alice = "),
        Just("1000 = "),
        Just("\"team-*\"\n"),
        Just("\"*\"\n"),
        Just("\"20 %\"\n"),
        Just("\"4 GiB\"\n"),
        Just("\"none\"\n"),
        Just("[\"number:1\", \"*H200*\"]\n"),
        Just("7\n"),
        Just("99999999999999999999999\n"),
        Just("-0x7\n"),
        Just("true\n"),
        Just("{ a = 1 }\n"),
        Just("ä\u{0}\n"),
        Just("\"two\\nlines\\u001b\"\n"),
        Just("[\"two\\nlines\"]\n"),
        Just("\"two\\nlines\" = "),
    ];
    proptest::collection::vec(word, 0..20).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![nearly_a_policy(), ".{0,200}"]) {
        for line in said(&text) {
            prop_assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}
