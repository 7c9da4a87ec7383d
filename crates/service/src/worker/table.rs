//! The session's objects by the ids that the driver gave them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use telecl_opencl::{ClError, ClResult};

/// Objects of one kind. An id stands for an object, or for the status with which its creation failed.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: HashMap<u64, ClResult<T>, IdHash>,
    /// What the use of an unknown id comes to.
    missing: ClError,
}

impl<T> Table<T> {
    pub(crate) fn new(missing: i32) -> Table<T> {
        Table { entries: HashMap::default(), missing: ClError(missing) }
    }

    pub(crate) fn get(&self, id: u64) -> ClResult<&T> {
        match self.entries.get(&id) {
            Some(Ok(object)) => Ok(object),
            Some(Err(error)) => Err(*error),
            None => Err(self.missing),
        }
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> ClResult<&mut T> {
        match self.entries.get_mut(&id) {
            Some(Ok(object)) => Ok(object),
            Some(Err(error)) => Err(*error),
            None => Err(self.missing),
        }
    }

    /// What is under the id, telling an unknown one from one that failed.
    pub(crate) fn entry(&self, id: u64) -> Option<&ClResult<T>> {
        self.entries.get(&id)
    }

    pub(crate) fn insert(&mut self, id: u64, made: ClResult<T>) {
        self.entries.insert(id, made);
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.entries.remove(&id);
    }

    /// How many there are, with those that failed.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().filter_map(|(id, entry)| entry.as_ref().ok().map(|object| (*id, object)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.entries.iter_mut().filter_map(|(id, entry)| entry.as_mut().ok().map(|object| (*id, object)))
    }
}

/// Hashes ids and tokens. They come from one peer, who can slow down nobody but itself with bad ones.
pub(crate) type IdHash = BuildHasherDefault<IdHasher>;

#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, index: u32) {
        self.write_u64(u64::from(index));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_creation_is_remembered_under_its_id() {
        let mut table = Table::new(-38);
        table.insert(1, Ok("object"));
        table.insert(2, Err(ClError(-4)));
        assert_eq!(table.get(1), Ok(&"object"));
        assert_eq!(table.get(2), Err(ClError(-4)));
        assert_eq!(table.get(3), Err(ClError(-38)));
        table.remove(1);
        assert_eq!(table.get(1), Err(ClError(-38)));
    }
}
