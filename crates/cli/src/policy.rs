//! `telecl policy check`: is a policy right, and what would a tenant get?

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use telecl_policy::{Grant, Plain, Policy, PolicyError, Problem, Row, Tenant};

use crate::exit::{Exit, Failure, Outcome, print};
use crate::human;

const EXAMPLES: &str = "\
Examples:
  telecl policy check /etc/telecl/policy.toml
  telecl policy check policy.toml --tenant team-red --tenant user:alice
  telecl policy check policy.toml --tenant team-red --json";

/// Check who may use how much of a service's devices
///
/// A policy is a TOML file that telecl serve reads (--policy). docs/policy.md lists every key, says which are in force
/// already, and has an example.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Check(CheckArgs),
}

/// Say whether a policy is right, and what tenants would get
///
/// Without --tenant, lists the rules in the order in which they are tried. With it, every value that the tenant
/// gets, and the line of the file that says so.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\nExit codes: 0 if the policy can be used, also with warnings; 2 if it cannot."))]
pub(crate) struct CheckArgs {
    /// The policy
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show what this tenant would get; may be repeated
    #[arg(long = "tenant", value_name = "NAME")]
    tenants: Vec<Tenant>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn policy(args: &PolicyArgs) -> Outcome {
    let PolicyCommand::Check(args) = &args.command;
    match Policy::load(&args.file) {
        Ok(policy) => Ok(right(&policy, args)),
        Err(PolicyError::Wrong(problems)) => Ok(wrong(&problems, args.json)),
        Err(error @ PolicyError::File(_)) => Err(Failure::new(Exit::Usage, error, "docs/policy.md has an example")),
    }
}

fn wrong(problems: &[Problem], as_json: bool) -> Exit {
    if as_json {
        print(format_args!("{:#}\n", json!({ "ok": false, "problems": list(problems) })));
    } else {
        report(problems);
    }
    Exit::Usage
}

fn right(policy: &Policy, args: &CheckArgs) -> Exit {
    let grants: Vec<Grant> = args.tenants.iter().map(|tenant| policy.for_tenant(tenant)).collect();
    if args.json {
        let mut answer = json!({ "ok": true, "problems": list(policy.warnings()) });
        if grants.is_empty() {
            answer["rules"] = rules_as_json(policy);
        } else {
            answer["tenants"] = grants.iter().map(grant_as_json).collect();
        }
        print(format_args!("{answer:#}\n"));
        return Exit::Ok;
    }
    report(policy.warnings());
    if grants.is_empty() {
        print(summary(policy, args));
    } else {
        print(grants.iter().map(grant_as_text).collect::<Vec<_>>().join("\n"));
    }
    Exit::Ok
}

/// One line on stderr for each problem.
fn report(problems: &[Problem]) {
    for problem in problems {
        // When stderr is gone there is nobody left to tell; the exit code still says it.
        let _ = writeln!(io::stderr(), "{}: {problem}", problem.severity.word());
    }
}

fn summary(policy: &Policy, args: &CheckArgs) -> String {
    let (tenants, devices) = (policy.tenant_rules(), policy.device_rules());
    let mut text = format!(
        "{}: {}, {}, {}\n",
        args.file.display(),
        human::count(tenants.len(), "tenant rule"),
        human::count(devices.len(), "device rule"),
        human::count(policy.users().len(), "user")
    );
    let sets =
        |sets: Vec<(&str, Plain)>| sets.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut rule = |name: String, line: usize, what: Vec<String>| {
        let what = if what.is_empty() { "nothing".to_owned() } else { what.join("; ") };
        rows.push(vec![name, line.to_string(), what]);
    };
    for one in tenants {
        rule(format!("tenant {}", one.patterns().collect::<Vec<_>>().join(", ")), one.line(), sets(one.sets()));
    }
    if let Some((line, said)) = policy.defaults() {
        rule("defaults".to_owned(), line, sets(said));
    }
    for one in devices {
        rule(format!("device {}", one.patterns().collect::<Vec<_>>().join(", ")), one.line(), sets(one.sets()));
    }
    if let Some((line, said)) = policy.service() {
        rule("service".to_owned(), line, sets(said));
    }
    if !rows.is_empty() {
        text = format!("{text}\n{}", human::table(&["RULE", "LINE", "SETS"], &rows));
    }
    let users: Vec<Vec<String>> =
        policy.users().iter().map(|(user, tenant)| vec![user.clone(), tenant.to_string()]).collect();
    if !users.is_empty() {
        text = format!("{text}\n{}", human::table(&["USER", "TENANT"], &users));
    }
    text
}

fn grant_as_text(grant: &Grant) -> String {
    let rule = match &grant.rule {
        Some((pattern, line)) => format!("rule \"{pattern}\", line {line}"),
        None => "no rule matches it".to_owned(),
    };
    let row = |row: &Row| vec![row.key.to_owned(), row.value.to_string(), row.origin.to_string()];
    let rows: Vec<Vec<String>> = grant.rows().iter().map(row).collect();
    format!("tenant {}: {rule}\n\n{}", grant.tenant, human::table(&["KEY", "VALUE", "FROM"], &rows))
}

fn grant_as_json(grant: &Grant) -> Value {
    let rule = grant.rule.as_ref().map(|(pattern, line)| json!({ "pattern": pattern, "line": line }));
    let mut values = serde_json::Map::new();
    for row in grant.rows() {
        let from = row.origin.to_string();
        values
            .insert(row.key.to_owned(), json!({ "value": plain(&row.value), "from": from, "line": row.origin.line() }));
    }
    json!({ "tenant": grant.tenant.as_str(), "rule": rule, "values": values })
}

fn rules_as_json(policy: &Policy) -> Value {
    let object = |sets: Vec<(&str, Plain)>| -> Value {
        sets.into_iter().map(|(key, value)| (key.to_owned(), plain(&value))).collect::<serde_json::Map<_, _>>().into()
    };
    let tenants: Vec<Value> = policy
        .tenant_rules()
        .iter()
        .map(|rule| json!({ "match": rule.patterns().collect::<Vec<_>>(), "line": rule.line(), "sets": object(rule.sets()) }))
        .collect();
    let devices: Vec<Value> = policy
        .device_rules()
        .iter()
        .map(|rule| json!({ "match": rule.patterns().collect::<Vec<_>>(), "line": rule.line(), "sets": object(rule.sets()) }))
        .collect();
    let users: serde_json::Map<String, Value> =
        policy.users().into_iter().map(|(user, tenant)| (user, tenant.as_str().into())).collect();
    json!({
        "tenant": tenants,
        "defaults": policy.defaults().map(|(_, sets)| object(sets)),
        "device": devices,
        "service": policy.service().map(|(_, sets)| object(sets)),
        "users": users,
    })
}

fn plain(value: &Plain) -> Value {
    match value {
        Plain::Text(text) => json!(text),
        Plain::Number(number) => json!(number),
        Plain::Truth(truth) => json!(truth),
        Plain::List(items) => json!(items),
    }
}

fn list(problems: &[Problem]) -> Value {
    let one = |problem: &Problem| {
        json!({
            "severity": problem.severity.word(),
            "file": problem.path,
            "line": problem.line,
            "key": problem.key,
            "reason": problem.reason,
        })
    };
    problems.iter().map(one).collect()
}
