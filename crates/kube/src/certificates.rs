//! A CA of the cluster's telecl, and the certificates that it gives to the webhook and to the services.
//!
//! They live in Secrets of telecl's own namespace. The leading controller makes them, and makes new ones long before they end;
//! everybody else only reads. A CA that was replaced stays in the bundle that pods get, so that a service with a certificate of
//! the old one is still trusted.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tracing::info;

/// The Secret with the CA and its key. Nobody but the controller reads it.
pub const CA_SECRET: &str = "telecl-ca";
/// The Secret with the services' certificate, which they mount.
pub const SERVICES_SECRET: &str = "telecl-services-tls";
/// The Secret with the webhook's certificate.
pub const WEBHOOK_SECRET: &str = "telecl-webhook-tls";

/// Until when what is in a Secret holds.
const EXPIRES: &str = "telecl.dev/expires";
/// What else a certificate depends on: its names, and the CA that gave it.
const MADE_FOR: &str = "telecl.dev/made-for";

const DAY: Duration = Duration::from_secs(86_400);
const CA_LIFETIME: Duration = Duration::from_secs(3650 * 86_400);
const LIFETIME: Duration = Duration::from_secs(90 * 86_400);
/// Clocks differ: certificates hold from a little before they are made.
const BEFORE: Duration = Duration::from_secs(3600);
/// A third of the lifetime is left to notice that renewal fails.
const fn left_when_renewed(lifetime: Duration) -> Duration {
    Duration::from_secs(lifetime.as_secs() / 3)
}

/// A certificate with its key (PEM).
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pair")
    }
}

/// All there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// Those who vouch for services and webhook (PEM), the newest first.
    pub ca: String,
    pub webhook: Pair,
}

/// For whom certificates are made, and who owns them.
#[derive(Clone, Debug)]
pub struct Keeper {
    pub secrets: Api<Secret>,
    pub webhook_names: Vec<String>,
    pub service_names: Vec<String>,
    /// With it they go.
    pub owner: Option<OwnerReference>,
}

impl Keeper {
    /// What is there, if it is complete.
    pub async fn read(&self) -> anyhow::Result<Option<Certificates>> {
        let ca = self.get(CA_SECRET).await?;
        let webhook = self.get(WEBHOOK_SECRET).await?;
        Ok(ca.zip(webhook).and_then(|(ca, webhook)| {
            Some(Certificates { ca: text(&ca, "ca.crt")?, webhook: pair(&webhook, "tls.crt", "tls.key")? })
        }))
    }

    /// Makes what is missing, wrong, or ends soon.
    pub async fn keep(&self, now: SystemTime) -> anyhow::Result<()> {
        let old = self.get(CA_SECRET).await?;
        let ca = match old.as_ref().filter(|old| holds(old, now, CA_LIFETIME, "ca")).and_then(Authority::of) {
            Some(ca) => ca,
            None => {
                let before = old.as_ref().and_then(|old| text(old, "ca.crt"));
                let (ca, pem) = Authority::new(now)?;
                let bundle = bundle(&pem, before.as_deref());
                let data = [("ca.crt", bundle), ("ca.key", ca.key.serialize_pem()), ("ca.name", ca.name.clone())];
                self.put(CA_SECRET, "Opaque", old, data, now + CA_LIFETIME, "ca").await?;
                ca
            }
        };
        for (name, names) in [(WEBHOOK_SECRET, &self.webhook_names), (SERVICES_SECRET, &self.service_names)] {
            let made_for = format!("{} {}", ca.name, names.join(" "));
            let old = self.get(name).await?;
            if !old.as_ref().is_some_and(|old| holds(old, now, LIFETIME, &made_for)) {
                let new = ca.issue(names, now)?;
                let data = [("tls.crt", new.certificate), ("tls.key", new.key)];
                self.put(name, "kubernetes.io/tls", old, data, now + LIFETIME, &made_for).await?;
            }
        }
        Ok(())
    }

    async fn get(&self, name: &str) -> anyhow::Result<Option<Secret>> {
        self.secrets.get_opt(name).await.with_context(|| format!("reading the Secret {name}"))
    }

    async fn put<const N: usize>(
        &self,
        name: &str,
        kind: &str,
        old: Option<Secret>,
        data: [(&str, String); N],
        expires: SystemTime,
        made_for: &str,
    ) -> anyhow::Result<()> {
        let annotations = [(EXPIRES, Timestamp::try_from(expires)?.to_string()), (MADE_FOR, made_for.to_owned())];
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
                labels: Some(BTreeMap::from([("app.kubernetes.io/name".to_owned(), "telecl".to_owned())])),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                // Whoever else has changed it meanwhile makes this one fail, and we look again.
                resource_version: old.as_ref().and_then(|old| old.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            type_: Some(kind.to_owned()),
            data: Some(data.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).into()),
            ..Secret::default()
        };
        let done = match old {
            None => self.secrets.create(&PostParams::default(), &secret).await,
            Some(_) => self.secrets.replace(name, &PostParams::default(), &secret).await,
        };
        done.with_context(|| format!("writing the Secret {name}"))?;
        info!(secret = name, "certificate made");
        Ok(())
    }
}

