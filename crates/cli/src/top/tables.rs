//! Devices, tenants and sessions as rows of text, for the screen and for plain tables.

use crate::human;
use crate::watch::{Device, Figures, Service, Session};

/// Rows under their header. Every row has as many cells as the header.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Which columns go first where there is little room; those not named stay.
    pub(crate) dispensable: &'static [&'static str],
}

impl Table {
    /// Leaves columns out until the rest fits into `width`, in columns of text that are two apart.
    pub(crate) fn fit(&mut self, width: usize) {
        let mut dispensable = self.dispensable.iter();
        while self.width() > width {
            let Some(name) = dispensable.next() else { return };
            self.remove(name);
        }
    }

    /// How wide each column is.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    fn width(&self) -> usize {
        self.widths().iter().map(|width| width + 2).sum::<usize>().saturating_sub(2)
    }

    fn remove(&mut self, name: &str) {
        if let Some(column) = self.header.iter().position(|header| *header == name) {
            self.header.remove(column);
            self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }

    /// Leaves out what no row has anything to say about.
    fn without_empty(mut self) -> Table {
        for name in self.header.clone() {
            let column = self.header.iter().position(|header| *header == name);
            if let Some(column) = column
                && !self.rows.is_empty()
                && self.rows.iter().all(|row| row[column].is_empty())
            {
                self.remove(name);
            }
        }
        self
    }
}

/// Names of several services are told apart by their node.
fn node(services: &[&Service], service: &Service) -> String {
    if services.len() > 1 { service.node.clone() } else { String::new() }
}

pub(crate) fn devices(services: &[&Service]) -> Table {
    let row = |service: &&Service, device: &Device| {
        let sensors = device.sensors.as_ref();
        vec![
            node(services, service),
            device.device.to_string(),
            device.name.clone(),
            bar(device.busy),
            human::percent(device.busy),
            format!("{} of {}", human::memory(device.memory_used), human::memory(device.memory)),
            human::memory(device.memory_promised),
            device.sessions.to_string(),
            sensors.and_then(|sensors| sensors.celsius).map(|celsius| format!("{celsius} °C")).unwrap_or_default(),
            sensors.and_then(|sensors| sensors.watts).map(|watts| format!("{watts:.0} W")).unwrap_or_default(),
            sensors.and_then(|sensors| sensors.core_mhz).map(|clock| format!("{clock} MHz")).unwrap_or_default(),
        ]
    };
    Table {
        header: vec![
            "NODE", "DEVICE", "NAME", "LOAD", "BUSY", "MEMORY", "PROMISED", "SESSIONS", "TEMP", "POWER", "CLOCK",
        ],
        rows: services
            .iter()
            .flat_map(|service| service.devices.iter().map(move |device| row(service, device)))
            .collect(),
        dispensable: &["LOAD", "CLOCK", "PROMISED", "POWER", "TEMP", "NAME", "NODE", "SESSIONS"],
    }
    .without_empty()
}

/// Who has most of the devices' time comes first.
pub(crate) fn tenants(services: &[&Service]) -> Table {
    let mut all: Vec<_> =
        services.iter().flat_map(|service| service.tenants.iter().map(move |tenant| (*service, tenant))).collect();
    all.sort_by(|(_, a), (_, b)| busiest(&a.figures, &b.figures).then_with(|| a.tenant.cmp(&b.tenant)));
    let row = |(service, tenant): &(&Service, &crate::watch::Tenant)| {
        let time: f64 = service.tenants.iter().filter_map(|tenant| tenant.figures.busy).sum();
        let share = tenant.figures.busy.map(|busy| if time > 0.0 { busy / time } else { 0.0 });
        vec![
            node(services, service),
            tenant.tenant.clone(),
            human::percent(share),
            human::percent(tenant.figures.waiting),
            human::memory(tenant.figures.memory()),
            tenant.sessions.to_string(),
            rate(&tenant.figures),
            tenant.figures.commands.to_string(),
            tenant.figures.failures.to_string(),
            tenant.refused.to_string(),
        ]
    };
    Table {
        header: vec![
            "NODE", "TENANT", "SHARE", "WAITING", "MEMORY", "SESSIONS", "TRANSFER", "COMMANDS", "ERRORS", "REFUSED",
        ],
        rows: all.iter().map(row).collect(),
        dispensable: &["REFUSED", "ERRORS", "COMMANDS", "NODE", "TRANSFER", "WAITING", "SESSIONS", "MEMORY"],
    }
    .without_empty()
}

