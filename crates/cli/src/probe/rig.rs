//! What `telecl bench` measures with: a context, an in-order queue, three kernels and their memory.
//!
//! Everything that a command uses after its enqueue has returned belongs to the rig, is static, or is
//! leaked, so that its methods are safe in any order.

use std::fmt;

use telecl_opencl::{ClError, ClResult, Context, Device, Event, Kernel, Mem, NdRange, Order, Platform, Queue};
use telecl_sys::{CL_INVALID_VALUE, CL_MEM_READ_WRITE};

use crate::Failure;

const SOURCE: &[u8] = b"
__kernel void nothing(void) {}
__kernel void sum(__global int *out, int a, int b, int c) { out[get_global_id(0)] = a + b + c; }
__kernel void touch(__global uint *data) { data[get_global_id(0) * 64] += 1; }
";

/// The size of the small buffer.
pub const PAGE: usize = 4 << 10;
/// The size of one buffer of the stream.
pub const CHUNK: usize = 1 << 20;
/// How many of them there are, on the device and on the host.
const CHUNKS: usize = 8;
/// The distance in bytes between the places that `touch` changes.
const STRIDE: usize = 256;

/// Written by commands that do not wait. Static, so that it outlives them.
static ZEROS: [u8; PAGE] = [0; PAGE];

/// A device ready to be measured.
pub struct Rig {
    context: Context,
    queue: Queue,
    nothing: Kernel,
    sum: Kernel,
    touch: Kernel,
    page: Mem,
    stream: Option<Stream>,
}

/// The buffers of [`Rig::stream`].
struct Stream {
    device: Vec<Mem>,
    /// Never freed: a command that failed may still be about to write there.
    from: *const u8,
    to: *mut u8,
}

impl Rig {
    /// Makes everything but the stream's buffers, which only one measurement needs, and runs a first kernel.
    pub fn new(platform: &Platform, device: &Device) -> Result<Rig, Failure> {
        fn step<T>(step: &'static str, result: ClResult<T>) -> Result<T, Failure> {
            result.map_err(|error| Failure::Step { step, error })
        }
        let devices = std::slice::from_ref(device);
        let context = step("creating a context", Context::new(platform, devices, None))?;
        let queue = step("creating a queue", context.create_queue(device, 0))?;
        let program = step("creating a program", context.create_program_with_source(SOURCE))?;
        if program.build(devices, c"").is_err() {
            return Err(Failure::Build { log: program.build_log(device).unwrap_or_default() });
        }
        let kernel = |name| step("creating a kernel", program.create_kernel(name));
        let (nothing, sum, touch) = (kernel(c"nothing")?, kernel(c"sum")?, kernel(c"touch")?);
        let page = step("creating a buffer", context.create_buffer(CL_MEM_READ_WRITE, PAGE, None, &[]))?;
        let rig = Rig { context, queue, nothing, sum, touch, page, stream: None };
        step("launching a kernel", rig.launch().and_then(|()| rig.finish()))?;
        Ok(rig)
    }

    /// Enqueues a kernel that does nothing.
    pub fn launch(&self) -> ClResult<()> {
        self.launch_in(&Order::new()).map(drop)
    }

    /// The same, with an event, and after another one.
    pub fn launch_after(&self, before: Option<&Event>) -> ClResult<Event> {
        let order = Order::after(before).with_event();
        self.launch_in(&order)?.ok_or(ClError(CL_INVALID_VALUE))
    }

    fn launch_in(&self, order: &Order<'_>) -> ClResult<Option<Event>> {
        // SAFETY: the kernel is ours, does nothing and has no arguments.
        unsafe { self.queue.enqueue_kernel(&self.nothing, &one(), order) }
    }

    /// Sets the four arguments of the kernel that adds, and enqueues it.
    pub fn launch_sum(&self, numbers: [i32; 3]) -> ClResult<()> {
        self.sum.set_arg_mem(0, Some(&self.page))?;
        for (index, number) in (1..).zip(numbers) {
            // SAFETY: the arguments 1 to 3 are ints.
            unsafe { self.sum.set_arg_bytes(index, &number.to_ne_bytes()) }?;
        }
        // SAFETY: the buffer lives as long as the queue, and has room for the one number that is written.
        unsafe { self.queue.enqueue_kernel(&self.sum, &one(), &Order::new()) }.map(drop)
    }

    /// Enqueues a write of the whole page, which does not wait.
    pub fn write_page_later(&self) -> ClResult<()> {
        // SAFETY: the source is static and never changes.
        unsafe { self.queue.write_buffer(&self.page, 0, PAGE, ZEROS.as_ptr(), &Order::new()) }.map(drop)
    }

    /// Writes the first bytes of the page.
    pub fn write(&self, bytes: &[u8]) -> ClResult<()> {
        self.queue.write_buffer_blocking(&self.page, 0, bytes)
    }

    /// Reads the first bytes of the page.
    pub fn read(&self, bytes: &mut [u8]) -> ClResult<()> {
        self.queue.read_buffer_blocking(&self.page, 0, bytes)
    }

    /// Creates a buffer, writes all of it, waits for the device and releases it.
    pub fn use_new_page(&self) -> ClResult<()> {
        let page = self.create(PAGE)?;
        self.queue.write_buffer_blocking(&page, 0, &ZEROS)?;
        self.queue.finish()
    }

    /// A buffer of this size.
    pub fn create(&self, size: usize) -> ClResult<Mem> {
        self.context.create_buffer(CL_MEM_READ_WRITE, size, None, &[])
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Waits for all that was enqueued.
    pub fn finish(&self) -> ClResult<()> {
        self.queue.finish()
    }

    /// Write, kernel and read of one chunk, `count` times, none of which waits; waits at the end.
    pub fn stream(&mut self, count: u32) -> ClResult<()> {
        if self.stream.is_none() {
            let device = (0..CHUNKS).map(|_| self.create(CHUNK)).collect::<ClResult<Vec<_>>>()?;
            let from: &'static [u8] = vec![1u8; CHUNK].leak();
            let to: &'static mut [u8] = vec![1u8; CHUNK * CHUNKS].leak();
            self.stream = Some(Stream { device, from: from.as_ptr(), to: to.as_mut_ptr() });
        }
        let Some(stream) = &self.stream else { return Ok(()) };
        let range = NdRange { offset: None, global: &[CHUNK / STRIDE], local: None };
        for (slot, chunk) in stream.device.iter().enumerate().cycle().take(count as usize) {
            // SAFETY: the memory is leaked and long enough, nobody but commands of this in-order queue uses it, and the
            // source is only read. The kernel stays within its buffer, which lives as long as the queue.
            unsafe {
                self.queue.write_buffer(chunk, 0, CHUNK, stream.from, &Order::new())?;
                self.touch.set_arg_mem(0, Some(chunk))?;
                self.queue.enqueue_kernel(&self.touch, &range, &Order::new())?;
                self.queue.read_buffer(chunk, 0, CHUNK, stream.to.add(slot * CHUNK), &Order::new())?;
            }
        }
        self.queue.finish()
    }
}

impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// A single work-item.
fn one() -> NdRange<'static> {
    NdRange { offset: None, global: &[1], local: None }
}
