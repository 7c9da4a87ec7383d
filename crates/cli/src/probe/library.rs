//! Opening a shared library and asking it what it is.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

/// Why a library could not be opened, in the words of the dynamic linker.
#[derive(Debug)]
pub struct OpenError(pub String);

/// A library that stays open until the process ends.
#[derive(Debug)]
pub struct Opened(libloading::Library);

/// What a loader says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Loader {
    pub name: String,
    pub version: String,
    /// `OCL Icd free software` for ocl-icd, `Khronos Group` for theirs.
    pub vendor: String,
}

/// Opens a library as a program or a loader would.
pub fn open(name: impl AsRef<OsStr>) -> Result<Opened, OpenError> {
    // SAFETY: runs the initialisers of the library that the caller asked to have tried out. They are
    // foreign code; this process exists for nothing else.
    match unsafe { libloading::Library::new(name.as_ref()) } {
        Ok(library) => Ok(Opened(library)),
        Err(error) => {
            // The text of `dlopen` is in the source; the outer error only says that it failed.
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Err(OpenError(cause.unwrap_or_else(|| error.to_string())))
        }
    }
}

impl Opened {
    /// Whether the library exports a function of this name.
    pub fn exports(&self, function: &str) -> bool {
        // SAFETY: only the existence is of interest; the address is neither called nor read.
        unsafe { self.0.get::<*const c_void>(function.as_bytes()) }.is_ok()
    }

    /// Name and version of an OpenCL loader, if it can tell. Both the free ones can.
    pub fn loader(&self) -> Option<Loader> {
        type LoaderInfo = unsafe extern "C" fn(c_int, usize, *mut c_void, *mut usize) -> c_int;
        const VERSION: c_int = 2; // CL_ICDL_VERSION
        const NAME: c_int = 3; // CL_ICDL_NAME
        const VENDOR: c_int = 4; // CL_ICDL_VENDOR
        type Address = unsafe extern "C" fn(*const c_char) -> Option<LoaderInfo>;
        // SAFETY: the symbol is the function of that name in the OpenCL ABI. It returns the address of the function
        // that is asked for below, which has the type given, or null.
        let address = unsafe { self.0.get::<Address>(b"clGetExtensionFunctionAddress") }.ok()?;
        // SAFETY: the name ends with NUL.
        let info = unsafe { address(c"clGetICDLoaderInfoOCLICD".as_ptr()) }?;
        let ask = |what| {
            let mut text = [0u8; 256];
            let mut size = 0;
            // SAFETY: the value has room for the size given, and the size is a place of ours.
            let status = unsafe { info(what, text.len(), text.as_mut_ptr().cast(), &raw mut size) };
            (status == 0).then(|| {
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                String::from_utf8_lossy(&text[..end]).into_owned()
            })
        };
        Some(Loader {
            name: ask(NAME)?,
            version: ask(VERSION).unwrap_or_default(),
            vendor: ask(VENDOR).unwrap_or_default(),
        })
    }

    /// The file that was opened: where one of its functions is mapped from.
    pub fn file_of(&self, function: &str) -> Option<PathBuf> {
        // SAFETY: the address is compared with the map of this process, not called or read.
        let symbol = unsafe { self.0.get::<*const c_void>(function.as_bytes()) }.ok()?;
        let address = ptr::NonNull::new((*symbol).cast_mut())?.as_ptr() as usize;
        mapped_file(&fs::read_to_string("/proc/self/maps").ok()?, address)
    }
}

/// The file behind `address` in a table like `/proc/self/maps`.
fn mapped_file(maps: &str, address: usize) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let path = line.find('/').map(|at| Path::new(&line[at..]))?;
        range.contains(&address).then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error_with_a_reason() {
        let OpenError(reason) = open("/nowhere/libnothing.so").unwrap_err();
        assert!(reason.contains("/nowhere/libnothing.so"), "{reason}");
    }

    #[test]
    fn the_c_library_opens_and_says_where_it_is() {
        let library = open("libc.so.6").unwrap();
        assert!(library.exports("getpid"));
        assert!(!library.exports("clGetExtensionFunctionAddress"));
        assert_eq!(library.loader(), None);
        assert!(library.file_of("getpid").unwrap().to_string_lossy().contains("libc"));
    }

    #[test]
    fn the_file_is_the_one_mapped_at_the_address() {
        let maps = "1000-2000 r-xp 00000000 00:00 0\n\
                    2000-3000 r-xp 00000000 08:01 77                 /usr/lib/libOpenCL.so.1.0.0\n";
        assert_eq!(mapped_file(maps, 0x2fff), Some("/usr/lib/libOpenCL.so.1.0.0".into()));
        assert_eq!(mapped_file(maps, 0x1800), None);
        assert_eq!(mapped_file(maps, 0x3000), None);
    }
}
