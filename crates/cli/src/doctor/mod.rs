//! `telecl doctor`: checks everything between a program and its devices, from near to far.

mod chain;
mod local;
mod report;

use telecl_config::{Address, DriverConfig};

use self::report::Report;
use crate::DoctorArgs;
use crate::exit::{Exit, Outcome};
use crate::launch;

pub(crate) fn doctor(args: &DoctorArgs) -> Outcome {
    let mut report = Report::new(args.json);
    local::loader(&mut report);
    let driver = launch::find_driver(args.driver.as_deref());
    local::icd_file(&mut report, driver.as_ref().ok());
    let driver = local::driver(&mut report, driver);
    local::confinement(&mut report);
    let services = services(&mut report, args);
    match (services, driver) {
        (Some(services), Some(driver)) => chain::check(&mut report, &driver, services),
        (Some(services), None) => {
            chain::services(&mut report, &services);
            report.skipped("computation", "not tried: there is no driver to use");
        }
        (None, _) => report.skipped("services", "not tried: the configuration is wrong"),
    }
    Ok(if report.finish() { Exit::Ok } else { Exit::Failed })
}

/// The services to check; `None` if the configuration is wrong.
fn services(report: &mut Report, args: &DoctorArgs) -> Option<Vec<Address>> {
    let config = local::configuration(report)?;
    let DriverConfig { services, .. } = config;
    Some(if args.on.services.is_empty() { services } else { args.on.services.clone() })
}
