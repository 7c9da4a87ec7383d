//! Kernels, their arguments, and their launch.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telecl_sys::*;

use crate::handle::{count, created};
use crate::library::need;
use crate::{Device, Event, Library, Mem, Order, Program, Queue, Sampler, info};

/// A kernel with its arguments. A clone is the same kernel; [`duplicate`](Self::duplicate) makes another one.
pub struct Kernel {
    raw: cl_kernel,
    library: &'static Library,
    /// Held across the calls that set or use arguments, the only ones of OpenCL that are not thread-safe.
    arguments: Arc<Mutex<()>>,
}

// SAFETY: all calls on a kernel are thread-safe but those that set and use its arguments (specification, appendix A.2),
// and those are made under a lock that all clones share.
unsafe impl Send for Kernel {}
// SAFETY: as for `Send`.
unsafe impl Sync for Kernel {}

/// The work-items of a launch. All slices have one element for each dimension.
#[derive(Debug, Clone, Copy)]
pub struct NdRange<'a> {
    /// Zeros if there is none.
    pub offset: Option<&'a [usize]>,
    pub global: &'a [usize],
    /// The driver chooses if there is none.
    pub local: Option<&'a [usize]>,
}

impl Program {
    /// `clCreateKernel`.
    pub fn create_kernel(&self, name: &CStr) -> ClResult<Kernel> {
        let mut status = CL_SUCCESS;
        // SAFETY: the program is valid, and the name ends with NUL.
        let raw = unsafe { (self.library().clCreateKernel)(self.raw(), name.as_ptr(), &raw mut status) };
        // SAFETY: the new kernel's only reference is ours.
        Ok(unsafe { Kernel::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateKernelsInProgram`: all of them.
    pub fn create_kernels(&self) -> ClResult<Vec<Kernel>> {
        let create = self.library().clCreateKernelsInProgram;
        let mut available = 0;
        // SAFETY: the program is valid, no array is given, and the count is ours.
        check(unsafe { create(self.raw(), 0, ptr::null_mut(), &raw mut available) })?;
        let mut handles = vec![ptr::null_mut(); available as usize];
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: the array has room for as many handles as are asked for.
        check(unsafe { create(self.raw(), available, handles.as_mut_ptr(), ptr::null_mut()) })?;
        // SAFETY: the new kernels' only references are ours.
        Ok(handles
            .into_iter()
            .filter(|raw| !raw.is_null())
            .map(|raw| unsafe { Kernel::from_raw(self.library(), raw) })
            .collect())
    }
}

impl Kernel {
    /// # Safety
    /// `raw` is a valid kernel of `library`, and the only reference to it belongs to the caller.
    unsafe fn from_raw(library: &'static Library, raw: cl_kernel) -> Self {
        Self { raw, library, arguments: Arc::new(Mutex::new(())) }
    }

    /// The vendor's handle. It is valid as long as `self`.
    pub fn raw(&self) -> cl_kernel {
        self.raw
    }

    /// The OpenCL that this kernel belongs to.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// `clCloneKernel`: another kernel with the same arguments.
    pub fn duplicate(&self) -> ClResult<Self> {
        let clone = need(self.library.clCloneKernel)?;
        let _arguments = self.lock();
        let mut status = CL_SUCCESS;
        // SAFETY: the kernel is valid, and nobody sets its arguments meanwhile.
        let raw = unsafe { clone(self.raw, &raw mut status) };
        // SAFETY: the new kernel's only reference is ours.
        Ok(unsafe { Self::from_raw(self.library, created(raw, status)?) })
    }

    /// `clGetKernelInfo`.
    pub fn info(&self, param: cl_kernel_info) -> ClResult<Vec<u8>> {
        // SAFETY: the kernel is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetKernelInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetKernelArgInfo`. Many drivers know it only for programs built with `-cl-kernel-arg-info`.
    pub fn arg_info(&self, index: u32, param: cl_kernel_arg_info) -> ClResult<Vec<u8>> {
        let get = need(self.library.clGetKernelArgInfo)?;
        // SAFETY: the kernel is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe { get(self.raw, index, param, size, value, size_ret) })
    }

    /// `clGetKernelWorkGroupInfo`. The device may be left out if the program has only one.
    pub fn work_group_info(&self, device: Option<&Device>, param: cl_kernel_work_group_info) -> ClResult<Vec<u8>> {
        let device = device.map_or(ptr::null_mut(), Device::raw);
        // SAFETY: the kernel is valid, so is the device or it is null, and `info::read` passes `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            let get = self.library.clGetKernelWorkGroupInfo;
            get(self.raw, device, param, size, value, size_ret)
        })
    }

    /// `clGetKernelSubGroupInfo`; `input` is what the query starts from, often a local size.
    pub fn sub_group_info(
        &self,
        device: Option<&Device>,
        param: cl_kernel_sub_group_info,
        input: &[u8],
    ) -> ClResult<Vec<u8>> {
        let get = need(self.library.clGetKernelSubGroupInfo)?;
        let device = device.map_or(ptr::null_mut(), Device::raw);
        // Words, because drivers read sizes from it.
        let words: Vec<u64> = input
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            })
            .collect();
        let start: *const c_void = if words.is_empty() { ptr::null() } else { words.as_ptr().cast() };
        // SAFETY: the kernel is valid, so is the device or it is null; the input has as many bytes as it says, and
        // `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            get(self.raw, device, param, input.len(), start, size, value, size_ret)
        })
    }

    /// Sets an argument that is passed by value.
    ///
    /// # Safety
    /// The kernel's argument is no memory object, sampler or queue: a driver would take the bytes for a handle.
    pub unsafe fn set_arg_bytes(&self, index: u32, value: &[u8]) -> ClResult<()> {
        // SAFETY: valid for its own length; by this function's contract it is not taken for a handle.
        unsafe { self.set_arg_raw(index, value.len(), value.as_ptr().cast()) }
    }

    /// Sets the size of an argument in local memory.
    pub fn set_arg_local(&self, index: u32, size: usize) -> ClResult<()> {
        // SAFETY: the driver reads no value, and refuses null where the argument is not local memory or an object.
        unsafe { self.set_arg_raw(index, size, ptr::null()) }
    }

    /// Sets a memory object as argument. The kernel does not keep it alive.
    pub fn set_arg_mem(&self, index: u32, mem: Option<&Mem>) -> ClResult<()> {
        let raw = mem.map_or(ptr::null_mut(), Mem::raw);
        // SAFETY: a valid handle, or a null one, and its size.
        unsafe { self.set_arg_raw(index, size_of::<cl_mem>(), (&raw const raw).cast()) }
    }

    /// Sets a sampler as argument. The kernel does not keep it alive.
    pub fn set_arg_sampler(&self, index: u32, sampler: &Sampler) -> ClResult<()> {
        let raw = sampler.raw();
        // SAFETY: a valid handle and its size.
        unsafe { self.set_arg_raw(index, size_of::<cl_sampler>(), (&raw const raw).cast()) }
    }

    /// Sets an on-device queue as argument. The kernel does not keep it alive.
    pub fn set_arg_queue(&self, index: u32, queue: &Queue) -> ClResult<()> {
        let raw = queue.raw();
        // SAFETY: a valid handle and its size.
        unsafe { self.set_arg_raw(index, size_of::<cl_command_queue>(), (&raw const raw).cast()) }
    }

    /// `clSetKernelArg` as it is.
    ///
    /// # Safety
    /// `value` is null or valid for `size` bytes; if the argument is an object, they are a valid handle of its kind.
    pub unsafe fn set_arg_raw(&self, index: u32, size: usize, value: *const c_void) -> ClResult<()> {
        let _arguments = self.lock();
        // SAFETY: the kernel is valid and its arguments are locked; the value is right by this function's contract.
        check(unsafe { (self.library.clSetKernelArg)(self.raw, index, size, value) })
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.arguments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// `clEnqueueNDRangeKernel`.
    ///
    /// # Safety
    /// The objects that were set as arguments are still alive. The kernel is a tenant's code: on a device that shares
    /// our address space it can do whatever this process can.
    pub unsafe fn enqueue_kernel(
        &self,
        kernel: &Kernel,
        range: &NdRange<'_>,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        let dimensions = range.global.len();
        for part in [range.offset, range.local].into_iter().flatten() {
            if part.len() != dimensions {
                return Err(ClError(CL_INVALID_WORK_DIMENSION));
            }
        }
        let dimensions = count(dimensions)?;
        let start = |part: Option<&[usize]>| part.map_or(ptr::null(), <[usize]>::as_ptr);
        let _arguments = kernel.lock();
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: queue and kernel are valid, each array has `dimensions` elements or is null, and the arguments
            // are alive by this function's contract.
            unsafe {
                (self.library().clEnqueueNDRangeKernel)(
                    self.raw(),
                    kernel.raw,
                    dimensions,
                    start(range.offset),
                    range.global.as_ptr(),
                    start(range.local),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }
}

impl Clone for Kernel {
    fn clone(&self) -> Self {
        // SAFETY: `self` holds a reference, so the handle is valid. Retaining a valid handle cannot fail.
        unsafe { (self.library.clRetainKernel)(self.raw) };
        Self { raw: self.raw, library: self.library, arguments: Arc::clone(&self.arguments) }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that `self` holds; nothing uses the handle after this.
        unsafe { (self.library.clReleaseKernel)(self.raw) };
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Kernel {}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({:p})", self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const ADD: &[u8] = b"__kernel void add(__global const int *a, __global const int *b,
                                           __global int *out, int more)
        { size_t i = get_global_id(0); out[i] = a[i] + b[i] + more; }";

    #[test]
    fn two_vectors_are_added() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let queue = context.create_queue(&device, CL_QUEUE_PROFILING_ENABLE).unwrap();
        let program = context.create_program_with_source(ADD).unwrap();
        program.build(&[], c"-cl-kernel-arg-info").unwrap();
        let kernel = program.create_kernel(c"add").unwrap();
        let numbers: Vec<u8> = (0..1000i32).flat_map(i32::to_ne_bytes).collect();
        let a = context.create_buffer(CL_MEM_READ_ONLY, 4000, Some(&numbers), &[]).unwrap();
        let out = context.create_buffer(CL_MEM_WRITE_ONLY, 4000, None, &[]).unwrap();
        let b = context.create_buffer(CL_MEM_READ_ONLY, 4000, None, &[]).unwrap();
        queue.write_buffer_blocking(&b, 0, &numbers).unwrap();
        kernel.set_arg_mem(0, Some(&a)).unwrap();
        kernel.set_arg_mem(1, Some(&b)).unwrap();
        kernel.set_arg_mem(2, Some(&out)).unwrap();
        // SAFETY: the fourth argument is an int.
        unsafe { kernel.set_arg_bytes(3, &5i32.to_ne_bytes()) }.unwrap();
        let range = NdRange { offset: None, global: &[1000], local: None };
        // SAFETY: the three buffers live to the end of this test.
        let done = unsafe { queue.enqueue_kernel(&kernel, &range, &Order::new().with_event()) }.unwrap().unwrap();
        let mut bytes = vec![0u8; 4000];
        let order = Order::after([&done]).with_event();
        // SAFETY: `bytes` is not touched before the event is complete.
        let read = unsafe { queue.read_buffer(&out, 0, 4000, bytes.as_mut_ptr(), &order) };
        read.unwrap().unwrap().wait().unwrap();
        for (i, sum) in bytes.chunks_exact(4).enumerate() {
            assert_eq!(info::number(sum), Some(2 * i as u64 + 5));
        }
        let start = done.profiling_info(CL_PROFILING_COMMAND_START).unwrap();
        assert!(done.profiling_info(CL_PROFILING_COMMAND_END).unwrap() >= start);

        let name = kernel.arg_info(3, CL_KERNEL_ARG_NAME).unwrap();
        assert_eq!(info::string(&name), "more");
        assert_eq!(info::number(&kernel.info(CL_KERNEL_NUM_ARGS).unwrap()), Some(4));
        let size = kernel.work_group_info(Some(&device), CL_KERNEL_WORK_GROUP_SIZE).unwrap();
        assert!(info::number(&size).unwrap() >= 1);
    }

    #[test]
    fn a_launch_without_event_makes_none_and_bad_ranges_are_refused() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let queue = context.create_queue(&device, 0).unwrap();
        let program = context.create_program_with_source(b"__kernel void f() {}").unwrap();
        program.build(&[], c"").unwrap();
        let kernels = program.create_kernels().unwrap();
        assert_eq!(kernels.len(), 1);
        let kernel = kernels[0].clone();
        drop(kernels);
        let mut range = NdRange { offset: Some(&[0, 0]), global: &[4, 4], local: Some(&[2, 2]) };
        // SAFETY: the kernel has no arguments.
        let event = unsafe { queue.enqueue_kernel(&kernel, &range, &Order::new()) }.unwrap();
        assert_eq!(event, None);
        queue.finish().unwrap();
        range.local = Some(&[2]);
        // SAFETY: the kernel has no arguments.
        let refused = unsafe { queue.enqueue_kernel(&kernel, &range, &Order::new()) };
        assert_eq!(refused, Err(ClError(CL_INVALID_WORK_DIMENSION)));
        assert_eq!(program.create_kernel(c"g"), Err(ClError(CL_INVALID_KERNEL_NAME)));
    }
}
