//! The node's own OpenCL, loaded at run time, behind types that cannot be used after they are released.
//!
//! [`Library::load`] opens the vendor's `libOpenCL` once and for ever. Every object is a handle with one reference:
//! `Clone` retains it, `Drop` releases it. Nothing is checked here that the vendor's driver checks itself; a function
//! that the loaded OpenCL does not have answers `CL_INVALID_OPERATION`.
//!
//! Three things stay `unsafe`, because OpenCL cannot promise them: commands on host memory that return before they are
//! done, kernel arguments given as bytes (a driver takes eight bytes for a handle where it expects one), and running a
//! kernel, which is somebody's code and uses arguments that it does not keep alive.

mod callback;
mod context;
mod device;
mod event;
mod handle;
mod image;
pub mod info;
mod kernel;
mod library;
mod mem;
mod order;
mod platform;
mod program;
mod queue;
mod sampler;
#[cfg(test)]
mod testing;
mod transfer;

pub use context::{Context, Notify};
pub use device::Device;
pub use event::Event;
pub use image::ImageRegion;
pub use kernel::{Kernel, NdRange};
pub use library::{Library, LoadError};
pub use mem::{Mem, element_size, image_data_size};
pub use order::Order;
pub use platform::Platform;
pub use program::Program;
pub use queue::Queue;
pub use sampler::Sampler;
pub use telecl_sys::{ClError, ClResult};
pub use transfer::RectSide;
