//! Tables for people.

use std::collections::BTreeMap;

use telecl_human::{memory, percent};

use crate::services::{Answer, Pod};

pub(crate) fn devices(answers: &[Answer]) -> String {
    let mut rows = Vec::new();
    for answer in answers {
        for device in &answer.service.devices {
            let memory = format!("{} of {}", memory(device.memory_used), memory(device.memory));
            let state = if answer.service.draining { "draining" } else { "ready" };
            rows.push(vec![
                answer.node.clone(),
                device.device.to_string(),
                device.name.clone(),
                state.to_owned(),
                percent(device.busy),
                memory,
                device.sessions.to_string(),
            ]);
        }
    }
    table(
        &["NODE", "DEVICE", "NAME", "STATE", "BUSY", "MEMORY", "SESSIONS"],
        &rows,
        "No device: no service runs, or none has one.",
    )
}

pub(crate) fn tenants(answers: &[Answer]) -> String {
    let mut sums: BTreeMap<&str, (f64, f64, u64, u32, u64)> = BTreeMap::new();
    for tenant in answers.iter().flat_map(|answer| &answer.service.tenants) {
        let sum = sums.entry(&tenant.tenant).or_default();
        sum.0 += tenant.busy.unwrap_or_default();
        sum.1 += tenant.waiting.unwrap_or_default();
        sum.2 += tenant.devices.iter().map(|one| one.memory).sum::<u64>();
        sum.3 += tenant.sessions;
        sum.4 += tenant.refused;
    }
    let row = |(tenant, (busy, waiting, bytes, sessions, refused)): (&&str, &(f64, f64, u64, u32, u64))| {
        vec![
            (*tenant).to_owned(),
            percent(Some(*busy)),
            percent(Some(*waiting)),
            memory(*bytes),
            sessions.to_string(),
            refused.to_string(),
        ]
    };
    let rows: Vec<_> = sums.iter().map(row).collect();
    table(&["TENANT", "BUSY", "WAITING", "MEMORY", "SESSIONS", "REFUSED"], &rows, "No tenant has used a device yet.")
}

pub(crate) fn pods(pods: &[Pod]) -> String {
    let row = |pod: &Pod| {
        vec![
            pod.namespace.clone(),
            pod.name.clone(),
            pod.phase.clone(),
            pod.profile.clone(),
            percent(Some(pod.busy)),
            percent(Some(pod.waiting)),
            memory(pod.memory),
            pod.sessions.to_string(),
            pod.services.join(","),
        ]
    };
    let rows: Vec<_> = pods.iter().map(row).collect();
    let header = ["NAMESPACE", "POD", "PHASE", "PROFILE", "BUSY", "WAITING", "MEMORY", "SESSIONS", "SERVICES"];
    table(&header, &rows, "No such pod. Label a namespace: kubectl label namespace NAME telecl.dev/inject=enabled")
}

/// A table without the columns in which nothing stands.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], empty: &str) -> String {
    if rows.is_empty() {
        return format!("{empty}\n");
    }
    let filled = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let shown: Vec<usize> = (0..header.len()).filter(filled).collect();
    let header: Vec<&str> = shown.iter().map(|column| header[*column]).collect();
    let cells = |row: &Vec<String>| shown.iter().map(|column| row[*column].clone()).collect();
    telecl_human::table(&header, &rows.iter().map(cells).collect::<Vec<Vec<String>>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_no_empty_columns_and_no_trailing_spaces() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = table(&["A", "B", "C"], &[row(["one", "", "2"]), row(["four", "", "five"])], "none");
        assert_eq!(text, "A     C\none   2\nfour  five\n");
        assert_eq!(table(&["A"], &[], "none"), "none\n");
    }
}
