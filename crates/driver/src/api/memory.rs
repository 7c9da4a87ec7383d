//! Memory objects: what buffers, images and pipes have in common.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use telecl_sys::*;
use telecl_wire::request::Kind;

use super::context::{Context, Destructor};
use super::image::Image;
use super::info::{InfoValue, value};
use super::map::Mapping;
use super::pipe::Pipe;
use super::shadow::Shadow;
use crate::host::HostPointer;
use crate::process::state;
use crate::registry::{Base, Object, Registry, lock};
use crate::session::Charge;

/// A buffer, sub-buffer, image or pipe.
pub(crate) struct Memory {
    base: Base<Memory>,
    pub(crate) context: Arc<Context>,
    pub(crate) kind: MemoryKind,
    /// As `clGetMemObjectInfo` reports them.
    pub(crate) flags: cl_mem_flags,
    pub(crate) size: u64,
    /// The program's memory, with USE_HOST_PTR.
    pub(super) host: Option<HostPointer>,
    /// As the program gave them, with the final zero.
    pub(super) properties: Option<Vec<u64>>,
    /// Stands for the object while it is mapped, unless the program's own memory does.
    pub(super) shadow: OnceLock<Shadow>,
    /// How many maps use `shadow`, those of sub-buffers too. Held while the memory is given back.
    pub(super) shadow_users: Mutex<usize>,
    pub(super) maps: Mutex<Vec<Mapping>>,
    destructors: Mutex<Vec<Destructor>>,
    /// Whether there are destructors; commands look at it without the lock.
    tracked: AtomicBool,
    /// What it takes of the devices' memory. After `base`, whose end sends the release.
    _charge: Option<Charge>,
}

/// What a memory object is made with.
#[derive(Debug, Default)]
pub(super) struct Provision {
    pub(super) flags: cl_mem_flags,
    pub(super) size: u64,
    /// Kept with USE_HOST_PTR only.
    pub(super) host: Option<HostPointer>,
    /// As the program gave them, with the final zero.
    pub(super) properties: Option<Vec<u64>>,
    /// None if it is made of another object.
    pub(super) charge: Option<Charge>,
}

