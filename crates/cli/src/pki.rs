//! `telecl pki`, `telecl token` and `telecl secret`: making credentials.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use telecl_identity::pki::{self, PkiError};
use telecl_identity::{Claims, FileError, KeyError, Privacy, SigningKey, TokenError, now, read_text};
use telecl_policy::{DevicePattern, Tenant, show_size};

use crate::exit::{Exit, Failure, Outcome, print};

/// Make certificates: a private CA, and what it signs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl pki init --name node7,10.0.0.7       a CA, the service's certificate, and a key for tokens
  telecl pki issue --tenant team-red          a certificate for a tenant

docs/credentials.md says what to do with the files.")]
pub(crate) struct PkiArgs {
    #[command(subcommand)]
    command: PkiCommand,
}

#[derive(Debug, Subcommand)]
enum PkiCommand {
    Init(InitArgs),
    Issue(IssueArgs),
}

/// Make a private CA, a certificate for the service, and a key for tokens
///
/// Replaces no file. Says what to do next.
#[derive(Debug, Args)]
struct InitArgs {
    /// Where the files go [default: /etc/telecl/pki for root, ~/.config/telecl/pki for others]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Names and addresses by which drivers reach the service [default: this host's name and localhost]
    #[arg(long = "name", value_name = "HOST,...", value_delimiter = ',')]
    names: Vec<String>,
}

/// Make a certificate for a tenant
#[derive(Debug, Args)]
struct IssueArgs {
    /// Whose sessions its bearer opens
    #[arg(long, value_name = "NAME")]
    tenant: Tenant,
    /// How long it holds: 8h, 30d
    #[arg(long = "for", value_name = "TIME", default_value = "30d", value_parser = telecl_policy::parse_time)]
    lifetime: Duration,
    /// The directory of telecl pki init
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the certificate goes; its key goes beside it, with the ending .key [default: TENANT.pem]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Make, read and revoke tokens
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl token create --tenant team-red --for 8h > team-red.token
  telecl token create --tenant ci --for 1h --once --memory 4GiB --devices '*H200*' --out ci.token
  telecl token show team-red.token
  telecl token revoke --list /etc/telecl/revoked team-red.token")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    Create(CreateArgs),
    Show(ShowArgs),
    Revoke(RevokeArgs),
}

/// Make a token, and print it
#[derive(Debug, Args)]
struct CreateArgs {
    /// Whose sessions its bearer opens
    #[arg(long, value_name = "NAME")]
    tenant: Tenant,
    /// How long it holds: 30m, 8h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = telecl_policy::parse_time)]
    lifetime: Duration,
    /// The memory of a device that the tenant may use at most: 4GiB
    #[arg(long, value_name = "SIZE", value_parser = telecl_policy::parse_size)]
    memory: Option<u64>,
    /// Devices it is good for, as in a policy: '*H200*', number:1
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',')]
    devices: Vec<String>,
    /// Services it is good for, by the names of their nodes; * at the end stands for any rest
    #[arg(long = "service", value_name = "NAME,...", value_delimiter = ',')]
    services: Vec<String>,
    /// A device of a service, and no other service: gpu1=number:2; may be given several times
    #[arg(long, value_name = "NAME=PATTERN")]
    at: Vec<At>,
    /// How many sessions may be opened with it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sessions: Option<u32>,
    /// One session: whoever comes second is refused
    #[arg(long, conflicts_with = "sessions")]
    once: bool,
    /// The batch job that it is for, by which its sessions are accounted
    #[arg(long, value_name = "JOBID", value_parser = job_number)]
    job: Option<String>,
    /// The key that signs [default: token.key of telecl pki init]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write it to this new file, for its owner alone, instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A device of a service: `gpu1=number:2`.
#[derive(Clone, Debug)]
struct At {
    service: String,
    device: String,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        let (service, device) = text.split_once('=').ok_or("it takes a service and a device, as in gpu1=number:2")?;
        if service.is_empty() {
            return Err("the name of the service is missing, as in gpu1=number:2".to_owned());
        }
        DevicePattern::parse(device)?;
        Ok(At { service: service.to_owned(), device: device.to_owned() })
    }
}

fn job_number(text: &str) -> Result<String, String> {
    if telecl_wire::is_job(text) { Ok(text.to_owned()) } else { Err("it is no job's number".to_owned()) }
}

/// Say what a token says
#[derive(Debug, Args)]
struct ShowArgs {
    /// A file with a token
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Have services take a token no more
///
/// Adds its id to a list that services read (revoked in [serve]); they notice within a second.
#[derive(Debug, Args)]
struct RevokeArgs {
    /// The id of a token, or a file with the token
    #[arg(value_name = "ID|FILE")]
    token: String,
    /// The list
    #[arg(long, value_name = "FILE")]
    list: PathBuf,
}

/// Make secrets that a service and its drivers share
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl secret create ~/.telecl-secret
  telecl serve --listen 0.0.0.0:7701 --secret ~/.telecl-secret
  telecl run --on node7 --secret ~/.telecl-secret -- clinfo -l")]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    command: SecretCommand,
}

#[derive(Debug, Subcommand)]
enum SecretCommand {
    Create(SecretCreateArgs),
}

