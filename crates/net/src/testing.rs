//! What the tests of this crate share.

use std::os::unix::net::UnixStream;

use crate::{FrameReceiver, FrameSender, Stream};

/// Two ends of a link.
pub(crate) fn pair() -> (FrameSender, FrameReceiver) {
    let (a, b) = UnixStream::pair().unwrap();
    (FrameSender::new(Stream::from_fd(a.into())), FrameReceiver::new(Stream::from_fd(b.into())))
}
