//! Values: from the text of a variable and from TOML.

use std::path::PathBuf;
use std::time::Duration;

use telecl_net::{Address, Compression, MAX_STREAMS};
use toml::de::{DeTable, DeValue};

/// What a key may hold. Both readers say in one sentence what is wrong.
pub(crate) trait Value: Sized {
    /// Whether an empty variable is a value; otherwise it is as good as none.
    const EMPTY_COUNTS: bool = false;

    /// From a variable.
    fn from_text(text: &str) -> Result<Self, String>;
    /// From a file.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String>;
}

/// Where the driver finds services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Services(pub(crate) Vec<Address>);

/// Where the service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Vec<Address>);

/// Parts of names of platforms or devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<String>);

/// A small number of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) usize);

/// How many streams a session has beside its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCount {
    /// As many as pay, when they pay.
    Auto,
    Exactly(usize),
}

/// A time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// A directory for what can be made again; `None` if nothing is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheDir(pub(crate) Option<PathBuf>);

/// The file that says who may use how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyFile(pub(crate) PathBuf);

/// The file that gets a line for each session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountingFile(pub(crate) PathBuf);

/// A file with a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CredentialFile(pub(crate) PathBuf);

/// Where the audit goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditPlace(pub(crate) Audit);

/// Where the audit goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audit {
    Stderr,
    File(PathBuf),
}

/// The name of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) String);

/// Where metrics are offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress(pub(crate) Address);

impl Value for Services {
    const EMPTY_COUNTS: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        services(split(text))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        services(texts(value, r#"["node7:7701", "unix:/run/telecl.sock"]"#)?.into_iter())
    }
}

fn services<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Services, String> {
    let found = addresses(texts)?;
    match found.iter().find(|address| matches!(address, Address::Tcp { port: 0, .. })) {
        Some(address) => Err(format!("address \"{address}\" has port 0, where no service can listen")),
        None => Ok(Services(found)),
    }
}

impl Value for Listen {
    fn from_text(text: &str) -> Result<Self, String> {
        listen(split(text))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        listen(texts(value, r#"["127.0.0.1:7701"]"#)?.into_iter())
    }
}

fn listen<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Listen, String> {
    let found = addresses(texts)?;
    if found.is_empty() {
        return Err("needs at least one address, as in \"127.0.0.1:7701\"".to_owned());
    }
    Ok(Listen(found))
}

/// Every address once, in the order given.
fn addresses<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Vec<Address>, String> {
    let mut found = Vec::new();
    for text in texts {
        let address = text.parse().map_err(|error: telecl_net::AddressError| error.to_string())?;
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(found)
}

impl Value for Names {
    const EMPTY_COUNTS: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        names(split(text))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        names(texts(value, r#"["Portable Computing Language"]"#)?.into_iter())
    }
}

fn names<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Names, String> {
    let found: Vec<String> = texts.map(|text| text.trim().to_owned()).collect();
    // An empty part is in every name: it would select everything, which nobody writes on purpose.
    if found.iter().any(String::is_empty) {
        return Err("has an empty name in its list".to_owned());
    }
    Ok(Names(found))
}

impl Value for Duration {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_duration(text)
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => parse_duration(text),
            DeValue::Integer(_) | DeValue::Float(_) => {
                Err("is a number without a unit; write a text such as \"500ms\", \"2s\" or \"1m\"".to_owned())
            }
            other => Err(wrong_type(other, "a duration such as \"2s\"")),
        }
    }
}

impl Value for Limit {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            "off" | "0s" => Ok(Limit(None)),
            text => parse_duration(text).map(|limit| Limit(Some(limit))).map_err(|error| format!("{error}, or off")),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Limit::from_text(text),
            other => Duration::from_toml(other).map(|limit| Limit(Some(limit))),
        }
    }
}

/// Reads `500ms`, `2s`, `1m` or `1h`. Zero is refused: a wait of no length can only fail.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let bad = || format!("\"{text}\" is not a duration; write a whole number and a unit: 500ms, 2s, 1m, 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(bad()),
    };
    if number.is_empty() {
        return Err(bad());
    }
    let longest = Duration::from_secs(24 * 3600);
    let duration = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds))
        .map(Duration::from_millis)
        .filter(|duration| *duration <= longest)
        .ok_or_else(|| format!("\"{text}\" is longer than a day"))?;
    if duration.is_zero() {
        return Err(format!("\"{text}\" is no time at all; write at least 1ms"));
    }
    Ok(duration)
}

