//! Copies that go past the cache.
//!
//! A large transfer ends up in memory that the program looks at much later. Ordinary stores would first fetch what they
//! overwrite, and throw out of the cache what is needed next; on the machines we measured, going past it is one and a half
//! to two times as fast.

/// Copies `len` bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    use std::ptr::copy_nonoverlapping;

    const UNIT: usize = size_of::<__m128i>();
    let head = to.align_offset(UNIT).min(len);
    let body = (len - head) / (4 * UNIT) * (4 * UNIT);
    // SAFETY: head, body and tail together are the `len` bytes of the contract. The body begins where `to` is aligned, as
    // the streaming stores need it; SSE2 is part of the architecture.
    unsafe {
        copy_nonoverlapping(from, to, head);
        for at in (head..head + body).step_by(4 * UNIT) {
            let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(from.add(word)));
            for (word, value) in words.into_iter().enumerate() {
                _mm_stream_si128(to.add(word), value);
            }
        }
        let tail = head + body;
        copy_nonoverlapping(from.add(tail), to.add(tail), len - tail);
        // Streaming stores are ordered with nothing else until here.
        _mm_sfence();
    }
}

/// As above, where there are no such stores in stable Rust.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alignment_and_length_is_copied_exactly() {
        let source: Vec<u8> = (0..400).map(|i| i as u8).collect();
        for start in 0..20 {
            for len in [0, 1, 15, 16, 63, 64, 65, 127, 200, 300] {
                let mut target = vec![0xEE; 400];
                // SAFETY: both have 400 bytes.
                unsafe { copy(source.as_ptr().add(7), target.as_mut_ptr().add(start), len) };
                assert_eq!(target[start..start + len], source[7..7 + len], "{start} {len}");
                assert!(target[..start].iter().chain(&target[start + len..]).all(|&byte| byte == 0xEE));
            }
        }
    }
}
