//! What the driver sends to a worker, in the order in which the program called.
//!
//! A request with a `call` number is answered by a `Reply` with the same number; all others are
//! one-way. The worker executes requests in order of arrival (builds run beside the stream), and
//! what a request refers to was created by an earlier one. If an earlier one failed, the worker
//! keeps its status under the id and answers later uses with it.

mod command;
mod object;
mod program;

pub use command::*;
pub use object::*;
pub use program::*;

use crate::Field;
use crate::codec::messages;

/// A body that has a number of its own.
pub trait Message<'a>: Field<'a> {
    const OPCODE: u16;
}

messages! {
    /// Every request. Numbers are appended, never reused.
    pub enum Request<'a> {
        1000 => Stage,
        1001 => Release,
        1002 => Query<'a>,
        1003 => CreateContext<'a>,
        1004 => CreateQueue<'a>,
        1005 => CreateBuffer<'a>,
        1006 => CreateSubBuffer,
        1007 => CreateImage<'a>,
        1008 => CreatePipe,
        1009 => CreateSampler<'a>,
        1010 => CreateUserEvent,
        1011 => SetUserEventStatus,
        1012 => CreateSubDevices<'a>,
        1013 => ImageFormats,
        1014 => DeviceTimers,
        1015 => SetDefaultDeviceQueue,
        1016 => Check,
        1017 => WatchEvent,

        1100 => CreateProgramWithSource,
        1101 => CreateProgramWithIl,
        1102 => CreateProgramWithBinaries<'a>,
        1103 => CreateProgramWithBuiltInKernels<'a>,
        1104 => SetSpecializationConstant<'a>,
        1105 => StoreFile,
        1106 => MakeTree<'a>,
        1107 => Build<'a>,
        1108 => Compile<'a>,
        1109 => Link<'a>,
        1110 => ProgramBinaries,
        1111 => CreateKernel<'a>,
        1112 => CloneKernel,
        1113 => SetArgs<'a>,

        1200 => RunKernel<'a>,
        1201 => ReadBuffer<'a>,
        1202 => ReadRect<'a>,
        1203 => ReadImage<'a>,
        1204 => WriteBuffer<'a>,
        1205 => WriteRect<'a>,
        1206 => WriteImage<'a>,
        1207 => CopyBuffer<'a>,
        1208 => CopyRect<'a>,
        1209 => CopyImage<'a>,
        1210 => CopyImageToBuffer<'a>,
        1211 => CopyBufferToImage<'a>,
        1212 => FillBuffer<'a>,
        1213 => FillImage<'a>,
        1214 => Migrate<'a>,
        1215 => Marker<'a>,
        1216 => Barrier<'a>,
        1218 => Finish,
    }
}
