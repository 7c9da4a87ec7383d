//! Programs: from source, binaries, intermediate language or the device's own kernels; built, compiled and linked.

use std::ffi::CStr;
use std::ptr;

use telecl_sys::*;

use crate::handle::{count, created, handle, pointer};
use crate::library::need;
use crate::{Context, Device, device, info};

handle! {
    /// A program for some devices of a context.
    Program(cl_program), clRetainProgram, clReleaseProgram
}

impl Context {
    /// `clCreateProgramWithSource`.
    pub fn create_program_with_source(&self, source: &[u8]) -> ClResult<Program> {
        // A length of zero means "up to the NUL", so an empty source needs one.
        let text = if source.is_empty() { b"\0" } else { source };
        let mut strings = [text.as_ptr().cast()];
        let lengths = [source.len()];
        let mut status = CL_SUCCESS;
        // SAFETY: one string of the given length, or one that ends with NUL; it is copied during the call.
        let raw = unsafe {
            (self.library().clCreateProgramWithSource)(
                self.raw(),
                1,
                strings.as_mut_ptr(),
                lengths.as_ptr(),
                &raw mut status,
            )
        };
        // SAFETY: the new program's only reference is ours.
        Ok(unsafe { Program::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateProgramWithBinary`, one binary for each device; also what the driver said about each of them.
    pub fn create_program_with_binary(
        &self,
        devices: &[Device],
        binaries: &[&[u8]],
    ) -> (ClResult<Program>, Vec<cl_int>) {
        let mut statuses = vec![CL_INVALID_VALUE; devices.len()];
        (self.load_binaries(devices, binaries, &mut statuses), statuses)
    }

    fn load_binaries(&self, devices: &[Device], binaries: &[&[u8]], statuses: &mut [cl_int]) -> ClResult<Program> {
        if devices.len() != binaries.len() || devices.len() != statuses.len() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let devices = device::handles(devices);
        let lengths: Vec<usize> = binaries.iter().map(|binary| binary.len()).collect();
        let mut starts: Vec<*const u8> = binaries.iter().map(|binary| binary.as_ptr()).collect();
        let mut status = CL_SUCCESS;
        // SAFETY: four arrays with one element for each device; the binaries are copied during the call.
        let raw = unsafe {
            (self.library().clCreateProgramWithBinary)(
                self.raw(),
                count(devices.len())?,
                pointer(&devices),
                pointer(&lengths),
                starts.as_mut_ptr(),
                statuses.as_mut_ptr(),
                &raw mut status,
            )
        };
        // SAFETY: the new program's only reference is ours.
        Ok(unsafe { Program::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateProgramWithIL`.
    pub fn create_program_with_il(&self, il: &[u8]) -> ClResult<Program> {
        let create = need(self.library().clCreateProgramWithIL)?;
        let mut status = CL_SUCCESS;
        // SAFETY: the context is valid, and `il` is copied during the call.
        let raw = unsafe { create(self.raw(), il.as_ptr().cast(), il.len(), &raw mut status) };
        // SAFETY: the new program's only reference is ours.
        Ok(unsafe { Program::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateProgramWithBuiltInKernels`; the names are separated by semicolons.
    pub fn create_program_with_built_in_kernels(&self, devices: &[Device], names: &CStr) -> ClResult<Program> {
        let create = need(self.library().clCreateProgramWithBuiltInKernels)?;
        let devices = device::handles(devices);
        let mut status = CL_SUCCESS;
        // SAFETY: the context and the devices are valid, and the names end with NUL.
        let raw =
            unsafe { create(self.raw(), count(devices.len())?, pointer(&devices), names.as_ptr(), &raw mut status) };
        // SAFETY: the new program's only reference is ours.
        Ok(unsafe { Program::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clLinkProgram`; blocks. A driver may return a program, with its log, even where the link failed.
    ///
    /// No devices means all of the context.
    pub fn link_program(&self, devices: &[Device], options: &CStr, programs: &[&Program]) -> (cl_int, Option<Program>) {
        let devices = device::handles(devices);
        let programs: Vec<cl_program> = programs.iter().map(|program| program.raw()).collect();
        let (Some(link), Ok(num_devices), Ok(num_programs)) =
            (self.library().clLinkProgram, count(devices.len()), count(programs.len()))
        else {
            return (CL_INVALID_OPERATION, None);
        };
        let mut status = CL_SUCCESS;
        // SAFETY: all handles are valid, the options end with NUL, and there is no callback.
        let raw = unsafe {
            link(
                self.raw(),
                num_devices,
                pointer(&devices),
                options.as_ptr(),
                num_programs,
                pointer(&programs),
                None,
                ptr::null_mut(),
                &raw mut status,
            )
        };
        if raw.is_null() {
            let status = if status == CL_SUCCESS { CL_LINK_PROGRAM_FAILURE } else { status };
            return (status, None);
        }
        // SAFETY: the new program's only reference is ours.
        (status, Some(unsafe { Program::from_raw(self.library(), raw) }))
    }
}

impl Program {
    /// `clBuildProgram`; blocks. No devices means all of the program.
    pub fn build(&self, devices: &[Device], options: &CStr) -> ClResult<()> {
        let devices = device::handles(devices);
        // SAFETY: the program and the devices are valid, the options end with NUL, and there is no callback.
        check(unsafe {
            (self.library.clBuildProgram)(
                self.raw,
                count(devices.len())?,
                pointer(&devices),
                options.as_ptr(),
                None,
                ptr::null_mut(),
            )
        })
    }

    /// `clCompileProgram`; blocks. A header is a program under the name by which the source includes it.
    ///
    /// No devices means all of the program.
    pub fn compile(&self, devices: &[Device], options: &CStr, headers: &[(&CStr, &Program)]) -> ClResult<()> {
        let compile = need(self.library.clCompileProgram)?;
        let devices = device::handles(devices);
        let programs: Vec<cl_program> = headers.iter().map(|(_, program)| program.raw()).collect();
        let mut names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let names = if names.is_empty() { ptr::null_mut() } else { names.as_mut_ptr() };
        // SAFETY: all handles are valid, all strings end with NUL, the two header arrays have the same length, and
        // there is no callback.
        check(unsafe {
            compile(
                self.raw,
                count(devices.len())?,
                pointer(&devices),
                options.as_ptr(),
                count(programs.len())?,
                pointer(&programs),
                names,
                None,
                ptr::null_mut(),
            )
        })
    }

    /// `clSetProgramSpecializationConstant`.
    pub fn set_specialization_constant(&self, id: u32, value: &[u8]) -> ClResult<()> {
        let set = need(self.library.clSetProgramSpecializationConstant)?;
        // SAFETY: the program is valid, and the value is copied during the call.
        check(unsafe { set(self.raw, id, value.len(), value.as_ptr().cast()) })
    }

    /// `clGetProgramInfo`. Not for `CL_PROGRAM_BINARIES`, whose answer is in [`binaries`](Self::binaries).
    pub fn info(&self, param: cl_program_info) -> ClResult<Vec<u8>> {
        // SAFETY: the program is valid, and `info::read` passes a value of `size` zero bytes or null. The pointers that
        // CL_PROGRAM_BINARIES would follow are therefore null, which it skips.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetProgramInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetProgramBuildInfo`.
    pub fn build_info(&self, device: &Device, param: cl_program_build_info) -> ClResult<Vec<u8>> {
        let get = self.library.clGetProgramBuildInfo;
        // SAFETY: both handles are valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe { get(self.raw, device.raw(), param, size, value, size_ret) })
    }

    /// What the compiler had to say for a device.
    pub fn build_log(&self, device: &Device) -> ClResult<String> {
        Ok(info::string(&self.build_info(device, CL_PROGRAM_BUILD_LOG)?))
    }

    /// The binary for each device, in the order of `CL_PROGRAM_DEVICES`; empty for a device that has none.
    pub fn binaries(&self) -> ClResult<Vec<Vec<u8>>> {
        let sizes = self.info(CL_PROGRAM_BINARY_SIZES)?;
        let mut binaries: Vec<Vec<u8>> = sizes
            .chunks_exact(size_of::<usize>())
            .filter_map(info::number)
            .map(|size| usize::try_from(size).map(|size| vec![0; size]))
            .collect::<Result<_, _>>()
            .map_err(|_| ClError(CL_OUT_OF_HOST_MEMORY))?;
        if binaries.is_empty() {
            return Ok(binaries);
        }
        let mut starts: Vec<*mut u8> = binaries
            .iter_mut()
            .map(|binary| if binary.is_empty() { ptr::null_mut() } else { binary.as_mut_ptr() })
            .collect();
        // SAFETY: one pointer for each device, to as many bytes as the driver has just said, or null.
        check(unsafe {
            (self.library.clGetProgramInfo)(
                self.raw,
                CL_PROGRAM_BINARIES,
                starts.len() * size_of::<*mut u8>(),
                starts.as_mut_ptr().cast(),
                ptr::null_mut(),
            )
        })?;
        Ok(binaries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const GOOD: &[u8] = b"__kernel void one(__global int *out) { out[get_global_id(0)] = 1; }";

    #[test]
    fn wrong_source_is_an_error_with_a_log() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let program = context.create_program_with_source(b"__kernel void f( { nonsense }").unwrap();
        assert_eq!(program.build(&[], c""), Err(ClError(CL_BUILD_PROGRAM_FAILURE)));
        assert!(program.build_log(&device).unwrap().contains("error"));
    }

    #[test]
    fn an_empty_source_reads_no_memory_of_others() {
        let Some((context, _)) = testing::context() else {
            return;
        };
        if let Ok(program) = context.create_program_with_source(b"") {
            assert!(info::string(&program.info(CL_PROGRAM_SOURCE).unwrap()).is_empty());
        }
    }

    #[test]
    fn a_binary_makes_the_same_program_again() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let program = context.create_program_with_source(GOOD).unwrap();
        program.build(&[], c"").unwrap();
        let binaries = program.binaries().unwrap();
        assert_eq!(binaries.len(), 1);
        assert!(!binaries[0].is_empty());
        let devices = std::slice::from_ref(&device);
        let (again, statuses) = context.create_program_with_binary(devices, &[&binaries[0]]);
        assert_eq!(statuses, [CL_SUCCESS]);
        let again = again.unwrap();
        again.build(devices, c"").unwrap();
        again.create_kernel(c"one").unwrap();
        let (refused, _) = context.create_program_with_binary(devices, &[b"no program"]);
        assert_eq!(refused, Err(ClError(CL_INVALID_BINARY)));
        let (refused, _) = context.create_program_with_binary(devices, &[]);
        assert_eq!(refused, Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn programs_are_compiled_with_headers_and_linked() {
        let Some((context, _)) = testing::context() else {
            return;
        };
        let header = context.create_program_with_source(b"#define VALUE 7\n").unwrap();
        let source = b"#include \"value.h\"\n__kernel void f(__global int *o) { o[0] = VALUE; }";
        let program = context.create_program_with_source(source).unwrap();
        program.compile(&[], c"", &[(c"value.h", &header)]).unwrap();
        let (status, linked) = context.link_program(&[], c"", &[&program]);
        assert_eq!(status, CL_SUCCESS);
        linked.unwrap().create_kernel(c"f").unwrap();
    }
}
