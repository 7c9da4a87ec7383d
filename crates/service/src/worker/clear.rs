//! Nobody sees what was in a device's memory before.
//!
//! A worker is a process of one tenant: what it uses again was the tenant's own. So new memory is clear where it is cleared
//! for each process: a processor's by the kernel, and that of NVIDIA's devices by their kernel module, which scrubs memory
//! when it is freed. On every other device a new object is filled with zeros, unless it comes with content. The fill runs
//! in a queue of the worker's own. The executor does not wait for it: each queue of the context is made to, before its
//! next command.

use std::collections::HashMap;
use std::fs;

use telecl_opencl::{ClError, ClResult, Context, Device, Event, ImageRegion, Mem, Order, Queue};
use telecl_sys::*;
use tracing::debug;

use super::session::Session;

/// On which devices new memory is filled with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// On those whose memory nobody clears between two processes.
    WhereNeeded,
    /// On all: for tests, which have a processor.
    Everywhere,
}

/// What NVIDIA's kernel module was loaded with. Only devices with memory of their own have it.
const NVIDIA_PARAMETERS: &str = "/proc/driver/nvidia/params";

impl Clearing {
    /// One of a context's devices, if there is any on which new memory is to be filled.
    pub(crate) fn device(self, devices: &[Device]) -> Option<&Device> {
        devices.iter().find(|device| self == Clearing::Everywhere || !is_clear(device))
    }
}

/// Whether new memory of a device has nothing of another process.
fn is_clear(device: &Device) -> bool {
    let is_processor = device.info_number(CL_DEVICE_TYPE).is_ok_and(|kind| kind & CL_DEVICE_TYPE_CPU != 0);
    let is_nvidia = || device.info_number(CL_DEVICE_VENDOR_ID) == Ok(0x10DE);
    is_processor || is_nvidia() && fs::read_to_string(NVIDIA_PARAMETERS).is_ok_and(|parameters| scrubs(&parameters))
}

/// NVIDIA's module scrubs memory when it is freed, unless it was told not to.
fn scrubs(parameters: &str) -> bool {
    !parameters.to_ascii_lowercase().contains("scrub")
}

/// Fills that may not have ended, and who comes after them.
#[derive(Debug, Default)]
pub(crate) struct Clears {
    count: u64,
    /// The last of each context, with its number: those of one context are in one queue, and end in their order.
    last: HashMap<u64, (u64, Event)>,
}

impl Clears {
    /// A fill for an object of a context.
    pub(crate) fn add(&mut self, context: u64, fill: Event) {
        self.count += 1;
        self.last.insert(context, (self.count, fill));
    }

    pub(crate) fn are_under_way(&self) -> bool {
        !self.last.is_empty()
    }

    /// Waits for all of them.
    pub(crate) fn finish(&mut self) {
        // One that failed has ended, too.
        self.last.drain().for_each(|(_, (_, fill))| _ = fill.wait());
    }

    /// Sees to it that what a queue of the context is given from now on comes after all fills so far; `seen` is the last
    /// that it comes after already.
    pub(crate) fn come_before(&mut self, context: u64, seen: &mut u64, queue: &Queue) {
        self.last.retain(|_, (_, fill)| fill.status() != Ok(CL_COMPLETE));
        let Some((number, fill)) = self.last.get(&context).filter(|(number, _)| number > seen) else { return };
        *seen = *number;
        if queue.barrier(&Order::after([fill])).is_err() {
            // Before OpenCL 1.2 there are none.
            let _ = fill.wait();
        }
    }
}

impl Session {
    /// Makes an object of new memory with this content. Without any it has so many zeros before a command can use it,
    /// where that does not go without saying.
    pub(super) fn make_cleared(
        &mut self,
        context: u64,
        (content, size): (Option<&[u8]>, usize),
        make: impl Fn(&Context, Option<&[u8]>) -> ClResult<Mem>,
        clear: impl FnOnce(&Queue, &Mem) -> ClResult<Event>,
    ) -> ClResult<Mem> {
        let entry = self.contexts.get(context)?;
        let mem = make(&entry.context, content)?;
        let queue = if content.is_none() { entry.pool.clearing_queue() } else { None };
        match queue.map(|queue| clear(queue?, &mem)) {
            None => Ok(mem),
            Some(Ok(fill)) => {
                self.clears.add(context, fill);
                Ok(mem)
            }
            // There is no such memory, as the vendor finds out only when it is used; there must not be some later either,
            // because that would not be clear.
            Some(Err(
                error @ ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_RESOURCES | CL_OUT_OF_HOST_MEMORY),
            )) => Err(error),
            Some(Err(error)) => {
                debug!(session = self.link.session(), %error, "new memory cannot be filled; zeros are sent there");
                drop(mem);
                make(&entry.context, Some(&vec![0; size]))
            }
        }
    }
}

/// Fills a new buffer with zeros.
pub(crate) fn clear_buffer(queue: &Queue, buffer: &Mem, size: usize) -> ClResult<Event> {
    // The longest pattern that the length is a multiple of is the fastest for some.
    let pattern = [0; 16];
    let length = 1 << size.trailing_zeros().min(4);
    flushed(queue, queue.fill_buffer(buffer, &pattern[..length], 0, size, &Order::new().with_event()))
}

/// Fills a new image with zeros, which are zeros in every format.
pub(crate) fn clear_image(queue: &Queue, image: &Mem, extent: [usize; 3]) -> ClResult<Event> {
    let all = ImageRegion { origin: [0; 3], region: extent };
    flushed(queue, queue.fill_image(image, &[0; 4], &all, &Order::new().with_event()))
}

