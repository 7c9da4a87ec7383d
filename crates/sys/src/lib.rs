//! The OpenCL ABI: types, constants, status codes and the ICD dispatch table, up to OpenCL 3.0.
//!
//! Plain data that the driver implements and the service calls. Names keep their C spelling, so that a reader can
//! search the specification for them. Nothing is linked and nothing is called here: `telecl-opencl` loads a vendor's
//! OpenCL at run time, and the driver fills a [`DispatchTable`] with its own functions.

#![no_std]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod constants;
mod constants_ext;
mod dispatch;
mod error;
mod image;
mod types;

pub use constants::*;
pub use constants_ext::*;
pub use dispatch::*;
pub use error::*;
pub use image::*;
pub use types::*;