impl Value for Count {
    fn from_text(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let count = text.parse().ok().filter(|count| *count <= MOST);
        count.map(Count).ok_or_else(|| format!("\"{text}\" is not a whole number from 0 to {MOST}"))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::Integer(number) => Count::from_text(&number.to_string()),
            other => Err(wrong_type(other, "a whole number, without quotes")),
        }
    }
}

impl Value for StreamCount {
    fn from_text(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "auto" {
            return Ok(StreamCount::Auto);
        }
        let count = text.parse().ok().filter(|count| *count <= MAX_STREAMS);
        let error = || format!("\"{text}\" is neither \"auto\" nor a whole number from 0 to {MAX_STREAMS}");
        count.map(StreamCount::Exactly).ok_or_else(error)
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => StreamCount::from_text(text),
            DeValue::Integer(number) => StreamCount::from_text(&number.to_string()),
            other => Err(wrong_type(other, "\"auto\", or a whole number without quotes")),
        }
    }
}

/// More than anybody wants of what is counted.
const MOST: usize = 64;

impl Value for Size {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_size(text).map(Size)
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Size::from_text(text),
            DeValue::Integer(_) | DeValue::Float(_) => {
                Err("is a number without a unit; write a text such as \"512MiB\" or \"1GiB\"".to_owned())
            }
            other => Err(wrong_type(other, "a size such as \"1GiB\"")),
        }
    }
}

/// Reads `64KiB`, `512MiB`, `1GiB` or `2TiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let bad = || format!("\"{text}\" is not a size; write a whole number and a unit: 512MiB, 1GiB");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(digits);
    let bytes = match unit {
        "KiB" => 1u64 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(bad()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(bytes)).ok_or_else(bad)
}

impl Value for CacheDir {
    const EMPTY_COUNTS: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" | "none" => Ok(CacheDir(None)),
            // Relative to what? The service may be started from anywhere.
            path if !path.starts_with('/') => Err(format!("\"{path}\" is neither an absolute path nor \"none\"")),
            path => Ok(CacheDir(Some(path.into()))),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => CacheDir::from_text(text),
            other => Err(wrong_type(other, "a directory such as \"/var/cache/telecl\", or \"none\"")),
        }
    }
}

/// As [`parse_duration`], and `off` or `0s` for no time at all.
pub fn parse_grace(text: &str) -> Result<Duration, String> {
    Limit::from_text(text).map(|limit| limit.0.unwrap_or_default())
}

impl Value for PolicyFile {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            // Relative to what? The service may be started from anywhere.
            path if !path.starts_with('/') => Err(format!("\"{path}\" is not an absolute path")),
            path => Ok(PolicyFile(path.into())),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => PolicyFile::from_text(text),
            other => Err(wrong_type(other, "a file such as \"/etc/telecl/policy.toml\"")),
        }
    }
}

impl Value for AccountingFile {
    fn from_text(text: &str) -> Result<Self, String> {
        PolicyFile::from_text(text).map(|file| AccountingFile(file.0))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => AccountingFile::from_text(text),
            other => Err(wrong_type(other, "a file such as \"/var/log/telecl/accounting.jsonl\"")),
        }
    }
}

impl Value for CredentialFile {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            // Relative to what? And what is not a path may be the credential itself, which is not to be repeated here.
            path if !path.starts_with('/') => {
                Err("is to be the absolute path of a file; credentials themselves do not belong here".to_owned())
            }
            path => Ok(CredentialFile(path.into())),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => CredentialFile::from_text(text),
            other => Err(wrong_type(other, "a file such as \"/etc/telecl/pki/ca.pem\"")),
        }
    }
}

impl Value for AuditPlace {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            "stderr" => Ok(AuditPlace(Audit::Stderr)),
            path if !path.starts_with('/') => Err(format!("\"{path}\" is neither an absolute path nor \"stderr\"")),
            path => Ok(AuditPlace(Audit::File(path.into()))),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => AuditPlace::from_text(text),
            other => Err(wrong_type(other, "a file such as \"/var/log/telecl/audit.jsonl\", or \"stderr\"")),
        }
    }
}

