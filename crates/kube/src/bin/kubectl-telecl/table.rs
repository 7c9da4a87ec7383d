//! Tables for people.

use std::collections::BTreeMap;

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
                device.busy.map(percent).unwrap_or_default(),
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
            percent(*busy),
            percent(*waiting),
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
            percent(pod.busy),
            percent(pod.waiting),
            memory(pod.memory),
            pod.sessions.to_string(),
            pod.services.join(","),
        ]
    };
    let rows: Vec<_> = pods.iter().map(row).collect();
    let header = ["NAMESPACE", "POD", "PHASE", "PROFILE", "BUSY", "WAITING", "MEMORY", "SESSIONS", "SERVICES"];
    table(&header, &rows, "No such pod. Label a namespace: kubectl label namespace NAME telecl.dev/inject=enabled")
}

/// `97 %`
fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// `31.2 GiB`, `512 MiB`
fn memory(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 99.95 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

/// Columns as wide as their widest cell; columns in which nothing stands are left out.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], empty: &str) -> String {
    if rows.is_empty() {
        return format!("{empty}\n");
    }
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            if widest == 0 { 0 } else { widest.max(header[column].len()) }
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let shown = cells.zip(&widths).filter(|(_, width)| **width > 0);
        let text: String = shown.map(|(cell, width)| format!("{cell:width$}  ")).collect();
        format!("{}\n", text.trim_end())
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
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

    #[test]
    fn numbers_are_short() {
        assert_eq!(memory(0), "0 B");
        assert_eq!(memory(1536), "1.5 KiB");
        assert_eq!(memory(141 << 30), "141 GiB");
        assert_eq!(percent(0.974), "97 %");
    }
}
