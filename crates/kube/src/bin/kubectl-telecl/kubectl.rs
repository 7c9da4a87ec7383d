//! Running `kubectl`.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::Cluster;

/// `kubectl` with the flags that say which cluster.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    flags: Vec<String>,
}

impl Kubectl {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let context = cluster.context.iter().map(|name| format!("--context={name}"));
        let kubeconfig = cluster.kubeconfig.iter().map(|file| format!("--kubeconfig={file}"));
        Self { flags: context.chain(kubeconfig).collect() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(&self.flags).args(arguments).stdin(Stdio::null());
        command
    }

    fn output(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.command(arguments).output().context("running kubectl. Is it installed, and in PATH?")
    }

    /// What it prints; an error has what it complains about.
    pub(crate) fn text(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.output(arguments)?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {}: {}", arguments.join(" "), complaint.trim());
        }
        String::from_utf8(output.stdout).context("kubectl printed no text")
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let text = self.text(arguments)?;
        serde_json::from_str(&text).with_context(|| format!("kubectl {} printed no JSON", arguments.join(" ")))
    }

    /// Something that may not be there.
    pub(crate) fn find(&self, arguments: &[&str]) -> anyhow::Result<Option<Value>> {
        let all: Vec<&str> = ["get", "--ignore-not-found", "-o", "json"].iter().chain(arguments).copied().collect();
        let text = self.text(&all)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&text).context("kubectl printed no JSON")?))
    }

    pub(crate) fn items(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        let all: Vec<&str> = ["get", "-o", "json"].iter().chain(arguments).copied().collect();
        Ok(self.json(&all)?["items"].as_array().cloned().unwrap_or_default())
    }

    /// Runs a command with this terminal's output; whether it succeeded.
    pub(crate) fn show(&self, arguments: &[&str]) -> anyhow::Result<bool> {
        Ok(self.command(arguments).status().context("running kubectl")?.success())
    }
}
