//! Which devices a rule means.

use std::fmt;

use telecl_config::nearest;
use toml::de::DeValue;

use crate::glob::{self, Glob};
use crate::value::{Plain, Value, wrong};

/// What a service knows of one of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts<'a> {
    /// The service's own number for it, which is in its log: `offering device device=1`.
    pub number: u64,
    /// CL_DEVICE_NAME.
    pub name: &'a str,
    /// CL_PLATFORM_NAME.
    pub platform: &'a str,
    /// CL_DEVICE_UUID_KHR in hexadecimal digits, where the vendor has it.
    pub uuid: Option<&'a str>,
}

/// A pattern for devices: by name, by platform, by number or by UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePattern {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Name(Glob),
    Platform(Glob),
    Number(u64),
    Uuid(String),
}

const KINDS: [&str; 4] = ["name", "platform", "number", "uuid"];

impl DevicePattern {
    /// Reads `*H200*` or `name:*H200*`, `platform:NVIDIA*`, `number:1`, `uuid:…`.
    pub fn parse(text: &str) -> Result<DevicePattern, String> {
        let text = text.trim();
        let advice = "write a name such as \"*H200*\", or \"platform:NVIDIA*\", \"number:1\", \"uuid:…\"";
        // A prefix is one small word; names that have one of their own are written name:….
        let word = |prefix: &str| !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_lowercase());
        let (kind, rest) = match text.split_once(':') {
            Some((prefix, rest)) if word(prefix) => (prefix, rest.trim()),
            _ => ("name", text),
        };
        if rest.is_empty() {
            return Err(format!("{text:?} is an empty pattern; {advice}"));
        }
        if let Some(c) = rest.chars().find(|c| c.is_control()) {
            return Err(format!("{text:?} has {c:?}, which no name has; {advice}"));
        }
        if rest.chars().count() > glob::MAX_LEN {
            return Err(format!("{text:?} is too long; write a pattern of {} characters at most", glob::MAX_LEN));
        }
        let kind = match kind {
            "name" => Kind::Name(Glob::new(&rest.to_lowercase())),
            "platform" => Kind::Platform(Glob::new(&rest.to_lowercase())),
            "number" => {
                let number = Some(rest).filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
                let number = number.and_then(|rest| rest.parse().ok());
                Kind::Number(number.ok_or_else(|| format!("{text:?} has no number; write \"number:1\" or the like"))?)
            }
            "uuid" => {
                let digits: String = rest.chars().filter(|c| *c != '-').collect::<String>().to_lowercase();
                if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(format!(
                        "{text:?} is not a UUID; write its 32 hexadecimal digits, with or without dashes"
                    ));
                }
                Kind::Uuid(digits)
            }
            other => {
                let meant = nearest(other, KINDS.into_iter()).map(|meant| format!(" (did you mean {meant}:?)"));
                return Err(format!("{text:?} begins with an unknown {other}:{}; {advice}", meant.unwrap_or_default()));
            }
        };
        Ok(DevicePattern { text: text.to_owned(), kind })
    }

    /// Whether a device is meant. Upper and lower case are the same.
    pub fn matches(&self, device: &DeviceFacts<'_>) -> bool {
        match &self.kind {
            Kind::Name(glob) => glob.matches(&device.name.to_lowercase()),
            Kind::Platform(glob) => glob.matches(&device.platform.to_lowercase()),
            Kind::Number(number) => *number == device.number,
            Kind::Uuid(uuid) => device.uuid.is_some_and(|known| known.replace('-', "").to_lowercase() == *uuid),
        }
    }

    /// Whether every device that `other` means is meant by this, whatever devices there are.
    pub fn covers(&self, other: &DevicePattern) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Name(wide), Kind::Name(narrow)) | (Kind::Platform(wide), Kind::Platform(narrow)) => {
                wide.covers(narrow)
            }
            (Kind::Name(all) | Kind::Platform(all), _) => all.covers(&Glob::new("*")),
            (one, other) => one == other,
        }
    }

    /// As it stands in the file.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for DevicePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The devices that a tenant may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<DevicePattern>);

impl Devices {
    /// All there are.
    pub(crate) fn all() -> Devices {
        Devices(vec![DevicePattern { text: "*".to_owned(), kind: Kind::Name(Glob::new("*")) }])
    }

    /// Whether a device is among them.
    pub fn allow(&self, device: &DeviceFacts<'_>) -> bool {
        self.0.iter().any(|pattern| pattern.matches(device))
    }

    /// The patterns, in the order of the file; none means no device.
    pub fn patterns(&self) -> &[DevicePattern] {
        &self.0
    }
}

impl Value for Devices {
    fn read(value: &DeValue<'_>) -> Result<Devices, String> {
        let expected = "a list of texts such as [\"*H200*\", \"number:1\"]";
        let DeValue::Array(items) = value else {
            return Err(wrong(value, expected));
        };
        let mut found: Vec<DevicePattern> = Vec::new();
        for item in items.iter() {
            let DeValue::String(text) = item.get_ref() else {
                return Err(wrong(item.get_ref(), expected));
            };
            let pattern = DevicePattern::parse(text)?;
            if found.contains(&pattern) {
                return Err(format!("\"{pattern}\" is in the list twice; write it once"));
            }
            found.push(pattern);
        }
        Ok(Devices(found))
    }

    fn plain(&self) -> Plain {
        Plain::List(self.0.iter().map(ToString::to_string).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: DeviceFacts<'_> = DeviceFacts {
        number: 3,
        name: "NVIDIA H200",
        platform: "NVIDIA CUDA",
        uuid: Some("0123456789abcdef0123456789abcdef"),
    };

    #[test]
    fn devices_are_meant_by_name_platform_number_or_uuid() {
        for (pattern, expected) in [
            ("*h200*", true),
            ("NVIDIA H200", true),
            ("H200", false),
            ("name:NVIDIA*", true),
            ("platform:nvidia*", true),
            ("platform:*portable*", false),
            ("number:3", true),
            ("number:0", false),
            ("uuid:01234567-89AB-CDEF-0123-456789abcdef", true),
            ("uuid:ffffffffffffffffffffffffffffffff", false),
        ] {
            assert_eq!(DevicePattern::parse(pattern).unwrap().matches(&H200), expected, "{pattern}");
        }
        let unknown = DeviceFacts { uuid: None, ..H200 };
        assert!(!DevicePattern::parse("uuid:ffffffffffffffffffffffffffffffff").unwrap().matches(&unknown));
    }

    #[test]
    fn a_name_that_looks_like_a_prefix_can_be_written() {
        let odd = DeviceFacts { name: "cpu:haswell", ..H200 };
        assert!(DevicePattern::parse("name:cpu:haswell").unwrap().matches(&odd));
        assert!(DevicePattern::parse("cpu:haswell").unwrap_err().contains("unknown cpu:"));
    }

    #[test]
    fn a_star_covers_patterns_of_every_kind_and_others_only_their_own() {
        let pattern = |text| DevicePattern::parse(text).unwrap();
        assert!(pattern("*").covers(&pattern("number:0")));
        assert!(pattern("platform:*").covers(&pattern("*H200*")));
        assert!(pattern("*H*").covers(&pattern("*h200*")));
        assert!(!pattern("*H*").covers(&pattern("number:0")));
        assert!(!pattern("number:0").covers(&pattern("number:1")));
        assert!(!pattern("number:0").covers(&pattern("*")));
    }
}