/// What kind of memory object it is.
#[derive(Debug)]
pub(crate) enum MemoryKind {
    Buffer,
    /// A range of another buffer.
    SubBuffer {
        parent: Arc<Memory>,
        origin: u64,
    },
    Image(Image),
    Pipe(Pipe),
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("id", &self.base.id)
            .field("kind", &self.kind)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Object for Memory {
    const INVALID: cl_int = CL_INVALID_MEM_OBJECT;
    const KIND: Kind = Kind::Memory;

    fn registry() -> &'static Registry<Self> {
        &state().memory
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

/// Flags that say where memory comes from on the client; the service never sees them.
pub(super) const HOST_POINTER_FLAGS: cl_mem_flags = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;
pub(super) const DEVICE_ACCESS: cl_mem_flags = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
const HOST_ACCESS: cl_mem_flags = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;

/// CL_INVALID_VALUE if values specified in flags are not valid.
pub(super) fn check_flags(flags: cl_mem_flags) -> ClResult<()> {
    let known = DEVICE_ACCESS | HOST_ACCESS | HOST_POINTER_FLAGS | CL_MEM_KERNEL_READ_AND_WRITE;
    let exclusive = |group: cl_mem_flags| (flags & group).count_ones() <= 1;
    let pointer_flags_fit =
        flags & CL_MEM_USE_HOST_PTR == 0 || flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) == 0;
    if flags & !known == 0 && exclusive(DEVICE_ACCESS) && exclusive(HOST_ACCESS) && pointer_flags_fit {
        Ok(())
    } else {
        Err(ClError(CL_INVALID_VALUE))
    }
}

/// CL_INVALID_HOST_PTR if host_ptr is NULL and CL_MEM_USE_HOST_PTR or CL_MEM_COPY_HOST_PTR are set in
/// flags or if host_ptr is not NULL but CL_MEM_COPY_HOST_PTR or CL_MEM_USE_HOST_PTR are not set.
pub(super) fn check_host_pointer(flags: cl_mem_flags, host: Option<HostPointer>) -> ClResult<()> {
    if (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0) == host.is_some() {
        Ok(())
    } else {
        Err(ClError(CL_INVALID_HOST_PTR))
    }
}

/// Without any of them, memory is read and written by kernels.
pub(super) fn with_default_access(flags: cl_mem_flags) -> cl_mem_flags {
    if flags & DEVICE_ACCESS == 0 { flags | CL_MEM_READ_WRITE } else { flags }
}

/// What a part of `parent` may do: flags that are not given are inherited; the device's and the
/// host's access may only become narrower.
pub(super) fn inherited_flags(parent: cl_mem_flags, flags: cl_mem_flags) -> ClResult<cl_mem_flags> {
    let widens_device = match parent & DEVICE_ACCESS {
        CL_MEM_WRITE_ONLY => flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY) != 0,
        CL_MEM_READ_ONLY => flags & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY) != 0,
        _ => false,
    };
    let widens_host = match parent & HOST_ACCESS {
        CL_MEM_HOST_WRITE_ONLY => flags & CL_MEM_HOST_READ_ONLY != 0,
        CL_MEM_HOST_READ_ONLY => flags & CL_MEM_HOST_WRITE_ONLY != 0,
        CL_MEM_HOST_NO_ACCESS => flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY) != 0,
        _ => false,
    };
    // CL_INVALID_VALUE if flags widen the access, or specify CL_MEM_USE_HOST_PTR,
    // CL_MEM_ALLOC_HOST_PTR or CL_MEM_COPY_HOST_PTR.
    if widens_device || widens_host || flags & HOST_POINTER_FLAGS != 0 {
        return Err(ClError(CL_INVALID_VALUE));
    }
    let device = if flags & DEVICE_ACCESS == 0 { parent & DEVICE_ACCESS } else { flags & DEVICE_ACCESS };
    let host = if flags & HOST_ACCESS == 0 { parent & HOST_ACCESS } else { flags & HOST_ACCESS };
    Ok(device | host | parent & HOST_POINTER_FLAGS)
}

impl Memory {
    pub(super) fn new(context: &Arc<Context>, kind: MemoryKind, provision: Provision) -> Arc<Memory> {
        Memory::with_id(context, context.session.next_id(), kind, provision)
    }