/// In the order of their numbers.
pub(crate) fn sessions(services: &[&Service]) -> Table {
    let all: Vec<_> =
        services.iter().flat_map(|service| service.sessions.iter().map(move |session| (*service, session))).collect();
    sessions_in_order(services, &all)
}

/// In the order they are given.
pub(crate) fn sessions_in_order(services: &[&Service], sessions: &[(&Service, &Session)]) -> Table {
    let row = |(service, session): &(&Service, &Session)| {
        let names: Vec<&str> = session.figures.devices.iter().map(|one| service.device_name(one.device)).collect();
        vec![
            node(services, service),
            session.session.to_string(),
            session.tenant.clone(),
            session.user.clone().or_else(|| session.pod.clone()).unwrap_or_default(),
            session.program.clone(),
            session.job.clone().unwrap_or_default(),
            session.pid.to_string(),
            if session.working { names.join(", ") } else { "none yet".to_owned() },
            human::percent(session.figures.busy),
            human::percent(session.figures.waiting),
            human::memory(session.figures.memory()),
            rate(&session.figures),
            human::memory(session.figures.bytes_in),
            human::memory(session.figures.bytes_out),
            session.figures.commands.to_string(),
            human::age(session.age_seconds),
        ]
    };
    Table {
        header: vec![
            "NODE", "ID", "TENANT", "USER", "PROGRAM", "JOB", "PID", "DEVICE", "BUSY", "WAITING", "MEMORY", "TRANSFER",
            "IN", "OUT", "COMMANDS", "AGE",
        ],
        rows: sessions.iter().map(row).collect(),
        dispensable: &[
            "USER", "JOB", "IN", "OUT", "COMMANDS", "DEVICE", "WAITING", "NODE", "PID", "TRANSFER", "AGE", "MEMORY",
            "TENANT",
        ],
    }
    .without_empty()
}

/// Most device time first.
pub(crate) fn busiest(a: &Figures, b: &Figures) -> std::cmp::Ordering {
    b.busy.unwrap_or_default().total_cmp(&a.busy.unwrap_or_default())
}

fn rate(figures: &Figures) -> String {
    figures.bytes_per_second.map(|bytes| format!("{}/s", human::memory(bytes as u64))).unwrap_or_default()
}

/// `████░░░░░░`.
fn bar(ratio: Option<f64>) -> String {
    const LENGTH: usize = 10;
    let Some(ratio) = ratio else { return String::new() };
    let full = ((ratio * LENGTH as f64).round() as usize).min(LENGTH);
    format!("{}{}", "█".repeat(full), "░".repeat(LENGTH - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::example;

    #[test]
    fn columns_go_one_by_one_where_there_is_little_room() {
        let mut service = example(14, 3, 1);
        service.since(&example(10, 1, 1));
        let services = [&service];
        let mut last = usize::MAX;
        for width in (10..200).rev() {
            let mut table = sessions(&services);
            table.fit(width);
            assert!(table.header.contains(&"ID") && table.header.contains(&"PROGRAM"));
            assert!(table.header.len() <= last);
            assert!(table.width() <= width || table.header == ["ID", "PROGRAM", "BUSY"], "{width}: {:?}", table.header);
            assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
            last = table.header.len();
        }
        assert!(last < 6);
    }

    #[test]
    fn rates_are_shown_when_they_are_known() {
        let mut service = example(14, 3, 1);
        assert!(!devices(&[&service]).header.contains(&"BUSY"));
        service.since(&example(10, 1, 1));
        let table = devices(&[&service]);
        assert_eq!(table.header[..4], ["DEVICE", "NAME", "LOAD", "BUSY"]);
        assert_eq!(table.rows[0][2..4], ["██████████", "100 %"]);
        assert!(table.rows[0].contains(&"35 GiB of 141 GiB".to_owned()) && table.rows[0].contains(&"61 °C".to_owned()));
        let table = tenants(&[&service]);
        assert_eq!(table.rows[0][..2], ["team-blue", "50 %"]);
        assert_eq!(bar(Some(7.0)).chars().filter(|c| *c == '█').count(), 10);
    }

    #[test]
    fn several_services_are_told_apart() {
        let service = example(14, 3, 1);
        let table = sessions(&[&service, &service]);
        assert_eq!((table.header[0], table.rows.len()), ("NODE", 4));
    }
}
