//! What `telecl bench tenants` loads a device with: a kernel that keeps all of it busy for about as long as it is told.

use std::fmt;
use std::time::{Duration, Instant};

use telecl_opencl::{ClError, ClResult, Context, Device, Event, Kernel, Mem, NdRange, Order, Platform, Queue};
use telecl_sys::*;

use crate::Failure;

/// A chain of operations that no compiler shortens, in each work-item.
const SOURCE: &[u8] = b"
__kernel void spin(__global uint *out, uint rounds) {
    uint x = (uint)get_global_id(0) + 1;
    for (uint i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
    }
    out[get_global_id(0)] = x;
}
";

/// For so long the device runs before anything is measured: clocks rise when there is work.
const WARM: Duration = Duration::from_millis(300);

/// A device with the kernel ready.
pub struct Spinner {
    queue: Queue,
    /// The same with profiling.
    timed: Queue,
    kernel: Kernel,
    global: [usize; 1],
    local: [usize; 1],
    /// The kernel's argument.
    _out: Mem,
}

impl Spinner {
    pub fn new(platform: &Platform, device: &Device) -> Result<Spinner, Failure> {
        fn step<T>(step: &'static str, result: ClResult<T>) -> Result<T, Failure> {
            result.map_err(|error| Failure::Step { step, error })
        }
        let devices = std::slice::from_ref(device);
        let context = step("creating a context", Context::new(platform, devices, None))?;
        let queue = step("creating a queue", context.create_queue(device, 0))?;
        let timed = step("creating a queue", context.create_queue(device, CL_QUEUE_PROFILING_ENABLE))?;
        let program = step("creating a program", context.create_program_with_source(SOURCE))?;
        if program.build(devices, c"").is_err() {
            return Err(Failure::Build { log: program.build_log(device).unwrap_or_default() });
        }
        let kernel = step("creating a kernel", program.create_kernel(c"spin"))?;
        let number = |param| device.info_number(param).unwrap_or(1).max(1) as usize;
        let units = number(CL_DEVICE_MAX_COMPUTE_UNITS);
        // On a CPU a work-group is a piece of work for one core: some more of them, so that all cores end together.
        let is_cpu = device.info_number(CL_DEVICE_TYPE).is_ok_and(|kind| kind & CL_DEVICE_TYPE_CPU != 0);
        let (groups, local) =
            if is_cpu { (4 * units, 1) } else { (units, number(CL_DEVICE_MAX_WORK_GROUP_SIZE).min(64)) };
        let global = groups * local;
        let out = step("creating a buffer", context.create_buffer(CL_MEM_READ_WRITE, 4 * global, None, &[]))?;
        step("setting an argument", kernel.set_arg_mem(0, Some(&out)))?;
        Ok(Spinner { queue, timed, kernel, global: [global], local: [local], _out: out })
    }

    /// How long the kernels that follow are.
    pub fn set_rounds(&self, rounds: u32) -> ClResult<()> {
        // SAFETY: the second argument is an unsigned int.
        unsafe { self.kernel.set_arg_bytes(1, &rounds.to_ne_bytes()) }
    }

    /// Enqueues one.
    pub fn spin(&self) -> ClResult<()> {
        self.enqueue(&self.queue, &Order::new()).map(drop)
    }

    /// The same, with an event.
    pub fn spin_with_event(&self) -> ClResult<Event> {
        self.enqueue(&self.queue, &Order::new().with_event())?.ok_or(ClError(CL_INVALID_VALUE))
    }

    fn enqueue(&self, queue: &Queue, order: &Order<'_>) -> ClResult<Option<Event>> {
        let range = NdRange { offset: None, global: &self.global, local: Some(&self.local) };
        // SAFETY: the kernel is ours. Both arguments are set before anything is enqueued, and the buffer, which lives as
        // long as the queues, has room for what each work-item writes.
        unsafe { queue.enqueue_kernel(&self.kernel, &range, order) }
    }

    /// Sends what was enqueued on its way.
    pub fn flush(&self) -> ClResult<()> {
        self.queue.flush()
    }

    /// Waits for all that was enqueued.
    pub fn finish(&self) -> ClResult<()> {
        self.queue.finish()
    }

    /// How many rounds take about `seconds` on a device that does nothing else, and how long they really take.
    pub fn calibrate(&self, seconds: f64) -> ClResult<(u32, f64)> {
        let start = Instant::now();
        let (mut rounds, mut took) = (256, 0.0);
        // Until it can be told from what a launch costs.
        while took < seconds / 3.0 && rounds < u32::MAX / 4 {
            rounds *= 2;
            self.set_rounds(rounds)?;
            took = self.time(4)?;
        }
        while start.elapsed() < WARM {
            self.time(4)?;
        }
        for _ in 0..2 {
            took = self.time(16)?;
            rounds = (f64::from(rounds) * seconds / took.max(1e-9)).clamp(1.0, f64::from(u32::MAX)) as u32;
            self.set_rounds(rounds)?;
        }
        Ok((rounds, self.time(32)?))
    }

    /// The median of what several kernels take on the device, in seconds. They run in a row, as they will: the first ones of
    /// a row find a CPU device's threads asleep.
    fn time(&self, count: usize) -> ClResult<f64> {
        let begin = Instant::now();
        let order = Order::new().with_event();
        let enqueue = |_| self.enqueue(&self.timed, &order)?.ok_or(ClError(CL_INVALID_VALUE));
        let events = (0..count).map(enqueue).collect::<ClResult<Vec<Event>>>()?;
        self.timed.finish()?;
        let waited = begin.elapsed().as_secs_f64() / count.max(1) as f64;
        let mut times = Vec::with_capacity(count);
        for event in events.iter().skip(count / 4) {
            let at = |param| event.profiling_info(param).unwrap_or(0);
            times.push(at(CL_PROFILING_COMMAND_END).saturating_sub(at(CL_PROFILING_COMMAND_START)));
        }
        times.sort_unstable();
        // Where the driver has no times, waiting has to do.
        Ok(times.get(times.len() / 2).filter(|time| **time > 0).map_or(waited, |time| *time as f64 / 1e9))
    }
}

impl fmt::Debug for Spinner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spinner").field("queue", &self.queue).field("global", &self.global).finish_non_exhaustive()
    }
}
