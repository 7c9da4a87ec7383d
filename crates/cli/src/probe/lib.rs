//! What `telecl doctor` tries out in a process of its own: a library that should open, a vector
//! addition that should come out right. The only code of the command line that is not safe Rust.
//!
//! Both run foreign code in this process, so callers start a child for them.

mod addition;
mod library;

pub use addition::{Failure, add_vectors};
pub use library::{Loader, OpenError, Opened, open};
