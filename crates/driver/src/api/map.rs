//! Mapping: the program gets memory on this machine at once; data travels at map and unmap.

use std::sync::{Arc, Weak};

use telecl_sys::*;
use telecl_wire::request::{Marker, ReadBuffer, ReadImage};

use super::command::Submission;
use super::event::Event;
use super::memory::{Memory, MemoryKind};
use super::shadow::Shadow;
use super::transfer::Blocking;
use crate::host::{HostBox, HostPointer, Owner};
use crate::registry::lock;

/// A region that the program has mapped and not yet unmapped.
#[derive(Debug)]
pub(super) struct Mapping {
    /// What the program was given.
    pointer: HostPointer,
    target: MapTarget,
    writes: bool,
    /// Until this has completed the program may not have touched the memory.
    mapped: Arc<Event>,
    _shadow: ShadowUse,
}

/// Keeps an object's local memory from being given back while a part of it is mapped.
#[derive(Debug)]
struct ShadowUse {
    /// The object whose memory it is; weak, for a program may forget to unmap.
    storage: Weak<Memory>,
}

impl ShadowUse {
    fn of(memory: &Arc<Memory>) -> ShadowUse {
        let storage = match &memory.kind {
            MemoryKind::SubBuffer { parent, .. } => parent,
            _ => memory,
        };
        *lock(&storage.shadow_users) += 1;
        ShadowUse { storage: Arc::downgrade(storage) }
    }
}

impl Drop for ShadowUse {
    fn drop(&mut self) {
        let Some(storage) = self.storage.upgrade() else { return };
        // Under the lock, so that a new map waits and then finds its memory untouched.
        let mut users = lock(&storage.shadow_users);
        *users -= 1;
        if let (0, Some(shadow)) = (*users, storage.shadow.get()) {
            shadow.discard();
        }
    }
}

/// Which part of an object is mapped.
#[derive(Clone, Debug)]
pub(crate) enum MapTarget {
    Range { offset: u64, size: u64 },
    Box { origin: [u64; 3], region: [u64; 3] },
}

/// What `clEnqueueMapImage` returns besides the pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    pub(crate) pointer: HostPointer,
    pub(crate) row_pitch: u64,
    pub(crate) slice_pitch: u64,
}

impl Memory {
    /// Where the object's memory is on this machine.
    fn local_memory(&self) -> ClResult<HostPointer> {
        if let Some(host) = self.host_pointer() {
            return Ok(host);
        }
        if let MemoryKind::SubBuffer { parent, origin } = &self.kind {
            // Maps of a buffer and of its parts show the same memory.
            return Ok(parent.local_memory()?.offset(*origin));
        }
        if self.shadow.get().is_none() {
            let fresh = Shadow::new(self.shadow_size())?;
            // Another thread may have been faster; then its memory is used and ours goes away.
            let _ = self.shadow.set(fresh);
        }
        self.shadow.get().map(Shadow::start).ok_or(ClError(CL_MAP_FAILURE))
    }

    fn shadow_size(&self) -> u64 {
        match &self.kind {
            MemoryKind::Image(image) => image.mapped_size(),
            _ => self.size,
        }
    }
}

fn check_map_flags(flags: cl_map_flags) -> ClResult<(bool, bool)> {
    const KNOWN: cl_map_flags = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
    // CL_INVALID_VALUE if values specified in map_flags are not valid.
    if flags & !KNOWN != 0 || (flags & CL_MAP_WRITE_INVALIDATE_REGION != 0 && flags & (CL_MAP_READ | CL_MAP_WRITE) != 0)
    {
        return Err(ClError(CL_INVALID_VALUE));
    }
    let reads = flags & CL_MAP_READ != 0;
    let writes = flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0;
    Ok((reads, writes))
}

