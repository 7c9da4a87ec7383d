//! What a tenant gets, or a device takes, and which line of the file says so.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use toml::de::DeValue;

use crate::device::Devices;
use crate::quantity::Percent;
use crate::tenant::Tenant;
use crate::value::{DeviceOrder, Memory, Overrun, Plain, Priority, Value, Wait, Whole};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file does not say it.
    BuiltIn,
    /// This table of the file: `[defaults]` or `[service]`.
    Table { name: &'static str, line: usize },
    /// This rule, by the pattern that matched.
    Rule { table: &'static str, pattern: String, line: usize },
}

impl Origin {
    /// The same place, at another line.
    fn at(&self, line: usize) -> Origin {
        match self {
            Origin::BuiltIn => Origin::BuiltIn,
            Origin::Table { name, .. } => Origin::Table { name, line },
            Origin::Rule { table, pattern, .. } => Origin::Rule { table, pattern: pattern.clone(), line },
        }
    }

    /// The line of the file that says it.
    pub fn line(&self) -> Option<usize> {
        match self {
            Origin::BuiltIn => None,
            Origin::Table { line, .. } | Origin::Rule { line, .. } => Some(*line),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("built in"),
            Origin::Table { name, line } => write!(f, "[{name}], line {line}"),
            Origin::Rule { table, pattern, line } => write!(f, "[[{table}]] \"{pattern}\", line {line}"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

/// One value of a grant, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key that sets it.
    pub key: &'static str,
    /// The value.
    pub value: Plain,
    /// Where it comes from.
    pub origin: Origin,
}

/// A value and the line it stands on.
#[derive(Clone, Debug)]
pub(crate) struct Said<T> {
    pub(crate) value: T,
    pub(crate) line: usize,
}

/// The first of these tables that says something, or else what is built in.
fn resolve<T: Value>(said: [Option<(&Said<T>, &Origin)>; 2], built_in: T) -> Granted<T> {
    match said.into_iter().flatten().next() {
        Some((said, origin)) => Granted { value: said.value.clone(), origin: origin.at(said.line) },
        None => Granted { value: built_in, origin: Origin::BuiltIn },
    }
}

impl Grant {
    /// For whom `device_memory` and `sessions` are counted.
    pub fn account(&self) -> &Tenant {
        self.account.value.as_ref().unwrap_or(&self.tenant)
    }

    /// With whom the tenant shares one part of a device's time: all others under the same rule, if that has an account;
    /// otherwise nobody.
    pub fn share_key(&self) -> &str {
        match (&self.account.value, &self.rule) {
            (Some(_), Some((pattern, _))) => pattern,
            _ => self.tenant.as_str(),
        }
    }
}

/// One list makes the keys, the reader of a table, what results from two tables, and the rows to show.
macro_rules! keys {
    (
        $(#[$said_doc:meta])* $said:ident;
        $(#[$grant_doc:meta])* $grant:ident { $($(#[$extra_doc:meta])* $extra:ident: $extra_kind:ty,)* }
        $($(#[$doc:meta])* $field:ident: $read:ty => $kind:ty = $built_in:expr, $convert:expr;)*
    ) => {
        $(#[$said_doc])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $said {
            $(pub(crate) $field: Option<Said<$read>>,)*
        }

        impl $said {
            /// Every key of such a table.
            pub(crate) const KEYS: &[&str] = &[$(stringify!($field)),*];

            /// Takes the value of a key; `false` if there is no such key.
            pub(crate) fn set(&mut self, name: &str, line: usize, value: &DeValue<'_>) -> Result<bool, String> {
                match name {
                    $(stringify!($field) => self.$field = Some(Said { value: Value::read(value)?, line }),)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// What it sets.
            pub(crate) fn said(&self) -> Vec<(&'static str, Plain)> {
                let all = [$(self.$field.as_ref().map(|said| (stringify!($field), said.value.plain())),)*];
                all.into_iter().flatten().collect()
            }
        }

        $(#[$grant_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $grant {
            $($(#[$extra_doc])* pub $extra: $extra_kind,)*
            $($(#[$doc])* pub $field: Granted<$kind>,)*
            rows: Vec<Row>,
        }

        impl $grant {
            /// What a rule, if there is one, and the table for all others make together.
            #[allow(clippy::redundant_closure_call)]
            pub(crate) fn new(
                $($extra: $extra_kind,)*
                rule: Option<(&$said, &Origin)>,
                others: (&$said, &Origin),
            ) -> $grant {
                let mut rows = Vec::new();
                $(let $field = {
                    let own = rule.and_then(|(table, origin)| table.$field.as_ref().map(|said| (said, origin)));
                    let other = others.0.$field.as_ref().map(|said| (said, others.1));
                    let read: Granted<$read> = resolve([own, other], $built_in);
                    rows.push(Row { key: stringify!($field), value: read.value.plain(), origin: read.origin.clone() });
                    Granted { value: $convert(read.value), origin: read.origin }
                };)*
                $grant { $($extra,)* $($field,)* rows }
            }

            /// All values, in the order of the documentation.
            pub fn rows(&self) -> &[Row] {
                &self.rows
            }
        }
    };
}

type Weight = Whole<1_000>;
type Count = Whole<1_000_000>;

fn count(read: Option<Count>) -> Option<NonZeroU32> {
    read.map(|count| count.0)
}

keys! {
    /// What `[defaults]` or a `[[tenant]]` says.
    Limits;
    /// What a tenant gets.
    Grant {
        /// Who.
        tenant: Tenant,
        /// The pattern of the rule that matched, and its line; `None` if no rule did.
        rule: Option<(String, usize)>,
    }
    /// The devices it may see.
    devices: Devices => Devices = Devices::all(), |read| read;
    /// The memory of one device that all its sessions together may use.
    device_memory: Option<Memory> => Option<Memory> = None, |read| read;
    /// The memory of one device that one session may use.
    session_memory: Option<Memory> => Option<Memory> = None, |read| read;
    /// Its part of a device's time, against the weights of others.
    weight: Weight => NonZeroU32 = Whole(NonZeroU32::MIN), |read: Weight| read.0;
    /// The most of a device's time, also if nobody else wants it.
    cap: Option<Percent> => Option<Percent> = None, |read| read;
    /// Who goes first.
    priority: Priority => Priority = Priority::Normal, |read| read;
    /// Sessions at once.
    sessions: Option<Count> => Option<NonZeroU32> = None, count;
    /// Whom `device_memory` and `sessions` are counted for, together with others that name the same.
    account: Option<Tenant> => Option<Tenant> = None, |read| read;
    /// Commands that one session may have under way.
    commands: Option<Count> => Option<NonZeroU32> = None, count;
    /// How long a program may take to build.
    longest_build: Option<Duration> => Option<Duration> = None, |read| read;
    /// How long a session may do nothing before it is ended.
    longest_idle: Option<Duration> => Option<Duration> = None, |read| read;
    /// How long a kernel may run.
    longest_kernel: Option<Duration> => Option<Duration> = None, |read| read;
    /// What happens when one runs longer.
    kernel_overrun: Overrun => Overrun = Overrun::Report, |read| read;
    /// Whether its buffers may go to host memory so that more sessions fit.
    oversubscribe: bool => bool = false, |read| read;
}

keys! {
    /// What `[service]` or a `[[device]]` says.
    Room;
    /// How many sessions a device takes.
    DeviceGrant {}
    /// Sessions at once.
    sessions_per_device: Option<Count> => Option<NonZeroU32> = None, count;
    /// How long a session waits for room before it is refused; zero refuses at once.
    admission_wait: Wait => Duration = Wait(Duration::ZERO), |read: Wait| read.0;
    /// In which order devices are listed; of the service as a whole.
    order: DeviceOrder => DeviceOrder = DeviceOrder::Number, |read| read;
}
