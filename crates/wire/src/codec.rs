//! Bodies: bytes to structs and back, one field after the other.

use std::fmt;

use zerocopy::{FromBytes, IntoBytes};

use crate::WireId;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("message ends too early")]
    Truncated,
    #[error("message has bytes left over")]
    TrailingBytes,
    #[error("frame header is not one of ours")]
    BadHeader,
    #[error("frame is longer than allowed")]
    TooLong,
    #[error("unknown message number {0}")]
    UnknownOpcode(u16),
    #[error("field has a value without meaning")]
    BadValue,
    #[error("text is not UTF-8")]
    BadText,
    #[error("compressed payload is malformed")]
    BadCompression,
}

/// The unread rest of a body.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    /// A count that can be true: every element takes at least `least` of the bytes that are left.
    fn count(&mut self, least: usize) -> Result<usize, DecodeError> {
        let count = u32::take(self)? as usize;
        if count.saturating_mul(least) > self.0.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }
}

/// Something that can stand in a body.
pub trait Field<'a>: Sized {
    /// The fewest bytes a value takes; bounds the memory that a count can ask for.
    const LEAST: usize;

    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// Reads a whole body; bytes left over are an error.
pub fn decode<'a, T: Field<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let mut reader = Reader::new(bytes);
    let value = T::take(&mut reader)?;
    if reader.0.is_empty() { Ok(value) } else { Err(DecodeError::TrailingBytes) }
}

/// A body as bytes of its own, for values that travel as payload.
pub fn encode<'a, T: Field<'a>>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

macro_rules! integer_fields {
    ($($int:ty),*) => {$(
        impl<'a> Field<'a> for $int {
            const LEAST: usize = size_of::<$int>();

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
                let (bytes, rest) = input.0.split_first_chunk().ok_or(DecodeError::Truncated)?;
                input.0 = rest;
                Ok(<$int>::from_le_bytes(*bytes))
            }
        }
    )*};
}
integer_fields!(u8, u16, u32, u64, i32, i64);

impl<'a> Field<'a> for bool {
    const LEAST: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::BadValue),
        }
    }
}

impl<'a, T: Field<'a> + Copy + Default, const N: usize> Field<'a> for [T; N] {
    const LEAST: usize = N * T::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }

    #[inline(always)]
    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::take(input)?;
        }
        Ok(values)
    }
}

impl<'a> Field<'a> for &'a [u8] {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let len = input.count(1)?;
        input.take(len)
    }
}

impl<'a> Field<'a> for &'a str {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
        std::str::from_utf8(<&[u8]>::take(input)?).map_err(|_| DecodeError::BadText)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    const LEAST: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    #[inline(always)]
    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(if bool::take(input)? { Some(T::take(input)?) } else { None })
    }
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = input.count(T::LEAST.max(1))?;
        // Not `collect`, which does not know how many there will be.
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(T::take(input)?);
        }
        Ok(values)
    }
}

/// A list of ids or of 64-bit property values, read in place.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Ids<'a>(pub &'a [WireId]);

impl<'a> Ids<'a> {
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.0.iter().map(|id| id.get())
    }

    pub fn len(self) -> usize {
        self.0.len()
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Ids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Field<'a> for Ids<'a> {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        out.extend_from_slice(self.0.as_bytes());
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = input.count(8)?;
        let bytes = input.take(count * 8)?;
        <[WireId]>::ref_from_bytes(bytes).map(Ids).map_err(|_| DecodeError::Truncated)
    }
}

/// Declares structs that are bodies or parts of bodies: their fields, in order, are their bytes.
macro_rules! bodies {
    ($($(#[$doc:meta])* pub struct $name:ident $(<$life:lifetime>)? { $($(#[$field_doc:meta])* pub $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$field_doc])* pub $field: $kind,)* }

        $crate::codec::body_field! { $name $(<$life>)? { $($field: $kind,)* } }
    )*};
}
pub(crate) use bodies;

macro_rules! body_field {
    ($name:ident { $($field:ident: $kind:ty,)* }) => {
        impl<'a> $crate::Field<'a> for $name {
            $crate::codec::body_methods! { 'a { $($field: $kind,)* } }
        }
    };
    ($name:ident <$life:lifetime> { $($field:ident: $kind:ty,)* }) => {
        impl<$life> $crate::Field<$life> for $name<$life> {
            $crate::codec::body_methods! { $life { $($field: $kind,)* } }
        }
    };
}
pub(crate) use body_field;

macro_rules! body_methods {
    ($life:lifetime { $($field:ident: $kind:ty,)* }) => {
        const LEAST: usize = 0 $(+ <$kind as $crate::Field<$life>>::LEAST)*;

        fn put(&self, _out: &mut Vec<u8>) {
            $($crate::Field::put(&self.$field, _out);)*
        }

        // Always, as for arrays and options: a result of this size goes through memory from each call to its caller, and
        // left to themselves compilers disagree about when to inline. A `RunKernel` took 468 instructions, and takes 357.
        #[inline(always)]
        fn take(_input: &mut $crate::Reader<$life>) -> Result<Self, $crate::DecodeError> {
            Ok(Self { $($field: $crate::Field::take(_input)?,)* })
        }
    };
}
pub(crate) use body_methods;

/// Declares small enums that travel as one byte; other values are [`DecodeError::BadValue`].
macro_rules! byte_enums {
    ($($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant = $value,)* }

        impl $name {
            /// Every value, for tests and tables.
            pub const ALL: &[$name] = &[$($name::$variant,)*];
        }

        impl<'a> $crate::Field<'a> for $name {
            const LEAST: usize = 1;

            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }

            fn take(input: &mut $crate::Reader<'a>) -> Result<Self, $crate::DecodeError> {
                match <u8 as $crate::Field>::take(input)? {
                    $($value => Ok($name::$variant),)*
                    _ => Err($crate::DecodeError::BadValue),
                }
            }
        }
    )*};
}
pub(crate) use byte_enums;

/// Declares the messages of one direction: `number => Name`, the enum over them, and its decoder.
macro_rules! messages {
    ($(#[$doc:meta])* pub enum $set:ident<'a> { $($number:literal => $name:ident $(<$life:lifetime>)?,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $set<'a> { $($name($name $(<$life>)?),)* }

        impl<'a> $set<'a> {
            /// Reads the body of message number `opcode`.
            pub fn decode(opcode: u16, body: &'a [u8]) -> Result<Self, $crate::DecodeError> {
                match opcode {
                    $($number => $crate::decode(body).map($set::$name),)*
                    other => Err($crate::DecodeError::UnknownOpcode(other)),
                }
            }

            /// The message's name, for logs.
            pub fn name(&self) -> &'static str {
                match self { $($set::$name(_) => stringify!($name),)* }
            }

            /// The message as bytes again: the body that it was read from.
            pub fn body(&self) -> Vec<u8> {
                match self { $($set::$name(message) => $crate::encode(message),)* }
            }

            /// Every number in use, for tests.
            pub const OPCODES: &'static [u16] = &[$($number,)*];
        }

        $($crate::codec::message_opcode! { $number $name $(<$life>)? })*
    };
}
pub(crate) use messages;

macro_rules! message_opcode {
    ($number:literal $name:ident) => {
        impl $crate::request::Message<'_> for $name {
            const OPCODE: u16 = $number;
        }
    };
    ($number:literal $name:ident <$life:lifetime>) => {
        impl<$life> $crate::request::Message<$life> for $name<$life> {
            const OPCODE: u16 = $number;
        }
    };
}
pub(crate) use message_opcode;
