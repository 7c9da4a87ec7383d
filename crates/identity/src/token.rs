//! Signed tokens: who somebody is, for how long, and what is allowed at most.
//!
//! A token is one line, `telecl1.PAYLOAD.SIGNATURE`: the payload is JSON in base64 for URLs, the signature is Ed25519's over
//! everything before it. Services know the public key; nobody else is asked.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::{Deserialize, Serialize};
use telecl_policy::{DeviceFacts, DevicePattern, Tenant};
use telecl_wire::is_job;

use crate::file::{FileError, Privacy, read, read_text};
use crate::hex;

/// What every token begins with: the name of its form.
const PREFIX: &str = "telecl1";

/// No token is longer.
const LONGEST: usize = 4096;

/// How far clocks may be apart.
const LEEWAY: u64 = 60;

/// What comes before the 32 bytes of a public key, RFC 8410.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Whether this is a token in the form that Kubernetes gives to pods, and not one of ours: three parts in base64 for
/// URLs, of which the first is the header of a JWT.
pub fn is_web_token(token: &str) -> bool {
    let parts: Vec<&str> = token.split('.').collect();
    let is_part =
        |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    // `{"` in base64 for URLs.
    parts.len() == 3 && parts.iter().all(is_part) && parts[0].starts_with("eyJ") && parts[0] != PREFIX
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    pub tenant: String,
    /// By which it can be revoked: 32 hexadecimal digits.
    pub id: String,
    /// In seconds since 1970.
    pub issued: u64,
    pub expires: u64,
    /// The memory of a device that all sessions of the tenant together may use, in bytes, if that is less than the policy
    /// allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Patterns for the devices it is good for, of those that the policy allows; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// The names of services that it is good for, `*` at the end for any rest; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Patterns for the devices it is good for at each of these services, whose names are as in `services`. If there are any,
    /// no other service takes it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: BTreeMap<String, Vec<String>>,
    /// How many sessions may be opened with it; any number if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// The batch job that it was made for, if for one: the number by which its sessions are accounted, whatever a driver says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// The devices that a token is good for, at one service.
#[derive(Debug)]
pub struct TokenDevices {
    /// Any of these; all if there are none.
    everywhere: Vec<DevicePattern>,
    /// And any of these, if the token says so for each service.
    at: Option<Vec<DevicePattern>>,
}

impl TokenDevices {
    pub fn has(&self, device: &DeviceFacts<'_>) -> bool {
        let any = |patterns: &[DevicePattern]| patterns.iter().any(|pattern| pattern.matches(device));
        (self.everywhere.is_empty() || any(&self.everywhere)) && self.at.as_deref().is_none_or(any)
    }
}

fn patterns<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<Vec<DevicePattern>, TokenError> {
    let patterns: Result<_, _> = texts.into_iter().map(|text| DevicePattern::parse(text)).collect();
    patterns.map_err(|_| TokenError::Malformed("its devices are no patterns"))
}

/// Whether a name in a token, `*` at its end for any rest, is that of a service.
fn is_meant(name: &str, service: &str) -> bool {
    match name.strip_suffix('*') {
        Some(beginning) => service.starts_with(beginning),
        None => name == service,
    }
}

/// Why a token is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is none: {0}; use the whole line that telecl token create has written")]
    Malformed(&'static str),
    #[error("the token was not signed by a key that this service knows, or was changed; ask for a new one")]
    Forged,
    #[error("the token has expired {0} ago; ask for a new one")]
    Expired(Ago),
    #[error("the token is not valid yet, not for another {0}; are the clocks right?")]
    NotYet(Ago),
    #[error("the token is for the services {0}, not for this one")]
    Elsewhere(String),
    #[error("the token was revoked; ask for a new one")]
    Revoked,
    #[error(
        "the token has been used as often as it may be; if that was not you, somebody else has it: have it revoked"
    )]
    Replayed,
}

impl TokenError {
    /// For the audit.
    pub fn code(&self) -> &'static str {
        match self {
            TokenError::Malformed(_) => "token_malformed",
            TokenError::Forged => "token_forged",
            TokenError::Expired(_) => "token_expired",
            TokenError::NotYet(_) => "token_not_yet",
            TokenError::Elsewhere(_) => "token_elsewhere",
            TokenError::Revoked => "token_revoked",
            TokenError::Replayed => "token_replayed",
        }
    }
}

/// So many seconds, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ago(u64);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7_200 => write!(f, "{} min", seconds / 60),
            seconds @ 7_200..172_800 => write!(f, "{} h", seconds / 3_600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("a new key could not be made")]
    Make,
    #[error("the token would be too long: name fewer devices or services")]
    TooLong,
}