impl Value for Name {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Name(text.trim().to_owned()))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Name::from_text(text),
            other => Err(wrong_type(other, "a name such as \"team-red\"")),
        }
    }
}

impl Value for MetricsAddress {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_metrics_address(text).map(MetricsAddress)
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => MetricsAddress::from_text(text),
            other => Err(wrong_type(other, "an address such as \"127.0.0.1:9701\"")),
        }
    }
}

/// Reads `127.0.0.1:9701` or `[::]:9701`: the port has to be named, for it is not that of drivers.
pub fn parse_metrics_address(text: &str) -> Result<Address, String> {
    let text = text.trim();
    let advice = "write host:port, as in 127.0.0.1:9701";
    match text.parse() {
        Ok(Address::Tcp { .. }) if text.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) => {
            Err(format!("\"{text}\" has no port; {advice}"))
        }
        Ok(address @ Address::Tcp { .. }) => Ok(address),
        Ok(Address::Unix(_)) => Err(format!("\"{text}\" is a Unix socket; {advice}")),
        Err(error) => Err(error.to_string()),
    }
}

impl Value for Compression {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Compression::Auto),
            "off" => Ok(Compression::Off),
            "always" => Ok(Compression::Always),
            other => Err(format!("{other:?} is none of auto, off and always")),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Compression::from_text(text),
            other => Err(wrong_type(other, "one of the texts \"auto\", \"off\" and \"always\"")),
        }
    }
}

impl Value for bool {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            other => Err(format!("{other:?} is neither true (or 1) nor false (or 0)")),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::Boolean(value) => Ok(*value),
            other => Err(wrong_type(other, "true or false, without quotes")),
        }
    }
}

/// The items of a comma-separated variable; an empty variable has none.
pub(crate) fn split(text: &str) -> impl Iterator<Item = &str> {
    let blank = text.trim().is_empty();
    text.split(',').filter(move |_| !blank)
}

/// The texts of a TOML list.
pub(crate) fn texts<'v>(value: &'v DeValue<'_>, example: &str) -> Result<Vec<&'v str>, String> {
    let expected = format!("a list of texts such as {example}");
    let DeValue::Array(items) = value else {
        return Err(wrong_type(value, &expected));
    };
    items
        .iter()
        .map(|item| match item.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            other => Err(format!("holds {}; expected {expected}", name_of(other))),
        })
        .collect()
}

/// The table behind `[serve]`.
pub(crate) fn table<'v, 'i>(value: &'v DeValue<'i>) -> Result<&'v DeTable<'i>, String> {
    match value {
        DeValue::Table(table) => Ok(table),
        other => Err(wrong_type(other, "a table: [serve], and its keys below")),
    }
}

pub(crate) fn wrong_type(value: &DeValue<'_>, expected: &str) -> String {
    format!("is {}; expected {expected}", name_of(value))
}

