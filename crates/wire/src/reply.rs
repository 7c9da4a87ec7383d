//! What a worker sends to the driver.

use crate::codec::{bodies, byte_enums, messages};
use crate::region::Region;

bodies! {
    /// Answers the request with the same `call`. What the request asked for is the payload,
    /// after the payloads of any [`ReplyPart`] before it.
    pub struct Reply {
        pub call: u64,
        pub status: i32,
    }

    /// A piece of an answer too long for one frame.
    pub struct ReplyPart {
        pub call: u64,
    }

    /// A command has ended, all its data has been sent. Sent for every command that named an event.
    pub struct Completed {
        pub event: u64,
        /// CL_COMPLETE (0) or the error.
        pub status: i32,
        /// CL_PROFILING_COMMAND_QUEUED, SUBMIT, START, END, COMPLETE; zero where there are none.
        pub profile: [u64; 5],
    }

    /// A command reached a status that the driver asked to be told about with `WatchEvent`.
    pub struct StatusReached {
        pub event: u64,
        pub status: i32,
    }

    /// A piece of what a read command fetched; the payload has the bytes of `region`, packed.
    pub struct Data {
        pub event: u64,
        /// Which part of the command's own region this is: for linear reads bytes along x, for
        /// rectangular ones bytes, rows, slices, for images pixels.
        pub region: Region,
    }

    /// A one-way request failed. If it named an event, a `Completed` with the status follows.
    pub struct Failed<'a> {
        /// Number of the request that failed.
        pub opcode: u16,
        pub status: i32,
        /// The context to tell, or 0 if it is not known.
        pub context: u64,
        /// The queue it was for, or 0.
        pub queue: u64,
        /// The object that it would have created or changed, or 0.
        pub object: u64,
        /// What went wrong, for people.
        pub message: &'a str,
    }

    /// The vendor called a context's error callback.
    pub struct ContextNotice<'a> {
        pub context: u64,
        pub message: &'a str,
        pub private_info: &'a [u8],
    }

    /// Something that kernels printed; the payload is the text. Arrives before the completion of the
    /// command that printed it.
    pub struct Output {}

    /// The service ends the session and says why; nothing follows.
    pub struct Closing<'a> {
        pub reason: &'a str,
        /// Whether a policy wants it so, and nothing is broken: the user is told.
        pub policy: bool,
    }
}

messages! {
    /// Everything that a worker sends.
    pub enum FromWorker<'a> {
        100 => Reply,
        101 => ReplyPart,
        102 => Completed,
        103 => StatusReached,
        104 => Data,
        105 => Failed<'a>,
        106 => ContextNotice<'a>,
        107 => Output,
        108 => Closing<'a>,
    }
}

byte_enums! {
    /// What a kernel's argument is, as far as the vendor's driver says.
    pub enum ArgKind {
        /// The vendor does not say.
        Unknown = 0,
        /// Plain bytes.
        Value = 1,
        /// Local memory: a size, no value.
        Local = 2,
        /// A buffer, or a null pointer.
        Buffer = 3,
        Image = 4,
        Sampler = 5,
        /// A device-side queue.
        Queue = 6,
        Pipe = 7,
    }
}

bodies! {
    /// Payload of the reply to `Build`, `Compile` and `Link`.
    pub struct BuildReport<'a> {
        pub devices: Vec<DeviceBuild<'a>>,
        /// Of an executable: its kernels, in the vendor's order.
        pub kernels: Vec<KernelReport<'a>>,
        /// Where the worker keeps include trees: (tree, directory), to be replaced in the logs.
        pub trees: Vec<TreeDirectory<'a>>,
    }

    pub struct TreeDirectory<'a> {
        pub tree: u64,
        pub directory: &'a str,
    }

    /// `clGetProgramBuildInfo` for one device.
    pub struct DeviceBuild<'a> {
        pub device: u64,
        pub status: i32,
        pub binary_type: u32,
        pub log: &'a [u8],
        /// CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE; 0 where the driver does not know it.
        pub global_variables: u64,
    }

    /// One kernel of a built program.
    pub struct KernelReport<'a> {
        pub name: &'a [u8],
        /// CL_KERNEL_ATTRIBUTES without the final NUL.
        pub attributes: &'a [u8],
        pub args: Vec<ArgReport<'a>>,
        pub devices: Vec<KernelOnDevice>,
    }

    /// One argument: what it is, and `clGetKernelArgInfo`.
    pub struct ArgReport<'a> {
        pub kind: ArgKind,
        /// Bytes of a plain value; 0 where that is not known.
        pub size: u32,
        /// CL_SUCCESS, or what the vendor answers to `clGetKernelArgInfo`; then the rest is empty.
        pub info_status: i32,
        pub address_qualifier: u32,
        pub access_qualifier: u32,
        pub type_qualifier: u64,
        pub type_name: &'a [u8],
        pub name: &'a [u8],
    }

    /// `clGetKernelWorkGroupInfo` for one device.
    pub struct KernelOnDevice {
        pub device: u64,
        pub work_group_size: u64,
        pub compile_work_group_size: [u64; 3],
        pub preferred_multiple: u64,
        pub local_mem_size: u64,
        pub private_mem_size: u64,
    }

    /// Payload of the reply to `CreateProgramWithBinaries`.
    pub struct BinaryStatuses {
        pub statuses: Vec<i32>,
    }

    /// Payload of the reply to `ProgramBinaries`: one per device of the program, empty if it has none.
    pub struct Binaries<'a> {
        pub binaries: Vec<&'a [u8]>,
    }

    /// Payload of the reply to `CreateSubDevices`, in the vendor's order.
    pub struct SubDevices<'a> {
        pub devices: Vec<crate::info::Device<'a>>,
    }

    /// Payload of the reply to `ImageFormats`.
    pub struct ImageFormats {
        pub formats: Vec<Format>,
    }

    /// `cl_image_format`.
    pub struct Format {
        pub order: u32,
        pub data_type: u32,
    }

    /// Payload of the reply to `DeviceTimers`.
    pub struct Timers {
        pub device_ns: u64,
        pub host_ns: u64,
    }
}
