//! Several services at once, and what a program learns about them.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use system_tests::{Artifacts, Ended, Programs, Service, Vendor, run};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);

/// Services, and a program that sees them all.
struct Nodes {
    artifacts: Artifacts,
    vendor: Vendor,
    services: Vec<Service>,
}

impl Nodes {
    fn at(addresses: &[&str]) -> Nodes {
        let artifacts = Artifacts::find().unwrap_or_else(|reason| panic!("{reason}"));
        let vendor = Vendor::select(&artifacts).unwrap_or_else(|reason| panic!("{reason}"));
        let start = |address: &&str| Service::start_at(&artifacts, &vendor, address, &[]);
        let services = addresses.iter().map(|address| start(address).unwrap_or_else(|reason| panic!("{reason}")));
        let services = services.collect();
        Nodes { artifacts, vendor, services }
    }

    fn run(&self, case: &str, variables: &[(&str, &str)]) -> Ended {
        let client = Programs::build().unwrap_or_else(|reason| panic!("{reason}")).path("fault_client");
        let addresses: Vec<&str> = self.services.iter().map(Service::address).collect();
        let mut command = self.vendor.command_with_driver(&client);
        command.arg(case).env("TELECL_SERVICES", addresses.join(",")).envs(variables.iter().copied());
        run(command, SOON).unwrap()
    }
}

#[test]
fn the_platforms_of_several_services_stand_next_to_each_other_and_all_compute() {
    let place = TempDir::new().unwrap();
    let socket = format!("unix:{}", place.path().join("service.sock").display());
    let nodes = Nodes::at(&["127.0.0.1:0", &socket, "127.0.0.1:0"]);
    assert!(nodes.artifacts.telecl.exists());
    assert_eq!(nodes.run("count_platforms", &[]).stdout, "CL_SUCCESS, 3 platforms\n");
    let ended = nodes.run("use_every_platform", &[]);
    assert_eq!(ended.stdout, "platform 0: 42\nplatform 1: 84\nplatform 2: 126\n", "{ended}");
}

#[test]
fn creates_that_wait_for_the_vendor_work_as_well() {
    let nodes = Nodes::at(&["127.0.0.1:0"]);
    let ended = nodes.run("use_every_platform", &[("TELECL_STRICT", "1")]);
    assert_eq!(ended.stdout, "platform 0: 42\n", "{ended}");
}

#[test]
fn a_device_says_where_it_is() {
    let nodes = Nodes::at(&["127.0.0.1:0"]);
    let port = nodes.services[0].address().rsplit(':').next().unwrap().to_owned();
    let ended = nodes.run("tell_node", &[]);
    assert_eq!(ended.stdout, format!("127.0.0.1 @ 127.0.0.1:{port} port {port}, same node\n"), "{ended}");
    let plain = nodes.run("tell_node", &[("TELECL_PLAIN_NAMES", "1")]);
    assert_eq!(plain.stdout, format!("127.0.0.1 plain port {port}, same node\n"), "{plain}");
}

#[test]
fn a_device_behind_a_unix_socket_says_where_it_is() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("service.sock").display().to_string();
    let nodes = Nodes::at(&[&format!("unix:{path}")]);
    let ended = nodes.run("tell_node", &[]);
    assert_eq!(ended.stdout, format!("{path} @ unix:{path} port 0, same node\n"), "{ended}");
}
