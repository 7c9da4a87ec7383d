//! Values of `clGet*Info`, as the bytes that C expects.

use std::borrow::Cow;

/// The bytes of an answer.
pub(crate) type InfoValue<'a> = Cow<'a, [u8]>;

/// Things that C programs read with `clGet*Info`.
pub(crate) trait IntoInfo {
    fn into_info(self) -> InfoValue<'static>;
}

macro_rules! plain {
    ($($kind:ty),*) => {$(
        impl IntoInfo for $kind {
            fn into_info(self) -> InfoValue<'static> {
                Cow::Owned(self.to_ne_bytes().to_vec())
            }
        }
        impl IntoInfo for &[$kind] {
            fn into_info(self) -> InfoValue<'static> {
                Cow::Owned(self.iter().flat_map(|value| value.to_ne_bytes()).collect())
            }
        }
    )*};
}
plain!(u32, u64, i32, usize, isize);

impl IntoInfo for bool {
    fn into_info(self) -> InfoValue<'static> {
        u32::from(self).into_info()
    }
}

impl IntoInfo for &str {
    fn into_info(self) -> InfoValue<'static> {
        c_string(self.as_bytes())
    }
}

/// Text with the final NUL that C wants.
pub(crate) fn c_string(text: &[u8]) -> InfoValue<'static> {
    let mut bytes = text.to_vec();
    bytes.push(0);
    Cow::Owned(bytes)
}

/// An answer of any plain kind.
pub(crate) fn value(value: impl IntoInfo) -> InfoValue<'static> {
    value.into_info()
}