impl Claims {
    /// The tenant; checked when the token was.
    pub fn tenant(&self) -> Result<Tenant, TokenError> {
        Tenant::parse(&self.tenant).map_err(|_| TokenError::Malformed("its tenant has no name"))
    }

    /// The devices it is good for at a service of this name.
    pub fn devices(&self, service: &str) -> Result<TokenDevices, TokenError> {
        let here = self.at.iter().filter(|(name, _)| is_meant(name, service)).flat_map(|(_, devices)| devices);
        let at = if self.at.is_empty() { None } else { Some(patterns(here)?) };
        Ok(TokenDevices { everywhere: patterns(&self.devices)?, at })
    }

    /// Whether it may be used at this time, at a service of this name.
    fn check(&self, now: u64, service: &str) -> Result<(), TokenError> {
        if self.id.len() != 32 || !self.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(TokenError::Malformed("its id is none"));
        }
        self.tenant()?;
        patterns(self.devices.iter().chain(self.at.values().flatten()))?;
        if self.job.as_ref().is_some_and(|job| !is_job(job)) {
            return Err(TokenError::Malformed("its job has no number"));
        }
        if now >= self.expires {
            return Err(TokenError::Expired(Ago(now - self.expires)));
        }
        if self.issued > now + LEEWAY {
            return Err(TokenError::NotYet(Ago(self.issued - now)));
        }
        if !self.services.is_empty() && !self.services.iter().any(|name| is_meant(name, service)) {
            return Err(TokenError::Elsewhere(self.services.join(", ")));
        }
        if !self.at.is_empty() && !self.at.keys().any(|name| is_meant(name, service)) {
            let names: Vec<&str> = self.at.keys().map(String::as_str).collect();
            return Err(TokenError::Elsewhere(names.join(", ")));
        }
        Ok(())
    }

    /// What a token says, whether it is right or not: for its holder.
    pub fn unverified(token: &str) -> Result<Claims, TokenError> {
        split(token).and_then(|(_, payload, _)| parse(payload))
    }
}

/// In seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Signs tokens.
#[derive(Debug)]
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// A new one: as PEM, and its public key as PEM.
    pub fn generate() -> Result<(String, String), KeyError> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::Make)?;
        let pair = Ed25519KeyPair::from_pkcs8(made.as_ref()).map_err(|_| KeyError::Make)?;
        let public = [&SPKI[..], pair.public_key().as_ref()].concat();
        Ok((pem("PRIVATE KEY", made.as_ref()), pem("PUBLIC KEY", &public)))
    }

    pub fn load(path: &Path) -> Result<SigningKey, KeyError> {
        let what = "a key for tokens (token.key of telecl pki init)";
        let bytes = read(path, Privacy::Group)?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(&bytes).map_err(|error| FileError::content(path, what, error))?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der());
        Ok(SigningKey(pair.map_err(|error| FileError::content(path, what, error))?))
    }

    /// A token that says this.
    pub fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        let payload = serde_json::to_vec(claims).map_err(|_| KeyError::TooLong)?;
        let signed = format!("{PREFIX}.{}", BASE64.encode(payload));
        let signature = BASE64.encode(self.0.sign(signed.as_bytes()));
        Some(format!("{signed}.{signature}")).filter(|token| token.len() <= LONGEST).ok_or(KeyError::TooLong)
    }
}

/// Public keys, any of which may have signed a token.
#[derive(Clone, Debug, Default)]
pub struct VerifyingKeys(Vec<[u8; 32]>);

impl VerifyingKeys {
    /// All public keys of a PEM file; one at least.
    pub fn load(path: &Path) -> Result<VerifyingKeys, KeyError> {
        let what = "a file of public keys for tokens (token.pub of telecl pki init)";
        let bytes = read(path, Privacy::Public)?;
        let found: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(&bytes).collect();
        let found = found.map_err(|error| FileError::content(path, what, error))?;
        let keys: Option<Vec<[u8; 32]>> =
            found.iter().map(|key| key.as_ref().strip_prefix(&SPKI).and_then(|key| key.try_into().ok())).collect();
        match keys {
            Some(keys) if !keys.is_empty() => Ok(VerifyingKeys(keys)),
            Some(_) => Err(FileError::content(path, what, "it has none").into()),
            None => Err(FileError::content(path, what, "it has a key that is not Ed25519's").into()),
        }
    }

    /// What a token says, if it was signed by one of these, and holds at this time for a service of this name.
    pub fn verify(&self, token: &str, now: u64, service: &str) -> Result<Claims, TokenError> {
        let (signed, payload, signature) = split(token)?;
        let signature = BASE64.decode(signature).map_err(|_| TokenError::Malformed("its signature is not base64"))?;
        let is_signed = |key: &[u8; 32]| UnparsedPublicKey::new(&ED25519, key).verify(signed.as_bytes(), &signature);
        // Before anything in it is believed.
        if !self.0.iter().any(|key| is_signed(key).is_ok()) {
            return Err(TokenError::Forged);
        }
        let claims = parse(payload)?;
        claims.check(now, service)?;
        Ok(claims)
    }
}

