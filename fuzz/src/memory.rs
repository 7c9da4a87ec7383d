//! Counts what one input makes the code ask for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// An allocator that counts what each thread asks for; what it gives back is not deducted.
#[derive(Debug)]
pub struct Counting;

fn count(bytes: usize) {
    // Fails only while a thread ends, when nothing is measured.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes));
}

// SAFETY: every call goes to `System` with the arguments it came with, so its guarantees are ours; counting neither
// allocates nor unwinds, because the thread-local is constant-initialised and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps the contract of `realloc`, and `old` came from `System`.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `old` came from `System`.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Runs `body`, and panics if it asks for more than `per_byte` times `len` bytes, and `at_least`.
pub fn bounded<R>(what: &str, len: usize, per_byte: usize, at_least: usize, body: impl FnOnce() -> R) -> R {
    let before = ALLOCATED.get();
    let result = body();
    let allocated = ALLOCATED.get() - before;
    let most = per_byte * len + at_least;
    assert!(allocated <= most, "{what}: asked for {allocated} bytes because of {len}, may ask for {most}");
    result
}
