//! How a program's bytes reach a service on its own node.

use std::fmt;
use std::process::Command;

/// A means of transport between driver and worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Tcp,
    SharedMemory,
}

impl Link {
    pub const ALL: [Link; 2] = [Link::Tcp, Link::SharedMemory];

    /// Has the driver of `command` use this link. Shared memory is what it takes by itself, if it can.
    pub(crate) fn choose(self, command: &mut Command) {
        match self {
            Link::Tcp => command.env("TELECL_SHARED_MEMORY", "0"),
            Link::SharedMemory => command.env_remove("TELECL_SHARED_MEMORY"),
        };
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::Tcp => "over TCP",
            Link::SharedMemory => "through shared memory",
        })
    }
}
