//! What goes into a command queue.

use crate::Ids;
use crate::codec::bodies;
use crate::request::program::Arg;

bodies! {
    /// What all commands have.
    pub struct Command<'a> {
        pub queue: u64,
        /// The id of the command's event, or 0 if nobody asks for its end.
        pub event: u64,
        /// Whether the program has the event: it may ask for its times, and other commands may wait for it.
        pub seen: bool,
        /// Events of this session that must end first.
        pub waits: Ids<'a>,
    }

    pub struct RunKernel<'a> {
        pub command: Command<'a>,
        pub kernel: u64,
        /// Arguments that changed since the last run.
        pub args: Vec<Arg<'a>>,
        pub dimensions: u32,
        pub offset: Option<[u64; 3]>,
        pub global: [u64; 3],
        pub local: Option<[u64; 3]>,
    }

    /// The bytes come back as `Data`, then `Completed`. All reads name an event.
    pub struct ReadBuffer<'a> {
        pub command: Command<'a>,
        pub buffer: u64,
        pub offset: u64,
        pub size: u64,
    }

    /// A box of a buffer; x is in bytes, pitches are those of the buffer.
    pub struct ReadRect<'a> {
        pub command: Command<'a>,
        pub buffer: u64,
        pub origin: [u64; 3],
        pub region: [u64; 3],
        pub row_pitch: u64,
        pub slice_pitch: u64,
    }

    pub struct ReadImage<'a> {
        pub command: Command<'a>,
        pub image: u64,
        pub origin: [u64; 3],
        pub region: [u64; 3],
    }

    /// The payload is the data. A large write comes as several frames with the same event and
    /// consecutive parts; the event completes with all of them, and only `last` closes it.
    pub struct WriteBuffer<'a> {
        pub command: Command<'a>,
        pub buffer: u64,
        pub offset: u64,
        pub last: bool,
    }

    /// The payload has the rows of `region` without gaps; see [`WriteBuffer`] and [`ReadRect`].
    pub struct WriteRect<'a> {
        pub command: Command<'a>,
        pub buffer: u64,
        pub origin: [u64; 3],
        pub region: [u64; 3],
        pub row_pitch: u64,
        pub slice_pitch: u64,
        pub last: bool,
    }

    /// As [`WriteRect`], in pixels.
    pub struct WriteImage<'a> {
        pub command: Command<'a>,
        pub image: u64,
        pub origin: [u64; 3],
        pub region: [u64; 3],
        pub last: bool,
    }

    pub struct CopyBuffer<'a> {
        pub command: Command<'a>,
        pub from: u64,
        pub to: u64,
        pub from_offset: u64,
        pub to_offset: u64,
        pub size: u64,
    }

    pub struct CopyRect<'a> {
        pub command: Command<'a>,
        pub from: u64,
        pub to: u64,
        pub from_origin: [u64; 3],
        pub to_origin: [u64; 3],
        pub region: [u64; 3],
        pub from_row_pitch: u64,
        pub from_slice_pitch: u64,
        pub to_row_pitch: u64,
        pub to_slice_pitch: u64,
    }

    pub struct CopyImage<'a> {
        pub command: Command<'a>,
        pub from: u64,
        pub to: u64,
        pub from_origin: [u64; 3],
        pub to_origin: [u64; 3],
        pub region: [u64; 3],
    }

    pub struct CopyImageToBuffer<'a> {
        pub command: Command<'a>,
        pub from: u64,
        pub to: u64,
        pub origin: [u64; 3],
        pub region: [u64; 3],
        pub to_offset: u64,
    }

    pub struct CopyBufferToImage<'a> {
        pub command: Command<'a>,
        pub from: u64,
        pub to: u64,
        pub from_offset: u64,
        pub origin: [u64; 3],
        pub region: [u64; 3],
    }

    pub struct FillBuffer<'a> {
        pub command: Command<'a>,
        pub buffer: u64,
        pub pattern: &'a [u8],
        pub offset: u64,
        pub size: u64,
    }

    pub struct FillImage<'a> {
        pub command: Command<'a>,
        pub image: u64,
        /// Four components of 32 bits, as the program gave them.
        pub color: [u8; 16],
        pub origin: [u64; 3],
        pub region: [u64; 3],
    }

    pub struct Migrate<'a> {
        pub command: Command<'a>,
        pub objects: Ids<'a>,
        pub flags: u64,
    }

    pub struct Marker<'a> {
        pub command: Command<'a>,
    }

    pub struct Barrier<'a> {
        pub command: Command<'a>,
    }

    /// Answered when everything enqueued so far has ended.
    pub struct Finish {
        pub call: u64,
        pub queue: u64,
    }
}