/// Others wait for it, so it has to begin.
fn flushed(queue: &Queue, fill: ClResult<Option<Event>>) -> ClResult<Event> {
    let fill = fill?.ok_or(ClError(CL_OUT_OF_RESOURCES))?;
    queue.flush()?;
    Ok(fill)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use telecl_opencl::Library;

    use super::*;

    /// A device of the node's own OpenCL, which is cleared as if it were not a processor.
    fn device() -> Option<(Context, Device)> {
        let platforms = Library::load().ok()?.platforms().unwrap();
        let mut found = platforms.iter().map(|platform| (platform, platform.devices(CL_DEVICE_TYPE_ALL).unwrap()));
        let (platform, devices) = found.find(|(_, devices)| !devices.is_empty())?;
        let device = devices[0].clone();
        Some((Context::new(platform, std::slice::from_ref(&device), None).unwrap(), device))
    }

    #[test]
    fn a_module_that_was_told_not_to_scrub_is_not_relied_on() {
        assert!(scrubs("ResmanDebugLevel: 4294967295\nRegistryDwords: \"\"\nRmMsg: \"\"\n"));
        assert!(!scrubs("RegistryDwords: \"RMDisableScrubOnFree=1\"\n"));
    }

    #[test]
    fn memory_is_filled_where_it_has_to_be() {
        let Some((_, device)) = device() else { return };
        let devices = [device];
        let is_processor = devices[0].info_number(CL_DEVICE_TYPE).unwrap() & CL_DEVICE_TYPE_CPU != 0;
        assert!(!is_processor || Clearing::WhereNeeded.device(&devices).is_none());
        assert!(Clearing::Everywhere.device(&devices).is_some());
    }

    #[test]
    fn a_buffer_of_any_length_is_all_zeros() {
        let Some((context, device)) = device() else { return };
        let queue = context.create_queue(&device, 0).unwrap();
        for size in [1, 2, 3, 4, 15, 16, 17, 4096, 100_003, 1 << 20] {
            // What was there before.
            let buffer = context.create_buffer(0, size, Some(&vec![0xA5; size]), &[]).unwrap();
            clear_buffer(&queue, &buffer, size).unwrap();
            let mut bytes = vec![1; size];
            queue.read_buffer_blocking(&buffer, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "{size}");
        }
    }

    #[test]
    fn an_image_of_any_kind_and_format_is_all_zeros() {
        let Some((context, device)) = device() else { return };
        if device.info_number(CL_DEVICE_IMAGE_SUPPORT) != Ok(1) {
            return;
        }
        let queue = context.create_queue(&device, 0).unwrap();
        let kinds = [
            (CL_MEM_OBJECT_IMAGE1D, [13, 0, 0], 0),
            (CL_MEM_OBJECT_IMAGE2D, [13, 7, 0], 0),
            (CL_MEM_OBJECT_IMAGE3D, [13, 7, 5], 0),
            (CL_MEM_OBJECT_IMAGE1D_ARRAY, [13, 0, 0], 3),
            (CL_MEM_OBJECT_IMAGE2D_ARRAY, [13, 7, 0], 3),
        ];
        let mut tried = 0;
        for (image_type, [image_width, image_height, image_depth], image_array_size) in kinds {
            let desc = cl_image_desc {
                image_type,
                image_width,
                image_height,
                image_depth,
                image_array_size,
                ..cl_image_desc::default()
            };
            let extent = image_extent(&desc).unwrap();
            for format in context.supported_image_formats(CL_MEM_READ_WRITE, image_type).unwrap() {
                let Some(size) = image_size(&format, &desc) else { continue };
                let size = usize::try_from(size).unwrap();
                let image = context.create_image(0, &format, &desc, None, Some(&vec![0x25; size]), &[]).unwrap();
                clear_image(&queue, &image, extent).unwrap();
                let out = context.create_buffer(0, size, Some(&vec![1; size]), &[]).unwrap();
                let all = ImageRegion { origin: [0; 3], region: extent };
                queue.copy_image_to_buffer(&image, &all, &out, 0, &Order::new()).unwrap();
                let mut bytes = vec![1; size];
                queue.read_buffer_blocking(&out, 0, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 0), "{image_type:#x} {format:?}");
                tried += 1;
            }
        }
        assert!(tried > 20, "{tried}");
    }

    #[test]
    fn a_queue_of_the_context_comes_after_the_last_fill_once() {
        let Some((context, device)) = device() else { return };
        let (own, other) = (context.create_queue(&device, 0).unwrap(), context.create_queue(&device, 0).unwrap());
        let gate = context.create_user_event().unwrap();
        let fill = own.marker(&Order::after([&gate]).with_event()).unwrap().unwrap();
        own.flush().unwrap();
        let mut clears = Clears::default();
        assert!(!clears.are_under_way());
        clears.add(1, fill);
        let (mut seen, mut elsewhere) = (0, 0);
        clears.come_before(2, &mut elsewhere, &other);
        clears.come_before(1, &mut seen, &other);
        assert_eq!((elsewhere, seen), (0, 1));
        let after = other.marker(&Order::new().with_event()).unwrap().unwrap();
        other.flush().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(after.status().unwrap() > CL_COMPLETE, "it did not wait");
        gate.set_status(CL_COMPLETE).unwrap();
        after.wait().unwrap();
        clears.come_before(1, &mut seen, &other);
        assert!(!clears.are_under_way());
    }
}
