//! Who gets what, and where it says so.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use telecl_policy::{DeviceFacts, Memory, Overrun, Plain, Policy, Priority, Tenant};

fn policy(text: &str) -> Policy {
    Policy::parse(Path::new("policy.toml"), text).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

const H200: DeviceFacts<'_> = DeviceFacts { number: 0, name: "NVIDIA H200", platform: "NVIDIA CUDA", uuid: None };
const CPU: DeviceFacts<'_> =
    DeviceFacts { number: 1, name: "cpu-haswell", platform: "Portable Computing Language", uuid: None };

#[test]
fn an_empty_policy_limits_nobody() {
    let grant = policy("").for_tenant(&tenant("anybody"));
    assert_eq!(grant.rule, None);
    assert!(grant.devices.value.allow(&H200) && grant.devices.value.allow(&CPU));
    assert_eq!((grant.device_memory.value, grant.session_memory.value, grant.cap.value), (None, None, None));
    assert_eq!((grant.weight.value.get(), grant.priority.value), (1, Priority::Normal));
    assert_eq!((grant.sessions.value, grant.commands.value), (None, None));
    assert_eq!((grant.longest_kernel.value, grant.kernel_overrun.value), (None, Overrun::Report));
    assert!(!grant.oversubscribe.value);
    assert!(grant.rows().iter().all(|row| row.origin.to_string() == "built in" && row.origin.line().is_none()));
    let room = policy("").for_device(&H200);
    assert_eq!((room.sessions_per_device.value, room.admission_wait.value), (None, Duration::ZERO));
}

#[test]
fn the_first_rule_that_matches_counts_and_no_other() {
    let policy = policy(
        r#"
[defaults]
weight = 2
cap = "50 %"

[[tenant]]
match = ["team-red", "ci-?"]
weight = 10

[[tenant]]
match = "team-*"
weight = 20
priority = "high"
"#,
    );
    let weight = |name| policy.for_tenant(&tenant(name)).weight;
    assert_eq!(weight("team-red").value.get(), 10);
    assert_eq!(weight("team-red").origin.to_string(), "[[tenant]] \"team-red\", line 8");
    assert_eq!(weight("ci-7").origin.to_string(), "[[tenant]] \"ci-?\", line 8");
    assert_eq!(weight("team-blue").origin.to_string(), "[[tenant]] \"team-*\", line 12");
    assert_eq!(weight("ci-77").origin.to_string(), "[defaults], line 3");
    let red = policy.for_tenant(&tenant("team-red"));
    assert_eq!(red.rule, Some(("team-red".to_owned(), 6)));
    // What its rule does not say comes from the defaults, not from a later rule.
    assert_eq!(red.cap.origin.to_string(), "[defaults], line 4");
    assert_eq!((red.priority.value, red.priority.origin.to_string()), (Priority::Normal, "built in".to_owned()));
}

#[test]
fn none_takes_away_what_the_defaults_say() {
    let policy = policy(
        "[defaults]\ncap = \"20 %\"\nsessions = 4\ndevice_memory = \"50 %\"\n\n[[tenant]]\nmatch = \"ops\"\n\
         cap = \"none\"\nsessions = \"none\"\ndevice_memory = \"4 GiB\"\n",
    );
    let ops = policy.for_tenant(&tenant("ops"));
    assert_eq!((ops.cap.value, ops.sessions.value), (None, None));
    assert_eq!(ops.device_memory.value, Some(Memory::Bytes(4 << 30)));
    let other = policy.for_tenant(&tenant("other"));
    assert_eq!(other.cap.value.unwrap().ten_thousandths(), 2_000);
    assert_eq!(other.sessions.value, NonZeroU32::new(4));
    assert_eq!(other.device_memory.value.unwrap().on_device(141 << 30), 141 << 29);
    assert_eq!(ops.device_memory.value.unwrap().on_device(1 << 30), 1 << 30, "never more than the device has");
}

#[test]
fn a_tenant_without_devices_is_shut_out() {
    let policy =
        policy("[[tenant]]\nmatch = \"guest-*\"\ndevices = []\n\n[[tenant]]\nmatch = \"*\"\ndevices = [\"*h200*\"]\n");
    let allowed = |name, device| policy.for_tenant(&tenant(name)).devices.value.allow(device);
    assert!(!allowed("guest-1", &H200) && !allowed("guest-1", &CPU));
    assert!(allowed("team", &H200) && !allowed("team", &CPU));
}

#[test]
fn a_device_takes_what_its_first_rule_says_or_else_the_service() {
    let policy = policy(
        "[service]\nsessions_per_device = 32\nadmission_wait = \"10 s\"\n\n[[device]]\nmatch = \"*H200*\"\n\
         admission_wait = \"0 s\"\n",
    );
    let gpu = policy.for_device(&H200);
    assert_eq!((gpu.sessions_per_device.value, gpu.admission_wait.value), (NonZeroU32::new(32), Duration::ZERO));
    assert_eq!(gpu.sessions_per_device.origin.to_string(), "[service], line 2");
    assert_eq!(gpu.admission_wait.origin.to_string(), "[[device]] \"*H200*\", line 7");
    assert_eq!(policy.for_device(&CPU).admission_wait.value, Duration::from_secs(10));
    assert_eq!(policy.for_devices(), policy.for_device(&CPU));
}

#[test]
fn users_become_tenants_by_number_by_name_or_by_rule() {
    let policy = policy("[users]\n1000 = \"team-red\"\nalice = \"team-blue\"\nroot = \"ops\"\n");
    for (uid, name, expected) in [
        (1000, Some("alice"), "team-red"),
        (1001, Some("alice"), "team-blue"),
        (0, Some("root"), "ops"),
        (1002, Some("bob"), "user:bob"),
        (1003, None, "uid:1003"),
    ] {
        assert_eq!(policy.tenant_of_user(uid, name).as_str(), expected);
    }
}

/// The example of the documentation, between its fences.
fn example() -> String {
    let page = include_str!("../../../docs/policy.md");
    let start = page.find("```toml\n# /etc/telecl/policy.toml").unwrap() + "```toml\n".len();
    page[start..].split("```").next().unwrap().to_owned()
}

#[test]
fn the_example_of_the_documentation_is_right_and_does_what_it_says() {
    let policy = policy(&example());
    assert_eq!(policy.warnings(), []);
    let red = policy.for_tenant(&policy.tenant_of_user(1001, Some("alice")));
    assert_eq!((red.tenant.as_str(), red.weight.value.get()), ("team-red", 3));
    let guest = policy.for_tenant(&tenant("guest-17"));
    assert_eq!(guest.cap.value.unwrap().to_string(), "10 %");
    assert_eq!(guest.priority.value, Priority::Low);
    assert_eq!(policy.for_tenant(&tenant("ops")).device_memory.value, None);
    assert_eq!(policy.for_device(&H200).sessions_per_device.value, NonZeroU32::new(16));
}

#[test]
fn the_example_and_the_page_have_every_key() {
    let (page, example) = (include_str!("../../../docs/policy.md"), example());
    let policy = policy("");
    let grant = policy.for_tenant(&tenant("a"));
    let room = policy.for_devices();
    for row in grant.rows().iter().chain(room.rows()) {
        assert!(example.contains(&format!("{} = ", row.key)), "the example lacks {}", row.key);
        let line = page.lines().find(|line| line.starts_with(&format!("| `{}` |", row.key)));
        let line = line.unwrap_or_else(|| panic!("the page has no row for {}", row.key));
        let built_in = match &row.value {
            Plain::Text(text) => format!("`\"{text}\"`"),
            Plain::List(items) => format!("`{items:?}`"),
            other => format!("`{other}`"),
        };
        assert!(line.contains(&format!("| {built_in} |")), "{line} lacks {built_in}");
    }
}