/// Whether a Secret is what it should be, for long enough.
fn holds(secret: &Secret, now: SystemTime, lifetime: Duration, made_for: &str) -> bool {
    let annotation = |key| secret.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
    let expires = annotation(EXPIRES).and_then(|text| text.parse::<Timestamp>().ok()).map(SystemTime::from);
    let long_enough = expires.is_some_and(|expires| expires > now + left_when_renewed(lifetime));
    let complete = ["tls.crt", "ca.crt"].iter().any(|key| text(secret, key).is_some());
    long_enough && complete && annotation(MADE_FOR) == Some(made_for)
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok().filter(|text| !text.is_empty())
}

fn pair(secret: &Secret, certificate: &str, key: &str) -> Option<Pair> {
    Some(Pair { certificate: text(secret, certificate)?, key: text(secret, key)? })
}

/// The new CA and the newest one before it.
fn bundle(new: &str, before: Option<&str>) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let last = before.and_then(|before| before.split_inclusive(END).next()).filter(|first| first.ends_with(END));
    last.map_or_else(|| new.to_owned(), |last| format!("{new}{}\n", last.trim_start()))
}

/// A CA that can sign.
struct Authority {
    name: String,
    key: KeyPair,
}

impl Authority {
    fn new(now: SystemTime) -> anyhow::Result<(Self, String)> {
        let key = KeyPair::generate()?;
        // Two CAs are not to have the same name: messages about a wrong one would mislead.
        let name = format!("telecl CA {}", Timestamp::try_from(now)?);
        let certificate = authority_params(&name, now)?.self_signed(&key)?;
        Ok((Self { name, key }, certificate.pem()))
    }

    fn of(secret: &Secret) -> Option<Self> {
        let key = KeyPair::from_pem(&text(secret, "ca.key")?).ok()?;
        Some(Self { name: text(secret, "ca.name")?, key })
    }

    fn issue(&self, names: &[String], now: SystemTime) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = named(names.first().map_or("telecl", String::as_str));
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        params.key_usages.push(KeyUsagePurpose::DigitalSignature);
        hold(&mut params, now, LIFETIME);
        let key = KeyPair::generate()?;
        let issuer = authority_params(&self.name, now)?;
        let certificate = params.signed_by(&key, &Issuer::from_params(&issuer, &self.key))?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn authority_params(name: &str, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    hold(&mut params, now, CA_LIFETIME);
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn hold(params: &mut CertificateParams, now: SystemTime, lifetime: Duration) {
    params.not_before = (now - BEFORE).into();
    // The Secret's note ends a day before the certificate does.
    params.not_after = (now + lifetime + DAY).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(annotations: [(&str, &str); 2], data: [(&str, &str); 1]) -> Secret {
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Secret {
            metadata: ObjectMeta { annotations: Some(annotations.map(own).into()), ..ObjectMeta::default() },
            data: Some(data.map(|(key, value)| (key.to_owned(), ByteString(value.into()))).into()),
            ..Secret::default()
        }
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left_or_it_is_for_something_else() {
        let now = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let good = |days: u32, made_for: &str| {
            let expires = Timestamp::try_from(now + days * DAY).unwrap().to_string();
            holds(&secret([(EXPIRES, &expires), (MADE_FOR, "ca names")], [("tls.crt", "pem")]), now, LIFETIME, made_for)
        };
        assert!(good(90, "ca names"));
        assert!(good(31, "ca names"));
        assert!(!good(29, "ca names"));
        assert!(!good(90, "ca other"));
        assert!(!holds(&Secret::default(), now, LIFETIME, "ca names"));
        let empty = secret([(EXPIRES, "2999-01-01T00:00:00Z"), (MADE_FOR, "x")], [("tls.crt", "")]);
        assert!(!holds(&empty, now, LIFETIME, "x"));
    }

    #[test]
    fn certificates_are_accepted_by_those_who_trust_the_ca() {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let now = SystemTime::now();
        let (ca, pem) = Authority::new(now).unwrap();
        let pair = ca.issue(&["telecl-services.telecl-system.svc".to_owned()], now).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        use rustls::client::danger::ServerCertVerifier;
        let verify = |name: &'static str| {
            verifier.verify_server_cert(
                &certificate,
                &[],
                &name.try_into().unwrap(),
                &[],
                rustls::pki_types::UnixTime::now(),
            )
        };
        verify("telecl-services.telecl-system.svc").unwrap();
        assert!(verify("elsewhere.telecl-system.svc").is_err());
    }

    #[test]
    fn the_bundle_has_the_new_ca_and_the_one_before() {
        let pem = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let two = bundle(&pem("b"), Some(&pem("a")));
        assert_eq!(two, format!("{}{}", pem("b"), pem("a")));
        assert_eq!(bundle(&pem("c"), Some(&two)), format!("{}{}", pem("c"), pem("b")));
        assert_eq!(bundle(&pem("c"), Some("nonsense")), pem("c"));
        assert_eq!(bundle(&pem("c"), None), pem("c"));
    }
}
