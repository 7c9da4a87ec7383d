//! How a connection becomes a link through shared memory, a line that outlasts it, or a further stream of a session.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use telecl_shm::{Segment, Side};
use telecl_wire::handshake::{self, Handshake, Join, ShareMemory};
use telecl_wire::request::Message;
use telecl_wire::{DecodeError, Header, decode, encode};
use zerocopy::IntoBytes;

use crate::shared::halves;
use crate::{FrameReceiver, FrameSender, Home, Lasting, MAIN_LINE, ReceiveError, Stream, Terms};

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

/// The driver's side over TCP, after the handshake: has the session outlast its connection from now on.
pub fn begin_to_last(stream: Stream, home: Arc<dyn Home>, terms: Terms) -> io::Result<Arc<Lasting>> {
    let (heartbeat_ms, grace_ms) = terms.millis();
    let body = encode(&handshake::Lasting { heartbeat_ms, grace_ms });
    let header = Header::new(handshake::Lasting::OPCODE, body.len(), 0);
    let line = Lasting::at_driver(stream.try_clone()?, home, MAIN_LINE, terms);
    if let Err(error) = stream.send_payload(&[header.as_bytes(), &body].concat()) {
        line.end();
        return Err(error);
    }
    Ok(line)
}

/// The worker's side: waits for the first frame, and goes on through shared memory if that offers some, or with a line that
/// outlasts its connection if the driver wants one, on terms that are within `ours`.
pub fn accept(stream: Stream, ours: Terms) -> Result<(FrameSender, FrameReceiver), ReceiveError> {
    let mut first = [0; Header::LEN];
    let (received, descriptor) =
        if stream.is_unix() { stream.receive_descriptor(&mut first)? } else { (stream.receive_all(&mut first)?, None) };
    let header = Header::parse(&first).ok().filter(|_| received == Header::LEN);
    let opcode = header.as_ref().map(|header| header.opcode.get());
    match (descriptor, header) {
        (Some(descriptor), _) if opcode == Some(ShareMemory::OPCODE) => {
            let segment =
                Segment::open(descriptor).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let (outgoing, incoming) = halves(&segment, Side::Worker, &stream)?;
            Ok((FrameSender::shared(outgoing), FrameReceiver::shared(incoming)))
        }
        (_, Some(header)) if opcode == Some(handshake::Lasting::OPCODE) && !stream.is_unix() => {
            let line = Lasting::at_worker(stream.try_clone()?, MAIN_LINE, read_terms(&stream, &header)?.and(ours));
            Ok((FrameSender::new(Arc::clone(&line)), FrameReceiver::new(line)))
        }
        // A descriptor that nobody asked for is closed. An offer without one is a message that workers do not know.
        _ => {
            let mut receiver = FrameReceiver::new(stream.try_clone()?);
            receiver.put_back(&first[..received]);
            Ok((FrameSender::new(stream), receiver))
        }
    }
}

fn read_terms(stream: &Stream, header: &Header) -> Result<Terms, ReceiveError> {
    const BODY: usize = 8;
    if header.body_len() != BODY || header.payload_len() > 0 {
        return Err(DecodeError::BadHeader.into());
    }
    let mut body = [0; BODY];
    stream.receive_payload(&mut body)?;
    let handshake::Lasting { heartbeat_ms, grace_ms } = decode(&body)?;
    Ok(Terms::from_millis(heartbeat_ms, grace_ms))
}

/// The number and the body of a short message, and nothing that comes behind it.
pub(crate) fn read_answer(stream: &Stream) -> Result<(u16, Vec<u8>), ReceiveError> {
    const LONGEST: usize = 4 << 10;
    let mut header = [0; Header::LEN];
    stream.receive_payload(&mut header)?;
    let header = Header::parse(&header)?;
    if header.body_len() > LONGEST || header.payload_len() > 0 {
        return Err(DecodeError::TooLong.into());
    }
    let mut body = vec![0; header.body_len()];
    stream.receive_payload(&mut body)?;
    Ok((header.opcode.get(), body))
}

/// The driver's side of a further stream: introduces the connection, and waits for the worker. Reads no more than its
/// answer: what follows are payloads.
pub fn join(stream: &Stream, join: &Join) -> Result<(), ReceiveError> {
    let body = encode(join);
    stream.send_payload(&[Header::new(Join::OPCODE, body.len(), 0).as_bytes(), &body].concat())?;
    let (opcode, body) = read_answer(stream)?;
    match Handshake::decode(opcode, &body)? {
        Handshake::Joined(joined) if joined.stream == join.stream => Ok(()),
        Handshake::Refused(refused) => Err(io::Error::other(refused.reason).into()),
        _ => Err(DecodeError::BadValue.into()),
    }
}
