//! `kubectl telecl`.
fn main() {}