impl Submission<'_> {
    /// `clEnqueueMapBuffer`.
    pub(crate) fn map_buffer(
        &self,
        buffer: &Arc<Memory>,
        blocking: Blocking,
        flags: cl_map_flags,
        offset: u64,
        size: u64,
    ) -> ClResult<(HostPointer, Option<Arc<Event>>)> {
        buffer.as_buffer()?;
        self.uses(buffer)?;
        let (reads, writes) = check_map_flags(flags)?;
        // CL_INVALID_VALUE if region being mapped given by (offset, size) is out of bounds or if size is 0.
        if size == 0 || offset.checked_add(size).is_none_or(|end| end > buffer.size) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        buffer.check_alignment(&self.queue.device)?;
        buffer.check_host_access(reads, writes)?;
        let pointer = buffer.local_memory()?.offset(offset);
        // SAFETY: the object's local memory has its size, the range was checked, and it lives as long
        // as the object, which the box keeps alive.
        let target = unsafe { HostBox::new(pointer, [size, 1, 1], 1, size, size, Some(Arc::clone(buffer) as Owner)) };
        let range = MapTarget::Range { offset, size };
        let event = self.map(CL_COMMAND_MAP_BUFFER, buffer, blocking, flags, pointer, target, range)?;
        Ok((pointer, event))
    }

    /// `clEnqueueMapImage`.
    pub(crate) fn map_image(
        &self,
        memory: &Arc<Memory>,
        blocking: Blocking,
        flags: cl_map_flags,
        origin: [u64; 3],
        region: [u64; 3],
    ) -> ClResult<(Mapped, Option<Arc<Event>>)> {
        let image = memory.as_image()?;
        self.uses(memory)?;
        let (reads, writes) = check_map_flags(flags)?;
        image.check_region(origin, region)?;
        memory.check_host_access(reads, writes)?;
        let (row_pitch, slice_pitch) = image.box_pitches();
        let start = origin[0] * image.element_size + origin[1] * row_pitch + origin[2] * slice_pitch;
        let pointer = memory.local_memory()?.offset(start);
        // SAFETY: the object's local memory holds the whole image with these pitches, the region was
        // checked, and it lives as long as the object, which the box keeps alive.
        let target = unsafe {
            HostBox::new(pointer, region, image.element_size, row_pitch, slice_pitch, Some(Arc::clone(memory) as Owner))
        };
        let event = self.map(
            CL_COMMAND_MAP_IMAGE,
            memory,
            blocking,
            flags,
            pointer,
            target,
            MapTarget::Box { origin, region },
        )?;
        let (row_pitch, slice_pitch) = (image.row_pitch, image.slice_pitch);
        Ok((Mapped { pointer, row_pitch, slice_pitch }, event))
    }

    #[expect(clippy::too_many_arguments, reason = "what buffers and images have in common")]
    fn map(
        &self,
        kind: cl_command_type,
        memory: &Arc<Memory>,
        blocking: Blocking,
        flags: cl_map_flags,
        pointer: HostPointer,
        target: HostBox,
        part: MapTarget,
    ) -> ClResult<Option<Arc<Event>>> {
        let shadow = ShadowUse::of(memory);
        let event = self.expect(kind, Some(target));
        let command = self.command(Some(&event));
        {
            let _order = self.queue.hold();
            if flags & CL_MAP_WRITE_INVALIDATE_REGION != 0 {
                // The program will overwrite it all; nothing needs to be fetched.
                self.send(Some(&event), &Marker { command }, &[])?;
            } else {
                match part {
                    MapTarget::Range { offset, size } => {
                        self.send(Some(&event), &ReadBuffer { command, buffer: memory.id(), offset, size }, &[])?;
                    }
                    MapTarget::Box { origin, region } => {
                        self.send(Some(&event), &ReadImage { command, image: memory.id(), origin, region }, &[])?;
                    }
                }
            }
        }
        let writes = flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0;
        let mapping = Mapping { pointer, target: part, writes, mapped: Arc::clone(&event), _shadow: shadow };
        lock(&memory.maps).push(mapping);
        if blocking == Blocking::Wait {
            self.wait(&event).inspect_err(|_| {
                lock(&memory.maps).retain(|mapping| !Arc::ptr_eq(&mapping.mapped, &event));
            })?;
        }
        Ok(self.wants_event.then_some(event))
    }

    /// `clEnqueueUnmapMemObject`.
    pub(crate) fn unmap(&self, memory: &Arc<Memory>, pointer: Option<HostPointer>) -> ClResult<Option<Arc<Event>>> {
        self.uses(memory)?;
        let (upload, ended) = {
            let mut maps = lock(&memory.maps);
            let same = |mapping: &Mapping| Some(mapping.pointer) == pointer;
            // Of several maps with one pointer, those that only read end first: the program may still
            // write through the pointer. What it has written so far travels with every unmap.
            let written = maps.iter().position(|mapping| same(mapping) && mapping.writes);
            let ending = maps.iter().position(|mapping| same(mapping) && !mapping.writes).or(written);
            // CL_INVALID_VALUE if mapped_ptr is not a valid pointer returned by clEnqueueMapBuffer or
            // clEnqueueMapImage for memobj.
            let ending = ending.ok_or(ClError(CL_INVALID_VALUE))?;
            // Before its map has completed the program may not write, so there is nothing to send; what
            // is in our memory may not even have arrived.
            let upload = written.filter(|&i| maps[i].mapped.status() == CL_COMPLETE).map(|i| maps[i].target.clone());
            (upload, maps.remove(ending))
        };
        let start = pointer.ok_or(ClError(CL_INVALID_VALUE))?;
        let event = match upload {
            None => self.post(CL_COMMAND_UNMAP_MEM_OBJECT, |command| Marker { command })?,
            Some(MapTarget::Range { offset, size }) => {
                // SAFETY: the object's local memory holds the mapped range, as in `map_buffer`.
                let source = unsafe { HostBox::new(start, [size, 1, 1], 1, size, size, None) };
                self.store_linear(CL_COMMAND_UNMAP_MEM_OBJECT, Blocking::Return, memory, offset, &source)?
            }
            Some(MapTarget::Box { origin, region }) => {
                let image = memory.as_image()?;
                let (row_pitch, slice_pitch) = image.box_pitches();
                // SAFETY: the object's local memory holds the mapped box, as in `map_image`.
                let source = unsafe { HostBox::new(start, region, image.element_size, row_pitch, slice_pitch, None) };
                self.store_image(CL_COMMAND_UNMAP_MEM_OBJECT, Blocking::Return, memory, origin, &source)?
            }
        };
        // What was written has been sent; now the memory may go.
        drop(ended);
        Ok(event)
    }
}
