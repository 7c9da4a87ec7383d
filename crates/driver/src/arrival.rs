//! Something that one thread waits for and another brings.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::registry::lock;

/// Empty until it is set, once.
#[derive(Debug)]
pub(crate) struct Arrival<T> {
    value: Mutex<Option<T>>,
    arrived: Condvar,
}

impl<T> Default for Arrival<T> {
    fn default() -> Self {
        Arrival { value: Mutex::new(None), arrived: Condvar::new() }
    }
}

impl<T> Arrival<T> {
    pub(crate) fn set(&self, value: T) {
        *lock(&self.value) = Some(value);
        self.arrived.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        lock(&self.value).is_some()
    }

    /// Waits for the value, and returns its place, which is not empty.
    pub(crate) fn wait(&self) -> MutexGuard<'_, Option<T>> {
        let mut value = lock(&self.value);
        while value.is_none() {
            value = self.arrived.wait(value).unwrap_or_else(PoisonError::into_inner);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_waits_gets_what_another_thread_brings() {
        let arrival = Arrival::default();
        assert!(!arrival.is_set());
        thread::scope(|scope| {
            scope.spawn(|| arrival.set(7));
            assert_eq!(*arrival.wait(), Some(7));
        });
        assert!(arrival.is_set());
    }
}
