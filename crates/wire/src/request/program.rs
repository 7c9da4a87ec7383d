//! Programs, kernels and their arguments.

use crate::Ids;
use crate::codec::{bodies, byte_enums};

/// Stands around the number of an include tree in build options; the worker puts the tree's
/// directory in its place. No real option contains this character.
pub const TREE_MARK: char = '\u{1}';

bodies! {
    /// The source is the payload or what was staged.
    pub struct CreateProgramWithSource {
        pub id: u64,
        pub context: u64,
        pub staged: u64,
    }

    /// The IL is the payload or what was staged.
    pub struct CreateProgramWithIl {
        pub id: u64,
        pub context: u64,
        pub staged: u64,
    }

    /// The binaries, one after the other, were staged (or are the payload). Answered with
    /// `BinaryStatuses`.
    pub struct CreateProgramWithBinaries<'a> {
        pub call: u64,
        pub id: u64,
        pub context: u64,
        pub devices: Ids<'a>,
        /// Length of each device's binary.
        pub lengths: Ids<'a>,
        pub staged: u64,
    }

    pub struct CreateProgramWithBuiltInKernels<'a> {
        pub call: u64,
        pub id: u64,
        pub context: u64,
        pub devices: Ids<'a>,
        pub names: &'a [u8],
    }

    pub struct SetSpecializationConstant<'a> {
        pub call: u64,
        pub program: u64,
        pub constant: u32,
        pub value: &'a [u8],
    }

    /// A file for include trees, under the hash of its content (the payload, or what was staged).
    /// The worker computes the hash again.
    pub struct StoreFile {
        pub hash: [u8; 32],
        pub staged: u64,
    }

    /// A directory of stored files that build options may name with [`TREE_MARK`].
    pub struct MakeTree<'a> {
        pub tree: u64,
        pub files: Vec<TreeFile<'a>>,
    }

    pub struct TreeFile<'a> {
        /// Relative, with `/`, without `.` and `..`.
        pub path: &'a str,
        pub hash: [u8; 32],
    }

    /// Answered with a `BuildReport`; the reply's status is that of `clBuildProgram`.
    pub struct Build<'a> {
        pub call: u64,
        pub program: u64,
        /// Empty for all devices of the program.
        pub devices: Ids<'a>,
        pub options: &'a [u8],
    }

    /// As [`Build`].
    pub struct Compile<'a> {
        pub call: u64,
        pub program: u64,
        pub devices: Ids<'a>,
        pub options: &'a [u8],
        pub headers: Vec<EmbeddedHeader<'a>>,
    }

    pub struct EmbeddedHeader<'a> {
        pub program: u64,
        pub name: &'a [u8],
    }

    /// As [`Build`]; makes the program `id`, if the vendor returns one.
    pub struct Link<'a> {
        pub call: u64,
        pub id: u64,
        pub context: u64,
        pub devices: Ids<'a>,
        pub options: &'a [u8],
        pub inputs: Ids<'a>,
    }

    /// Answered with `Binaries`.
    pub struct ProgramBinaries {
        pub call: u64,
        pub program: u64,
    }

    pub struct CreateKernel<'a> {
        pub id: u64,
        pub program: u64,
        pub name: &'a [u8],
    }

    pub struct CloneKernel {
        pub id: u64,
        pub source: u64,
    }

    /// Sets arguments without running; for queries whose answer depends on them, and for clones.
    pub struct SetArgs<'a> {
        pub kernel: u64,
        pub args: Vec<Arg<'a>>,
    }

    /// One `clSetKernelArg`.
    pub struct Arg<'a> {
        pub index: u32,
        pub form: ArgForm,
        /// `arg_size` as the program gave it.
        pub size: u64,
        /// Of a memory object, sampler or queue: its id.
        pub object: u64,
        /// Of a plain value: its bytes. With a guess: what to use if the vendor refuses the object.
        pub value: &'a [u8],
    }
}

byte_enums! {
    pub enum ArgForm {
        /// `value` as it is.
        Bytes = 0,
        /// No value: `size` bytes of local memory.
        Local = 1,
        Memory = 2,
        Sampler = 3,
        Queue = 4,
        /// A null pointer for a memory object.
        NullMemory = 5,
        /// The vendor did not say what the argument is, and the value looks like one of our memory
        /// objects, samplers or queues: try `object`, then `value`.
        GuessMemory = 6,
        GuessSampler = 7,
        GuessQueue = 8,
    }
}
