//! What the program has created, mirrored: one file per kind of OpenCL object.
//!
//! Objects are checked here, so that the exact OpenCL error returns at once; what passes becomes a
//! message to the worker. Comments above checks are the specification's sentences. No pointer of the
//! program is dereferenced here: [`crate::abi`] turns them into slices, `HostPointer`s and closures.

mod buffer;
mod command;
mod context;
mod copy;
mod device;
mod event;
mod extensions;
mod foresight;
mod image;
mod info;
mod kernel;
mod map;
mod memory;
mod pipe;
mod platform;
mod program;
mod program_build;
mod queue;
mod sampler;
mod shadow;
mod transfer;

pub(crate) use buffer::BufferRequest;
pub(crate) use command::Submission;
pub(crate) use context::{Context, Notify};
pub(crate) use copy::RectCopy;
pub(crate) use device::{Device, TELECL_NODE_EXTENSION};
pub(crate) use event::{Event, wait_for_all};
pub(crate) use image::{ImageRequest, ImageShape};
pub(crate) use info::InfoValue;
pub(crate) use kernel::{ArgInput, Kernel, NdRange};
pub(crate) use memory::Memory;
pub(crate) use platform::{find_device, find_platform, platforms};
pub(crate) use program::Program;
pub(crate) use program_build::{BuildTask, OnBuilt};
pub(crate) use queue::{Queue, QueueProperties};
pub(crate) use sampler::{Sampler, SamplerRequest};
pub(crate) use transfer::{Blocking, RectTransfer};