/// Make a file with a new secret, for its owner alone
#[derive(Debug, Args)]
struct SecretCreateArgs {
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl From<PkiError> for Failure {
    fn from(error: PkiError) -> Failure {
        let advice = match &error {
            PkiError::Exists(_) => "Remove it first, or name another place",
            PkiError::Write { .. } => "Name a place that can be written to: --dir DIR",
            _ => "",
        };
        Failure::new(Exit::Failed, error, advice)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        Failure::new(Exit::Failed, error, "telecl pki init makes a key: token.key")
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        Failure::new(Exit::Usage, error, "")
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Failure {
        Failure::new(Exit::Usage, error, "")
    }
}

pub(crate) fn pki(args: &PkiArgs) -> Outcome {
    match &args.command {
        PkiCommand::Init(args) => init(args),
        PkiCommand::Issue(args) => issue(args),
    }
}

fn init(args: &InitArgs) -> Outcome {
    let directory = directory(args.dir.as_deref())?;
    let names = match args.names.as_slice() {
        [] => vec![telecl_net::host_name(), "localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()],
        names => names.to_vec(),
    };
    for file in pki::init(&directory, &names)? {
        print(format_args!("made {}\n", file.display()));
    }
    let place = directory.display();
    let host = names.first().map_or("HOST", String::as_str);
    print(format_args!(
        "\nThe service shows itself as: {}\n\n\
         Next:\n  \
         telecl serve --listen {host} --certificate {place}/service.pem --key {place}/service.key --token-keys {place}/token.pub\n  \
         telecl token create --tenant NAME --for 8h --key {place}/token.key --out NAME.token\n\
         and where programs run, with copies of ca.pem and NAME.token:\n  \
         telecl run --on {host} --ca ca.pem --token NAME.token -- PROGRAM\n\n\
         Keep ca.key and token.key where nobody else gets at them: the service needs neither.\n",
        names.join(", ")
    ));
    Ok(Exit::Ok)
}

fn issue(args: &IssueArgs) -> Outcome {
    let directory = directory(args.dir.as_deref())?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = args.tenant.as_str().chars().map(plain).collect();
    let certificate = args.out.clone().unwrap_or_else(|| format!("{name}.pem").into());
    let key = certificate.with_extension("key");
    pki::issue(&directory, &args.tenant, args.lifetime, &certificate, &key)?;
    print(format_args!("made {}\nmade {}\n", certificate.display(), key.display()));
    Ok(Exit::Ok)
}

/// Where the files of a PKI are.
fn directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/etc/telecl/pki".into());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    let place = config.map(|config| config.join("telecl/pki"));
    place.ok_or_else(|| Failure::new(Exit::Usage, "there is no home directory", "Name a directory: --dir DIR"))
}

pub(crate) fn token(args: &TokenArgs) -> Outcome {
    match &args.command {
        TokenCommand::Create(args) => create(args),
        TokenCommand::Show(args) => show(&args.file),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

fn create(args: &CreateArgs) -> Outcome {
    for pattern in &args.devices {
        let wrong = |reason| Failure::new(Exit::Usage, format!("--devices: {reason}"), "");
        DevicePattern::parse(pattern).map_err(wrong)?;
    }
    if args.lifetime.as_secs() == 0 {
        return Err(Failure::new(Exit::Usage, "a token has to hold for a second at least", "Say: --for 8h"));
    }
    let key = match &args.key {
        Some(key) => key.clone(),
        None => directory(None)?.join(pki::TOKEN_KEY),
    };
    let key = SigningKey::load(&key)?;
    let mut at = BTreeMap::<String, Vec<String>>::new();
    for At { service, device } in &args.at {
        at.entry(service.clone()).or_default().push(device.clone());
    }
    let claims = Claims::new(&args.tenant, args.lifetime).map_err(PkiError::from)?;
    let claims = Claims {
        memory: args.memory,
        devices: args.devices.clone(),
        services: args.services.clone(),
        at,
        job: args.job.clone(),
        sessions: if args.once { Some(1) } else { args.sessions },
        ..claims
    };
    let token = key.sign(&claims)?;
    match &args.out {
        Some(file) => {
            pki::write_new(file, &format!("{token}\n"), 0o600)?;
            print(format_args!("made {} (id {})\n", file.display(), claims.id));
        }
        None => {
            print(format_args!("{token}\n"));
            // When stderr is gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "token {} for tenant {}", claims.id, claims.tenant);
        }
    }
    Ok(Exit::Ok)
}

/// Its holder may know; nobody vouches for it here.
fn show(file: &Path) -> Outcome {
    let claims = Claims::unverified(&read_text(file, Privacy::Group)?)?;
    let left = claims.expires.saturating_sub(now());
    let shown = json!({
        "tenant": claims.tenant,
        "id": claims.id,
        "issued": claims.issued,
        "expires": claims.expires,
        "seconds_left": left,
        "memory": claims.memory.map(show_size),
        "devices": claims.devices,
        "services": claims.services,
        "at": claims.at,
        "sessions": claims.sessions,
        "job": claims.job,
    });
    print(format_args!("{shown:#}\n"));
    Ok(if left == 0 { Exit::Failed } else { Exit::Ok })
}

fn revoke(args: &RevokeArgs) -> Outcome {
    let is_id = args.token.len() == 32 && args.token.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (id, note) = if is_id {
        (args.token.clone(), String::new())
    } else {
        let claims = Claims::unverified(&read_text(Path::new(&args.token), Privacy::Public)?)?;
        (claims.id, format!(" {}", claims.tenant))
    };
    let added = std::fs::OpenOptions::new().append(true).create(true).open(&args.list);
    let added = added.and_then(|mut list| list.write_all(format!("{id}{note}\n").as_bytes()));
    added.map_err(|cause| PkiError::Write { path: args.list.clone(), cause })?;
    print(format_args!("revoked {id}\n"));
    Ok(Exit::Ok)
}

pub(crate) fn secret(args: &SecretArgs) -> Outcome {
    let SecretCommand::Create(args) = &args.command;
    pki::make_secret(&args.file)?;
    print(format_args!("made {}\n", args.file.display()));
    Ok(Exit::Ok)
}
