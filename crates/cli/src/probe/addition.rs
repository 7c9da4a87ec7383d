//! A vector addition from source to result: context, queue, buffers, build, launch, read.

use telecl_opencl::{ClError, ClResult, Context, Device, NdRange, Order, Platform};
use telecl_sys::{CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY};

/// How many numbers are added.
const COUNT: u32 = 1 << 16;

const SOURCE: &[u8] = b"
__kernel void add(__global const uint *a, __global const uint *b, __global uint *sum) {
    size_t i = get_global_id(0);
    sum[i] = a[i] + b[i];
}
";

/// What went wrong, and at which step.
#[derive(Debug)]
pub enum Failure {
    Step { step: &'static str, error: ClError },
    Build { log: String },
    WrongAnswer { index: usize, expected: u32, found: u32 },
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Step { step, error } => write!(f, "{step} failed: {error}"),
            Failure::Build { log } => write!(f, "the kernel did not compile: {}", log.trim()),
            Failure::WrongAnswer { index, expected, found } => {
                write!(f, "the answer is wrong: element {index} is {found}, not {expected}")
            }
        }
    }
}

impl std::error::Error for Failure {}

/// Adds two vectors on `device` and compares every element of the answer.
pub fn add_vectors(platform: &Platform, device: &Device) -> Result<(), Failure> {
    fn step<T>(step: &'static str, result: ClResult<T>) -> Result<T, Failure> {
        result.map_err(|error| Failure::Step { step, error })
    }
    let a: Vec<u32> = (0..COUNT).collect();
    let b: Vec<u32> = a.iter().map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let size = a.len() * size_of::<u32>();

    let context = step("creating a context", Context::new(platform, std::slice::from_ref(device), None))?;
    let queue = step("creating a queue", context.create_queue(device, 0))?;
    let first = step("creating a buffer", context.create_buffer(CL_MEM_READ_ONLY, size, Some(&bytes(&a)), &[]))?;
    let second = step("creating a buffer", context.create_buffer(CL_MEM_READ_ONLY, size, None, &[]))?;
    let sum = step("creating a buffer", context.create_buffer(CL_MEM_WRITE_ONLY, size, None, &[]))?;
    step("writing a buffer", queue.write_buffer_blocking(&second, 0, &bytes(&b)))?;

    let program = step("creating a program", context.create_program_with_source(SOURCE))?;
    if program.build(std::slice::from_ref(device), c"").is_err() {
        return Err(Failure::Build { log: program.build_log(device).unwrap_or_default() });
    }
    let kernel = step("creating a kernel", program.create_kernel(c"add"))?;
    for (index, buffer) in [&first, &second, &sum].into_iter().enumerate() {
        step("setting an argument", kernel.set_arg_mem(index as u32, Some(buffer)))?;
    }
    let range = NdRange { offset: None, global: &[a.len()], local: None };
    // SAFETY: all three arguments live until the end of this function, which waits for the launch by a
    // blocking read; the kernel is the one above and stays within buffers of `COUNT` elements.
    step("launching a kernel", unsafe { queue.enqueue_kernel(&kernel, &range, &Order::new()) })?;
    let mut answer = vec![0; size];
    step("reading a buffer", queue.read_buffer_blocking(&sum, 0, &mut answer))?;

    for (index, found) in answer.chunks_exact(size_of::<u32>()).enumerate() {
        let found = found.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let expected = a[index].wrapping_add(b[index]);
        if found != expected {
            return Err(Failure::WrongAnswer { index, expected, found });
        }
    }
    Ok(())
}

/// Little-endian, as every device that a service of ours can sit on.
fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
