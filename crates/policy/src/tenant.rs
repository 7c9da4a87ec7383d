//! Whom a session is accounted to.

use std::fmt;
use std::str::FromStr;

/// A tenant's name: 1 to 100 letters, digits and `. _ - : / @ +`, of which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(String);

/// Why a text is not a tenant's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// There is nothing in it.
    #[error("a tenant's name cannot be empty")]
    Empty,
    /// It is too long.
    #[error("a tenant's name has at most {max} letters, this one has {0}", max = Tenant::MAX_LEN)]
    TooLong(usize),
    /// It has a character that names do not have.
    #[error("a tenant's name has letters, digits and . _ - : / @ + only, not {0:?}")]
    Character(char),
    /// It begins with punctuation.
    #[error("a tenant's name begins with a letter or a digit, not with {0:?}")]
    Beginning(char),
}

impl Tenant {
    /// The longest name. It is a label of metrics and a word in log lines.
    pub const MAX_LEN: usize = 100;

    /// Takes a name that is right.
    pub fn parse(name: &str) -> Result<Tenant, TenantError> {
        let first = name.chars().next().ok_or(TenantError::Empty)?;
        if let Some(wrong) = name.chars().find(|c| !is_name_character(*c)) {
            return Err(TenantError::Character(wrong));
        }
        if !first.is_ascii_alphanumeric() {
            return Err(TenantError::Beginning(first));
        }
        if name.len() > Tenant::MAX_LEN {
            return Err(TenantError::TooLong(name.len()));
        }
        Ok(Tenant(name.to_owned()))
    }

    /// The tenant of a local user for whom a policy says nothing else: `user:NAME`, or `uid:NUMBER` for a user without
    /// a name or with one that cannot be a tenant's.
    pub fn of_user(uid: u32, name: Option<&str>) -> Tenant {
        // Both prefixes are of the service's making: a user named "1000" becomes user:1000, which is not uid:1000.
        let named = name.filter(|name| !name.is_empty()).and_then(|name| Tenant::parse(&format!("user:{name}")).ok());
        named.unwrap_or_else(|| Tenant(format!("uid:{uid}")))
    }

    /// The tenant of pods: `namespace/serviceaccount`, with `@profile` behind it for those that want one. A service
    /// account's name that is too long is cut, and told from others by a hash of it.
    pub fn of_service_account(namespace: &str, name: &str, profile: Option<&str>) -> Result<Tenant, TenantError> {
        let suffix = profile.map(|profile| format!("@{profile}")).unwrap_or_default();
        let whole = format!("{namespace}/{name}{suffix}");
        if whole.len() <= Tenant::MAX_LEN {
            return Tenant::parse(&whole);
        }
        // FNV-1a: names of one namespace are to be told apart, and nobody gains by two that are not.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let room = Tenant::MAX_LEN.saturating_sub(namespace.len() + suffix.len() + 10);
        let kept: String = name.chars().take(room).collect();
        Tenant::parse(&format!("{namespace}/{kept}-{:08x}{suffix}", hash as u32))
    }

    /// The tenant of a session that shows neither a credential nor a user.
    pub fn anonymous() -> Tenant {
        Tenant("anonymous".to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tenant {
    type Err = TenantError;

    fn from_str(name: &str) -> Result<Tenant, TenantError> {
        Tenant::parse(name)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether names, and so patterns for them, may have this.
pub(crate) fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-:/@+".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for name in ["a", "team-red", "user:alice", "uid:1000", "ns/pod-7", "alice@example.org", "7", &"x".repeat(100)]
        {
            assert_eq!(Tenant::parse(name).unwrap().as_str(), name);
        }
        for (name, part) in [
            ("", "cannot be empty"),
            ("-a", "begins with a letter or a digit, not with '-'"),
            (":x", "begins with"),
            ("a b", "not ' '"),
            ("a\n", "not '\\n'"),
            ("a*", "not '*'"),
            ("müller", "not 'ü'"),
            (&"x".repeat(101), "has at most 100 letters, this one has 101"),
        ] {
            let error = Tenant::parse(name).unwrap_err().to_string();
            assert!(error.contains(part), "{name:?}: {error}");
        }
    }

    #[test]
    fn pods_are_tenants_by_their_service_account_however_long_its_name_is() {
        let name = |namespace: &str, name: &str, profile| {
            Tenant::of_service_account(namespace, name, profile).map(|tenant| tenant.as_str().to_owned())
        };
        assert_eq!(name("team-a", "default", None).unwrap(), "team-a/default");
        assert_eq!(name("team-a", "default", Some("small")).unwrap(), "team-a/default@small");
        let (a, b) = ("x".repeat(253), "x".repeat(252) + "y");
        let one = name(&"n".repeat(63), &a, Some("small")).unwrap();
        assert!(one.len() == 100 && one.starts_with(&"n".repeat(63)) && one.ends_with("@small"), "{one}");
        assert_ne!(one, name(&"n".repeat(63), &b, Some("small")).unwrap());
        assert!(name("a b", "x", None).is_err() && name("", "x", None).is_err());
        assert!(name(&"n".repeat(63), &a, Some(&"p".repeat(63))).is_err(), "no room for it at all");
    }

    #[test]
    fn a_user_is_a_tenant_whatever_its_name_is() {
        assert_eq!(Tenant::of_user(1000, Some("alice")).as_str(), "user:alice");
        assert_eq!(Tenant::of_user(1000, Some("1000")).as_str(), "user:1000");
        for odd in [None, Some(""), Some("DOMAIN\\alice"), Some("ali ce"), Some("x".repeat(200).as_str())] {
            assert_eq!(Tenant::of_user(1000, odd).as_str(), "uid:1000", "{odd:?}");
        }
        assert!(Tenant::parse(Tenant::of_user(u32::MAX, None).as_str()).is_ok());
        assert!(Tenant::parse(Tenant::anonymous().as_str()).is_ok());
    }
}
