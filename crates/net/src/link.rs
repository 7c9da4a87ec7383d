//! How a connection becomes a link through shared memory, or a further stream of a session.

use std::io;
use std::os::fd::AsFd;

use telecl_shm::{Segment, Side};
use telecl_wire::handshake::{Handshake, Join, ShareMemory};
use telecl_wire::request::Message;
use telecl_wire::{DecodeError, Header, encode};
use zerocopy::IntoBytes;

use crate::shared::halves;
use crate::{FrameReceiver, FrameSender, ReceiveError, Stream};

/// The driver's side, after the handshake: offers memory to the worker and goes on through it. `None` if the connection
/// cannot carry the offer, or there is no memory; then it goes on as it is.
pub fn share_memory(stream: &Stream) -> io::Result<Option<(FrameSender, FrameReceiver)>> {
    if !stream.is_unix() {
        return Ok(None);
    }
    let Ok((segment, descriptor)) = Segment::create() else { return Ok(None) };
    let (outgoing, incoming) = halves(&segment, Side::Driver, stream)?;
    stream.send_descriptor(Header::new(ShareMemory::OPCODE, 0, 0).as_bytes(), descriptor.as_fd())?;
    Ok(Some((FrameSender::shared(outgoing), FrameReceiver::shared(incoming))))
}

/// The worker's side: waits for the first frame, and goes on through shared memory if that offers some.
pub fn accept(stream: Stream) -> Result<(FrameSender, FrameReceiver), ReceiveError> {
    let sender = FrameSender::new(stream.try_clone()?);
    let mut receiver = FrameReceiver::new(stream.try_clone()?);
    if !stream.is_unix() {
        return Ok((sender, receiver));
    }
    let mut first = [0; Header::LEN];
    let (received, descriptor) = stream.receive_descriptor(&mut first)?;
    let header = Header::parse(&first).ok().filter(|_| received == Header::LEN);
    let offered = header.is_some_and(|header| header.opcode.get() == ShareMemory::OPCODE);
    match descriptor {
        Some(descriptor) if offered => {
            let segment =
                Segment::open(descriptor).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let (outgoing, incoming) = halves(&segment, Side::Worker, &stream)?;
            Ok((FrameSender::shared(outgoing), FrameReceiver::shared(incoming)))
        }
        // A descriptor that nobody asked for is closed. An offer without one is a message that workers do not know.
        _ => {
            receiver.put_back(&first[..received]);
            Ok((sender, receiver))
        }
    }
}

/// The driver's side of a further stream: introduces the connection, and waits for the worker. Reads no more than its
/// answer: what follows are payloads.
pub fn join(stream: &Stream, join: &Join) -> Result<(), ReceiveError> {
    const LONGEST: usize = 4 << 10;
    let body = encode(join);
    stream.send_payload(&[Header::new(Join::OPCODE, body.len(), 0).as_bytes(), &body].concat())?;
    let mut header = [0; Header::LEN];
    stream.receive_payload(&mut header)?;
    let header = Header::parse(&header)?;
    if header.body_len() > LONGEST || header.payload_len() > 0 {
        return Err(DecodeError::TooLong.into());
    }
    let mut body = vec![0; header.body_len()];
    stream.receive_payload(&mut body)?;
    match Handshake::decode(header.opcode.get(), &body)? {
        Handshake::Joined(joined) if joined.stream == join.stream => Ok(()),
        Handshake::Refused(refused) => Err(io::Error::other(refused.reason).into()),
        _ => Err(DecodeError::BadValue.into()),
    }
}