/// What was signed, and in it the payload; and the signature.
fn split(token: &str) -> Result<(&str, &str, &str), TokenError> {
    let token = token.trim();
    if token.len() > LONGEST {
        return Err(TokenError::Malformed("it is too long"));
    }
    let parts = || {
        let (signed, signature) = token.rsplit_once('.')?;
        let payload = signed.strip_prefix(PREFIX)?.strip_prefix('.')?;
        (!payload.contains('.')).then_some((signed, payload, signature))
    };
    parts().ok_or(TokenError::Malformed("it does not look like telecl1.….…"))
}

fn parse(payload: &str) -> Result<Claims, TokenError> {
    let payload = BASE64.decode(payload).map_err(|_| TokenError::Malformed("its payload is not base64"))?;
    serde_json::from_slice(&payload).map_err(|_| TokenError::Malformed("its payload is not what it should be"))
}

/// Tokens that are not to be taken any more, by their ids.
#[derive(Clone, Debug, Default)]
pub struct RevokedList(HashSet<String>);

impl RevokedList {
    /// One id in each line; what follows it is for people, and so are lines that begin with `#`.
    pub fn load(path: &Path) -> Result<RevokedList, FileError> {
        let text = read_text(path, Privacy::Public)?;
        let ids = text.lines().filter_map(|line| line.split_whitespace().next()).filter(|id| !id.starts_with('#'));
        Ok(RevokedList(ids.map(str::to_lowercase).collect()))
    }

    pub fn has(&self, claims: &Claims) -> bool {
        self.0.contains(&claims.id.to_lowercase())
    }
}

/// A new id.
pub(crate) fn new_id() -> std::io::Result<String> {
    crate::random::<16>().map(|bytes| hex(&bytes))
}

