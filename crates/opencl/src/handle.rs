//! What all OpenCL objects have in common: one reference that is retained by `Clone` and released by `Drop`.

use std::ptr;

use telecl_sys::*;

/// Makes a type out of a handle and its retain and release functions.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($raw:ty), $retain:ident, $release:ident) => {
        $(#[$doc])*
        pub struct $name {
            raw: $raw,
            library: &'static $crate::Library,
        }

        // SAFETY: "All OpenCL API calls are thread-safe except those that set kernel arguments" (specification,
        // appendix A.2), and a handle belongs to the process, not to a thread. `Kernel` has a lock for the exception.
        unsafe impl Send for $name {}
        // SAFETY: as for `Send`.
        unsafe impl Sync for $name {}

        impl $name {
            /// Takes over the one reference that a create call has returned.
            ///
            /// # Safety
            /// `raw` is a valid handle of this kind from `library`, and its reference belongs to the caller.
            pub(crate) unsafe fn from_raw(library: &'static $crate::Library, raw: $raw) -> Self {
                Self { raw, library }
            }

            /// The vendor's handle. It is valid as long as `self`.
            pub fn raw(&self) -> $raw {
                self.raw
            }

            /// The OpenCL that this object belongs to.
            pub fn library(&self) -> &'static $crate::Library {
                self.library
            }
        }

        impl Clone for $name {
            fn clone(&self) -> Self {
                // SAFETY: `self` holds a reference, so the handle is valid. Retaining a valid handle cannot fail.
                unsafe { (self.library.$retain)(self.raw) };
                Self { raw: self.raw, library: self.library }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: gives back the reference that `self` holds; nothing uses the handle after this.
                unsafe { (self.library.$release)(self.raw) };
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.raw == other.raw
            }
        }

        impl Eq for $name {}

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.raw)
            }
        }
    };
}

pub(crate) use handle;

/// What a create call came to: its error, or a handle that is not null.
pub(crate) fn created<T>(raw: *mut T, status: cl_int) -> ClResult<*mut T> {
    check(status)?;
    if raw.is_null() {
        // A driver that says "success" and returns nothing is broken; there is no better code for it.
        return Err(ClError(CL_OUT_OF_RESOURCES));
    }
    Ok(raw)
}

/// A number of elements as OpenCL counts them.
pub(crate) fn count(elements: usize) -> ClResult<cl_uint> {
    cl_uint::try_from(elements).map_err(|_| ClError(CL_INVALID_VALUE))
}

/// The elements' address, or null where there are none: OpenCL wants null and zero together.
pub(crate) fn pointer<T>(elements: &[T]) -> *const T {
    if elements.is_empty() { ptr::null() } else { elements.as_ptr() }
}
