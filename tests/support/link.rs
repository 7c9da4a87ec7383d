//! How a program's bytes reach a service on its own node.

use std::fmt;
use std::process::Command;

/// A means of transport between driver and worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Tcp,
    SharedMemory,
    /// TCP, with so many further streams.
    Streams(u32),
}

impl Link {
    /// Those that are links of their own.
    pub const ALL: [Link; 2] = [Link::Tcp, Link::SharedMemory];

    /// Those that large transfers may use in addition.
    pub const STREAMS: [Link; 2] = [Link::Streams(1), Link::Streams(3)];

    /// Has the driver of `command` use this link. Shared memory is what it takes by itself, if it can.
    pub(crate) fn choose(self, command: &mut Command) {
        match self {
            Link::Tcp => command.env("TELECL_SHARED_MEMORY", "0").env("TELECL_STREAMS", "0"),
            Link::SharedMemory => command.env_remove("TELECL_SHARED_MEMORY"),
            Link::Streams(count) => command.env("TELECL_SHARED_MEMORY", "0").env("TELECL_STREAMS", count.to_string()),
        };
    }

    /// The link that a worker sees at its start.
    pub(crate) fn first(self) -> Link {
        match self {
            Link::Streams(_) => Link::Tcp,
            link => link,
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Tcp => f.write_str("over TCP"),
            Link::SharedMemory => f.write_str("through shared memory"),
            Link::Streams(count) => write!(f, "over TCP with {count} further streams"),
        }
    }
}