    pub(super) fn with_id(context: &Arc<Context>, id: u64, kind: MemoryKind, provision: Provision) -> Arc<Memory> {
        let Provision { flags, size, host, properties, charge } = provision;
        Arc::new(Memory {
            base: Base::with_id(Some(&context.session), id),
            context: Arc::clone(context),
            kind,
            flags,
            size,
            host: host.filter(|_| flags & CL_MEM_USE_HOST_PTR != 0),
            properties,
            shadow: OnceLock::new(),
            shadow_users: Mutex::default(),
            maps: Mutex::default(),
            destructors: Mutex::default(),
            tracked: AtomicBool::new(false),
            _charge: charge,
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    pub(crate) fn address(&self) -> usize {
        self.base.address()
    }

    /// CL_INVALID_MEM_OBJECT if it is not a buffer object.
    pub(crate) fn as_buffer(&self) -> ClResult<&Self> {
        match self.kind {
            MemoryKind::Buffer | MemoryKind::SubBuffer { .. } => Ok(self),
            MemoryKind::Image(_) | MemoryKind::Pipe(_) => Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
    }

    /// CL_INVALID_MEM_OBJECT if it is not an image object.
    pub(crate) fn as_image(&self) -> ClResult<&Image> {
        match &self.kind {
            MemoryKind::Image(image) => Ok(image),
            _ => Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
    }

    pub(crate) fn is_depth_image(&self) -> bool {
        self.as_image().is_ok_and(|image| image.format.image_channel_order == CL_DEPTH)
    }

    /// CL_INVALID_MEM_OBJECT if it is not a pipe object.
    pub(crate) fn as_pipe(&self) -> ClResult<&Pipe> {
        match &self.kind {
            MemoryKind::Pipe(pipe) => Ok(pipe),
            _ => Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
    }

    /// CL_INVALID_OPERATION if the host may not read (write) the object.
    pub(super) fn check_host_access(&self, reads: bool, writes: bool) -> ClResult<()> {
        let denied = (reads && self.flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS) != 0)
            || (writes && self.flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) != 0);
        if denied { Err(ClError(CL_INVALID_OPERATION)) } else { Ok(()) }
    }

    /// CL_MEM_HOST_PTR: the program's own memory behind the object.
    pub(super) fn host_pointer(&self) -> Option<HostPointer> {
        match &self.kind {
            MemoryKind::SubBuffer { parent, origin } => parent.host_pointer().map(|start| start.offset(*origin)),
            _ => self.host,
        }
    }

    pub(super) fn has_destructors(&self) -> bool {
        self.tracked.load(Ordering::Relaxed)
    }

    /// `clSetMemObjectDestructorCallback`.
    pub(crate) fn on_destruction(&self, destructor: Destructor) {
        self.tracked.store(true, Ordering::Relaxed);
        lock(&self.destructors).push(destructor);
    }

    /// `clGetMemObjectInfo`.
    pub(crate) fn info(&self, param: cl_mem_info) -> ClResult<InfoValue<'_>> {
        let (parent, origin) = match &self.kind {
            MemoryKind::SubBuffer { parent, origin } => (Some(parent), *origin),
            MemoryKind::Image(image) => (image.parent.as_ref(), 0),
            MemoryKind::Buffer | MemoryKind::Pipe(_) => (None, 0),
        };
        Ok(match param {
            CL_MEM_TYPE => value(match &self.kind {
                MemoryKind::Buffer | MemoryKind::SubBuffer { .. } => CL_MEM_OBJECT_BUFFER,
                MemoryKind::Image(image) => image.shape.kind,
                MemoryKind::Pipe(_) => CL_MEM_OBJECT_PIPE,
            }),
            CL_MEM_FLAGS => value(self.flags),
            CL_MEM_SIZE => value(self.size as usize),
            CL_MEM_HOST_PTR => value(self.host_pointer().map_or(0, HostPointer::address)),
            CL_MEM_MAP_COUNT => value(lock(&self.maps).len() as u32),
            CL_MEM_REFERENCE_COUNT => value(self.base.references()),
            CL_MEM_CONTEXT => value(self.context.address()),
            CL_MEM_ASSOCIATED_MEMOBJECT => value(parent.map_or(0, |parent| parent.address())),
            CL_MEM_OFFSET => value(origin as usize),
            CL_MEM_USES_SVM_POINTER => value(CL_FALSE),
            CL_MEM_PROPERTIES => value(self.properties.as_deref().unwrap_or_default()),
            _ => return Err(ClError(CL_INVALID_VALUE)),
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        Context::run_destructors(&self.context.session, &self.destructors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_may_only_become_narrower() {
        assert_eq!(inherited_flags(CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY), Err(ClError(CL_INVALID_VALUE)));
        assert_eq!(inherited_flags(CL_MEM_READ_WRITE, CL_MEM_READ_ONLY), Ok(CL_MEM_READ_ONLY));
        assert_eq!(
            inherited_flags(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, 0),
            Ok(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR)
        );
        assert_eq!(inherited_flags(CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY), Err(ClError(CL_INVALID_VALUE)));
        assert_eq!(inherited_flags(0, CL_MEM_USE_HOST_PTR), Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn contradicting_flags_are_refused() {
        for flags in [
            CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
            CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR,
            CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS,
            1 << 40,
        ] {
            assert_eq!(check_flags(flags), Err(ClError(CL_INVALID_VALUE)), "{flags:#x}");
        }
        assert_eq!(check_flags(CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR), Ok(()));
    }
}