fn name_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, milliseconds) in
            [("500ms", 500), ("2s", 2_000), (" 2s ", 2_000), ("1m", 60_000), ("24h", 86_400_000), ("007s", 7_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_a_reason() {
        for (text, part) in [
            ("", "not a duration"),
            ("2", "not a duration"),
            ("s", "not a duration"),
            ("2 s", "not a duration"),
            ("2sec", "not a duration"),
            ("-2s", "not a duration"),
            ("1.5s", "not a duration"),
            ("2S", "not a duration"),
            ("٢s", "not a duration"),
            ("0s", "no time at all"),
            ("25h", "longer than a day"),
            ("99999999999999999999s", "longer than a day"),
            ("18446744073709551615h", "longer than a day"),
        ] {
            let reason = parse_duration(text).unwrap_err();
            assert!(reason.contains(part), "{text:?}: {reason}");
        }
    }

    #[test]
    fn sizes_have_a_number_and_a_unit() {
        for (text, bytes) in [("64KiB", 64 << 10), (" 512MiB ", 512 << 20), ("1GiB", 1 << 30), ("0MiB", 0)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "1", "GiB", "1GB", "1 GiB", "-1MiB", "1.5GiB", "99999999999999999999MiB", "99999999TiB"] {
            assert!(parse_size(text).unwrap_err().contains("is not a size"), "{text}");
        }
    }

    #[test]
    fn counts_are_small() {
        assert_eq!(Count::from_text(" 0"), Ok(Count(0)));
        assert_eq!(Count::from_text("64"), Ok(Count(64)));
        for text in ["", "-1", "65", "1.0", "two"] {
            assert!(Count::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_grace_may_be_no_time_at_all() {
        assert_eq!(parse_grace("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_grace(" off "), Ok(Duration::ZERO));
        assert_eq!(parse_grace("90s"), Ok(Duration::from_secs(90)));
        assert!(parse_grace("90").unwrap_err().contains("unit"));
    }

    #[test]
    fn a_cache_is_an_absolute_directory_or_none() {
        assert_eq!(CacheDir::from_text("/var/cache/x"), Ok(CacheDir(Some("/var/cache/x".into()))));
        assert_eq!(CacheDir::from_text("none"), Ok(CacheDir(None)));
        assert_eq!(CacheDir::from_text(""), Ok(CacheDir(None)));
        assert!(CacheDir::from_text("cache").unwrap_err().contains("absolute"));
    }

    #[test]
    fn a_policy_is_named_by_an_absolute_path() {
        assert_eq!(PolicyFile::from_text(" /etc/telecl/policy.toml"), Ok(PolicyFile("/etc/telecl/policy.toml".into())));
        assert!(PolicyFile::from_text("policy.toml").unwrap_err().contains("absolute"));
    }

    #[test]
    fn metrics_have_an_address_with_a_port() {
        let parse = |text| MetricsAddress::from_text(text).map(|address| address.0.to_string());
        assert_eq!(parse(" 127.0.0.1:9701"), Ok("127.0.0.1:9701".to_owned()));
        assert_eq!(parse("[::]:0"), Ok("[::]:0".to_owned()));
        for wrong in ["", "node7", "[::1]", "9701", "unix:/run/x", "node7:99999", "::1:9701"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("node7").unwrap_err().contains("has no port"));
        assert!(AccountingFile::from_text("a.jsonl").is_err());
    }

    #[test]
    fn compression_is_auto_off_or_always() {
        assert_eq!(Compression::from_text("auto"), Ok(Compression::Auto));
        assert_eq!(Compression::from_text(" off"), Ok(Compression::Off));
        assert_eq!(Compression::from_text("always"), Ok(Compression::Always));
        for text in ["", "on", "true", "lz4", "Auto"] {
            assert!(Compression::from_text(text).unwrap_err().contains("auto, off and always"), "{text}");
        }
    }

    #[test]
    fn flags_are_0_1_true_or_false() {
        assert_eq!(bool::from_text("1"), Ok(true));
        assert_eq!(bool::from_text(" true"), Ok(true));
        assert_eq!(bool::from_text("0"), Ok(false));
        assert_eq!(bool::from_text("false"), Ok(false));
        for text in ["", "yes", "TRUE", "2", "on"] {
            assert!(bool::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_in_a_variable_is_separated_by_commas() {
        assert_eq!(Names::from_text("NVIDIA, Intel"), Ok(Names(vec!["NVIDIA".into(), "Intel".into()])));
        assert_eq!(Names::from_text(""), Ok(Names(vec![])));
        assert_eq!(Names::from_text("  "), Ok(Names(vec![])));
        assert!(Names::from_text("NVIDIA,").is_err());
        assert!(Services::from_text("node7,,node8").unwrap_err().contains("empty"));
    }

    #[test]
    fn an_address_given_twice_counts_once() {
        let Services(found) = Services::from_text("node7,node7:7701,node8").unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["node7:7701", "node8:7701"]);
    }

    #[test]
    fn port_0_is_for_listening_only() {
        assert!(Listen::from_text("127.0.0.1:0").is_ok());
        assert!(Services::from_text("127.0.0.1:0").unwrap_err().contains("port 0"));
    }

    #[test]
    fn a_service_must_listen_somewhere() {
        assert!(Listen::from_text("").unwrap_err().contains("at least one address"));
    }
}
