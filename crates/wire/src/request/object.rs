//! Contexts, queues, memory, samplers, events, and what may be asked about them.

use crate::Ids;
use crate::codec::{bodies, byte_enums};
use crate::reply::Format;

byte_enums! {
    /// Which table of the worker an id belongs to.
    pub enum Kind {
        Context = 1,
        Queue = 2,
        Memory = 3,
        Sampler = 4,
        Program = 5,
        Kernel = 6,
        Event = 7,
        /// A sub-device.
        Device = 8,
        /// An include tree.
        Tree = 9,
    }

    /// Which `clGet*Info` function a [`Query`] stands for.
    pub enum Target {
        /// `object` is the platform's index.
        Platform = 1,
        Device = 2,
        Memory = 3,
        Image = 4,
        Program = 5,
        /// On `device`.
        ProgramBuild = 6,
        Kernel = 7,
        /// Argument number `index`.
        KernelArg = 8,
        /// On `device`, or on the only one if that is 0.
        KernelWorkGroup = 9,
        /// On `device`, with `input`.
        KernelSubGroup = 10,
        Queue = 11,
        Sampler = 12,
        Event = 13,
        Pipe = 14,
        Context = 15,
    }
}

bodies! {
    /// Bulk data for a later request, which names it by `id`; payloads with the same id are joined.
    pub struct Stage {
        pub id: u64,
    }

    /// The program has given up its last reference.
    pub struct Release {
        pub kind: Kind,
        pub id: u64,
    }

    /// A `clGet*Info` that the driver cannot answer; the reply's payload is the value.
    pub struct Query<'a> {
        pub call: u64,
        pub target: Target,
        pub object: u64,
        pub device: u64,
        pub index: u32,
        pub param: u32,
        pub input: &'a [u8],
    }

    /// Asks whether a one-way create succeeded; the reply's status is the answer.
    pub struct Check {
        pub call: u64,
        pub kind: Kind,
        pub id: u64,
    }

    pub struct CreateContext<'a> {
        pub id: u64,
        /// Index of the platform.
        pub platform: u32,
        pub devices: Ids<'a>,
    }

    pub struct CreateQueue<'a> {
        pub id: u64,
        pub context: u64,
        pub device: u64,
        /// Property names and values in turn, without the final zero. Just CL_QUEUE_PROPERTIES and
        /// a value (or nothing) can be made with the function of OpenCL 1.0.
        pub properties: Ids<'a>,
    }

    /// Initial content, if any, is the payload or what was staged under `staged`.
    pub struct CreateBuffer<'a> {
        pub id: u64,
        pub context: u64,
        /// The program's flags without USE_HOST_PTR, ALLOC_HOST_PTR and COPY_HOST_PTR.
        pub flags: u64,
        pub size: u64,
        /// 0 if the content is the payload, or there is none.
        pub staged: u64,
        pub properties: Ids<'a>,
    }

    pub struct CreateSubBuffer {
        pub id: u64,
        pub parent: u64,
        pub flags: u64,
        pub origin: u64,
        pub size: u64,
    }

    /// Initial content, packed without pitches, comes as for [`CreateBuffer`].
    pub struct CreateImage<'a> {
        pub id: u64,
        pub context: u64,
        pub flags: u64,
        pub format: Format,
        pub desc: ImageDesc,
        pub staged: u64,
        pub properties: Ids<'a>,
    }

    /// `cl_image_desc`; `parent` is the id of a buffer or image, or 0.
    pub struct ImageDesc {
        pub kind: u32,
        pub width: u64,
        pub height: u64,
        pub depth: u64,
        pub array_size: u64,
        /// Of an image made from a buffer; otherwise 0.
        pub row_pitch: u64,
        pub slice_pitch: u64,
        pub mip_levels: u32,
        pub samples: u32,
        pub parent: u64,
    }

    pub struct CreatePipe {
        pub id: u64,
        pub context: u64,
        pub flags: u64,
        pub packet_size: u32,
        pub max_packets: u32,
    }

    pub struct CreateSampler<'a> {
        pub id: u64,
        pub context: u64,
        pub normalized: bool,
        pub addressing: u32,
        pub filter: u32,
        /// For the function of OpenCL 2.0; empty for that of 1.0, which needs the fields above.
        pub properties: Ids<'a>,
    }

    pub struct CreateUserEvent {
        pub id: u64,
        pub context: u64,
    }

    pub struct SetUserEventStatus {
        pub event: u64,
        pub status: i32,
    }

    /// Asks for `StatusReached` when the event is CL_SUBMITTED or CL_RUNNING.
    pub struct WatchEvent {
        pub event: u64,
        pub status: i32,
    }

    /// The sub-devices get the ids `first_id`, `first_id + 1`, … ; at most `room` are expected.
    pub struct CreateSubDevices<'a> {
        pub call: u64,
        pub device: u64,
        /// `cl_device_partition_property` values (signed in C), without the final zero.
        pub properties: Ids<'a>,
        pub first_id: u64,
        pub room: u32,
    }

    pub struct ImageFormats {
        pub call: u64,
        pub context: u64,
        pub flags: u64,
        pub kind: u32,
    }

    pub struct DeviceTimers {
        pub call: u64,
        pub device: u64,
    }

    pub struct SetDefaultDeviceQueue {
        pub call: u64,
        pub context: u64,
        pub device: u64,
        pub queue: u64,
    }
}
