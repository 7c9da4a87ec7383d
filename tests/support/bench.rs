//! What most tests need: the artifacts, a driver to serve, and a program.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::{Artifacts, Ended, Link, Programs, Running, Service, Vendor, run};

/// How long anything may take that should be quick: generous, because two processors serve all tests at once.
pub const SOON: Duration = Duration::from_secs(15);

/// Everything here panics where something is missing: it is part of a test.
#[derive(Debug)]
pub struct Bench {
    pub artifacts: Artifacts,
    pub vendor: Vendor,
    /// `c/fault_client.c`.
    pub client: PathBuf,
}

impl Bench {
    #[expect(clippy::new_without_default, reason = "it builds programs")]
    pub fn new() -> Bench {
        let artifacts = Artifacts::find().unwrap_or_else(|reason| panic!("{reason}"));
        let vendor = Vendor::select(&artifacts).unwrap_or_else(|reason| panic!("{reason}"));
        let client = Programs::build().unwrap_or_else(|reason| panic!("{reason}")).path("fault_client");
        Bench { artifacts, vendor, client }
    }

    pub fn service(&self) -> Service {
        self.service_at("127.0.0.1:0", &[])
    }

    /// A service with these variables set.
    pub fn service_at(&self, address: &str, variables: &[(&str, &str)]) -> Service {
        Service::start_at(&self.artifacts, &self.vendor, address, variables).unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// The client, about to run a case over this link.
    pub fn command(&self, service: &Service, link: Link, case: &str) -> Command {
        let mut command = self.vendor.command_over(link, &self.client, service);
        command.arg(case);
        command
    }

    /// The client, which has come so far as to print this line, and has a worker over this link.
    pub fn client(&self, service: &Service, link: Link, case: &str, line: &str) -> Running {
        let mut client = Running::start(self.command(service, link, case)).unwrap_or_else(|error| panic!("{error}"));
        client.expect_line(line, SOON);
        assert_eq!(service.check_link(client.id(), link), Ok(1), "one worker, {link}");
        client
    }

    /// A program that only counts platforms, with these variables set.
    pub fn count_platforms(&self, variables: &[(&str, &str)]) -> Ended {
        let mut command = self.vendor.command_with_driver(&self.client);
        command.arg("count_platforms").envs(variables.iter().copied());
        run(command, SOON).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The service computes for the next client, over each link.
    pub fn assert_serves(&self, service: &mut Service) {
        self.assert_serves_within(service, SOON);
    }

    /// The same beside others, who have the processors too.
    pub fn assert_serves_within(&self, service: &mut Service, limit: Duration) {
        for link in Link::ALL {
            assert!(service.ended().is_none(), "the service died\n{}", service.log());
            let ended = run(self.command(service, link, "use_once"), limit).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(ended.stdout, "served\n", "the next client was not served: {ended}\n{}", service.log());
            assert!(ended.success(), "{ended}");
            assert_eq!(service.check_link(ended.id, link), Ok(1));
        }
    }
}
