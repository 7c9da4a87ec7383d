//! The part of the cache that is in memory: what was used last stays.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::channel::Key;

#[derive(Debug)]
pub(crate) struct Memory {
    most_bytes: usize,
    bytes: usize,
    programs: HashMap<Key, (Arc<[u8]>, u64)>,
    /// When each was used last, oldest first.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
}

impl Memory {
    pub(crate) fn new(most_bytes: usize) -> Memory {
        Memory { most_bytes, bytes: 0, programs: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    pub(crate) fn get(&mut self, name: &Key) -> Option<Arc<[u8]>> {
        let content = Arc::clone(&self.programs.get(name)?.0);
        // Removed and added again, it is the one that was used last.
        self.put(*name, Arc::clone(&content));
        Some(content)
    }

    pub(crate) fn put(&mut self, name: Key, content: Arc<[u8]>) {
        self.remove(&name);
        if content.len() > self.most_bytes {
            return;
        }
        self.uses += 1;
        self.bytes += content.len();
        self.programs.insert(name, (content, self.uses));
        self.by_use.insert(self.uses, name);
        while self.bytes > self.most_bytes
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            self.remove(&oldest);
        }
    }

    pub(crate) fn remove(&mut self, name: &Key) {
        if let Some((content, used)) = self.programs.remove(name) {
            self.bytes -= content.len();
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays_and_the_bound_is_kept() {
        let mut memory = Memory::new(100);
        let program = |len| Arc::<[u8]>::from(vec![0; len]);
        memory.put([1; 32], program(40));
        memory.put([2; 32], program(40));
        assert!(memory.get(&[1; 32]).is_some());
        memory.put([3; 32], program(40));
        assert!(memory.get(&[2; 32]).is_none());
        assert!(memory.get(&[1; 32]).is_some() && memory.get(&[3; 32]).is_some());
        memory.put([4; 32], program(101));
        assert!(memory.get(&[4; 32]).is_none());
        memory.put([1; 32], program(60));
        assert_eq!((memory.bytes, memory.programs.len(), memory.by_use.len()), (100, 2, 2));
        memory.remove(&[1; 32]);
        assert_eq!(memory.bytes, 40);
    }
}
