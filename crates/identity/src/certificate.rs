//! The tenant in a driver's certificate: a URI `telecl:tenant:NAME` among its alternative names, or else its common name.

use rustls::pki_types::CertificateDer;
use telecl_policy::Tenant;
use webpki::EndEntityCert;

/// What the URI begins with.
pub(crate) const TENANT_URI: &str = "telecl:tenant:";

/// 2.5.4.3, the common name.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// Whose certificate it is; it has been verified before. `None` if it names no tenant.
pub fn tenant_of_certificate(certificate: &CertificateDer<'_>) -> Option<Tenant> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let of_uri = parsed.valid_uri_names().find_map(|uri| Tenant::parse(uri.strip_prefix(TENANT_URI)?).ok());
    of_uri.or_else(|| Tenant::parse(common_name(parsed.subject())?).ok())
}

/// The common name of a certificate.
pub(crate) fn common_name_of(certificate: &CertificateDer<'static>) -> Option<String> {
    common_name(EndEntityCert::try_from(certificate).ok()?.subject()).map(str::to_owned)
}

/// The last common name in a subject: a list of sets of pairs, as DER has it.
fn common_name(mut subject: &[u8]) -> Option<&str> {
    let mut found = None;
    while let Some((set, rest)) = element(subject, 0x31) {
        subject = rest;
        let (pair, _) = element(set, 0x30)?;
        if let Some(value) = pair.strip_prefix(&COMMON_NAME) {
            // A UTF8String or a PrintableString.
            let (text, _) = element(value, 0x0c).or_else(|| element(value, 0x13))?;
            found = std::str::from_utf8(text).ok();
        }
    }
    found
}

/// The content of an element with this tag, and what follows it. Only lengths below 64 KiB, as names have.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(&[tag])?;
    let (length, rest) = match rest {
        [length @ 0..=0x7f, rest @ ..] => (usize::from(*length), rest),
        [0x81, length, rest @ ..] => (usize::from(*length), rest),
        [0x82, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn tenant(name: Option<&str>, uri: Option<&str>) -> Option<String> {
        let mut params = CertificateParams::new(vec!["host".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "o".repeat(200));
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        if let Some(uri) = uri {
            params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        }
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        tenant_of_certificate(made.der()).map(|tenant| tenant.as_str().to_owned())
    }

    #[test]
    fn a_certificate_names_its_tenant() {
        assert_eq!(tenant(Some("alice"), None).as_deref(), Some("alice"));
        assert_eq!(tenant(Some("alice"), Some("telecl:tenant:team/red")).as_deref(), Some("team/red"));
        assert_eq!(tenant(Some("alice"), Some("https://example.org")).as_deref(), Some("alice"));
        assert_eq!(tenant(None, Some("telecl:tenant:red")).as_deref(), Some("red"));
        assert_eq!(tenant(Some("no tenant's name"), None), None);
        assert_eq!(tenant(None, None), None);
    }

    #[test]
    fn nonsense_is_no_name() {
        for bytes in [&b""[..], &[0x31], &[0x31, 5, 0x30], &[0x31, 0x84, 1, 1, 1, 1], &[0x31, 2, 0x30, 0]] {
            assert_eq!(common_name(bytes), None, "{bytes:?}");
        }
    }
}