impl Claims {
    /// For a tenant, from now on, with an id of its own and no limits.
    pub fn new(tenant: &Tenant, lifetime: Duration) -> std::io::Result<Claims> {
        let issued = now();
        Ok(Claims {
            tenant: tenant.as_str().to_owned(),
            id: new_id()?,
            issued,
            expires: issued.saturating_add(lifetime.as_secs()),
            memory: None,
            devices: Vec::new(),
            services: Vec::new(),
            at: BTreeMap::new(),
            sessions: None,
            job: None,
        })
    }
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn keys() -> (SigningKey, VerifyingKeys) {
        let place = tempfile::tempdir().unwrap();
        let (private, public) = SigningKey::generate().unwrap();
        let (key, known) = (place.path().join("token.key"), place.path().join("token.pub"));
        fs::write(&key, private).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&known, public).unwrap();
        (SigningKey::load(&key).unwrap(), VerifyingKeys::load(&known).unwrap())
    }

    fn claims() -> Claims {
        let id = "0123456789abcdef0123456789abcdef".to_owned();
        let (devices, services) = (vec!["*H200*".to_owned()], vec!["node7".to_owned(), "gpu-*".to_owned()]);
        let (tenant, sessions) = ("team-red".to_owned(), Some(2));
        let at = BTreeMap::from([
            ("gpu-9".to_owned(), vec!["number:2".to_owned()]),
            ("node*".to_owned(), vec!["*".to_owned()]),
        ]);
        let (memory, job) = (Some(4 << 30), Some("4711".to_owned()));
        Claims { tenant, id, issued: 1_000, expires: 2_000, memory, devices, services, at, sessions, job }
    }

    #[test]
    fn a_token_says_what_was_signed() {
        let (key, known) = keys();
        let token = key.sign(&claims()).unwrap();
        assert_eq!(known.verify(&format!("{token}\n"), 1_500, "node7").unwrap(), claims());
        assert_eq!(known.verify(&token, 1_500, "gpu-9").unwrap().tenant().unwrap().as_str(), "team-red");
        assert_eq!(Claims::unverified(&token).unwrap(), claims());
        let short = Claims::new(&Tenant::parse("a").unwrap(), Duration::from_secs(9)).unwrap();
        assert_eq!(known.verify(&key.sign(&short).unwrap(), now(), "any").unwrap(), short);
    }

    #[test]
    fn each_reason_to_refuse_a_token_has_its_own_name() {
        let (key, known) = keys();
        let (other, _) = keys();
        let token = key.sign(&claims()).unwrap();
        let code = |token: &str, now, service| known.verify(token, now, service).unwrap_err().code();
        assert_eq!(code("", 1_500, "node7"), "token_malformed");
        assert_eq!(code("telecl1.abc", 1_500, "node7"), "token_malformed");
        assert_eq!(code("telecl2.abc.def", 1_500, "node7"), "token_malformed");
        assert_eq!(code(&"x".repeat(5_000), 1_500, "node7"), "token_malformed");
        assert_eq!(code(&token, 2_000, "node7"), "token_expired");
        assert_eq!(code(&token, 900, "node7"), "token_not_yet");
        assert!(known.verify(&token, 950, "node7").is_ok(), "clocks may differ a little");
        assert_eq!(code(&token, 1_500, "node8"), "token_elsewhere");
        assert_eq!(code(&other.sign(&claims()).unwrap(), 1_500, "node7"), "token_forged");
        let (head, signature) = token.rsplit_once('.').unwrap();
        let more = BASE64.encode(serde_json::to_vec(&Claims { memory: None, ..claims() }).unwrap());
        assert_eq!(code(&format!("{PREFIX}.{more}.{signature}"), 1_500, "node7"), "token_forged");
        assert_eq!(code(&format!("{head}.{}", BASE64.encode([0; 64])), 1_500, "node7"), "token_forged");
        assert_eq!(code(&format!("{head}."), 1_500, "node7"), "token_forged");
        assert_eq!(VerifyingKeys::default().verify(&token, 1_500, "node7"), Err(TokenError::Forged));
        for wrong in [
            Claims { tenant: "no tenant".to_owned(), ..claims() },
            Claims { id: "short".to_owned(), ..claims() },
            Claims { devices: vec!["number:x".to_owned()], ..claims() },
            Claims { at: BTreeMap::from([("node7".to_owned(), vec!["number:x".to_owned()])]), ..claims() },
            Claims { job: Some("4711; rm".to_owned()), ..claims() },
        ] {
            assert_eq!(code(&key.sign(&wrong).unwrap(), 1_500, "node7"), "token_malformed", "{wrong:?}");
        }
        assert_eq!(TokenError::Expired(Ago(30_000)).to_string(), "the token has expired 8 h ago; ask for a new one");
    }

    #[test]
    fn a_token_can_be_good_for_other_devices_at_each_service() {
        let facts = |number, name| DeviceFacts { number, name, platform: "NVIDIA CUDA", uuid: None };
        let has = |claims: &Claims, service: &str| {
            let devices = claims.devices(service).unwrap();
            [facts(1, "H200"), facts(2, "H200"), facts(3, "A100")].map(|device| devices.has(&device))
        };
        let all = Claims::new(&Tenant::anonymous(), Duration::from_secs(9)).unwrap();
        assert_eq!(has(&all, "any"), [true; 3]);
        assert_eq!(has(&claims(), "node7"), [true, true, false], "those of devices");
        assert_eq!(has(&claims(), "gpu-9"), [false, true, false], "of these, the one of the service");
        assert_eq!(has(&claims(), "gpu-8"), [false; 3]);
        let (key, known) = keys();
        let token = key.sign(&claims()).unwrap();
        let refusal = known.verify(&token, 1_500, "gpu-8").unwrap_err();
        assert!(refusal.code() == "token_elsewhere" && refusal.to_string().contains("gpu-9, node*"), "{refusal}");
    }

    #[test]
    fn an_unknown_field_is_not_overlooked() {
        let (key, known) = keys();
        let mut payload = serde_json::to_value(claims()).unwrap();
        payload["only_on_sundays"] = true.into();
        let signed = format!("{PREFIX}.{}", BASE64.encode(payload.to_string()));
        let token = format!("{signed}.{}", BASE64.encode(key.0.sign(signed.as_bytes())));
        assert_eq!(known.verify(&token, 1_500, "node7").unwrap_err().code(), "token_malformed");
    }

    #[test]
    fn several_keys_may_be_known_and_tokens_can_be_revoked() {
        let place = tempfile::tempdir().unwrap();
        let made = [SigningKey::generate().unwrap(), SigningKey::generate().unwrap()];
        let both = place.path().join("both.pub");
        fs::write(&both, made.iter().map(|(_, public)| public.as_str()).collect::<String>()).unwrap();
        let known = VerifyingKeys::load(&both).unwrap();
        for (private, _) in &made {
            let path = place.path().join("key");
            fs::write(&path, private).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let token = SigningKey::load(&path).unwrap().sign(&claims()).unwrap();
            assert!(known.verify(&token, 1_500, "node7").is_ok());
        }
        let list = place.path().join("revoked");
        fs::write(&list, "# lost\n0123456789ABCDEF0123456789abcdef alice's laptop\n").unwrap();
        assert!(RevokedList::load(&list).unwrap().has(&claims()));
        assert!(!RevokedList::default().has(&claims()));
        fs::write(&both, "nonsense").unwrap();
        assert!(VerifyingKeys::load(&both).unwrap_err().to_string().contains("it has none"));
    }
}
