//! What `telecl doctor` and `telecl bench` do in a process of their own: open a library, add vectors,
//! measure. The only code of the command line that is not safe Rust.
//!
//! All of it runs foreign code in this process, so callers start a child for it.

mod addition;
mod library;
mod rig;
mod spin;

pub use addition::{Failure, add_vectors};
pub use library::{Loader, OpenError, Opened, open};
pub use rig::{CHUNK, PAGE, Rig};
pub use spin::Spinner;
