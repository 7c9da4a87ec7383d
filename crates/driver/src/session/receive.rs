//! The receiver thread: what workers send, in the order in which they send it.

use std::io;
use std::sync::{Arc, Weak};

use telecl_net::{Frame, FrameReceiver, ReceiveError};
use telecl_sys::ClError;
use telecl_wire::DecodeError;
use telecl_wire::reply::FromWorker;

use super::callbacks::{mark_receiver_thread, spawn};
use super::{Session, log};
use crate::registry::lock;

/// Starts the thread. It holds the session only weakly, so that the last user closes it.
pub(super) fn start(session: &Arc<Session>, receiver: FrameReceiver) -> io::Result<()> {
    let session = Arc::downgrade(session);
    spawn("telecl-rx", 256 << 10, move || {
        mark_receiver_thread();
        run(&session, receiver);
    })
}

fn run(session: &Weak<Session>, mut receiver: FrameReceiver) {
    let reason = loop {
        let frame = match receiver.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break "the service closed the connection".to_owned(),
            Err(error) => break error.to_string(),
        };
        let Some(session) = session.upgrade() else { break String::new() };
        match session.take(frame) {
            Ok(Next::Continue) => {}
            Ok(Next::Stop(reason)) => break reason,
            Err(error) => break error.to_string(),
        }
    };
    if let Some(session) = session.upgrade() {
        session.lose(&reason);
    }
    crate::process::forget_socket(receiver.stream());
}

enum Next {
    Continue,
    Stop(String),
}

impl Session {
    fn take(self: &Arc<Self>, mut frame: Frame<'_>) -> Result<Next, ReceiveError> {
        match FromWorker::decode(frame.opcode, frame.body)? {
            FromWorker::Reply(reply) => {
                let payload = frame.payload.read_to_vec()?;
                self.calls.answer(reply.call, reply.status, &payload, |job| self.run_callback(job));
            }
            FromWorker::ReplyPart(part) => {
                let payload = frame.payload.read_to_vec()?;
                self.calls.add_part(part.call, &payload);
            }
            FromWorker::Completed(done) => {
                let pending = lock(&self.pending).remove(&done.event);
                if let Some(pending) = pending {
                    pending.event.note_hidden_failure(done.status);
                    pending.event.finish(done.status, done.profile);
                    drop(pending.uses);
                }
            }
            FromWorker::StatusReached(reached) => {
                let event = lock(&self.pending).get(&reached.event).map(|pending| Arc::clone(&pending.event));
                if let Some(event) = event {
                    event.reach(reached.status);
                }
            }
            FromWorker::Data(data) => {
                let target = lock(&self.pending).get(&data.event).and_then(|pending| pending.target.clone());
                // Data that nobody asked for is skipped, as of a command that failed meanwhile.
                if let Some(mut target) = target {
                    let spans = target.fill_target(&data.region, frame.payload.len()).ok_or(DecodeError::BadValue)?;
                    for span in spans {
                        frame.payload.read_into(span)?;
                    }
                }
            }
            FromWorker::Failed(failed) => {
                let text = format!("telecl: {}: {}", failed.message, ClError(failed.status));
                log::debug(format_args!("{}: request {} failed: {text}", self.address, failed.opcode));
                if let Some(context) = self.context(failed.context) {
                    // A command with an event says so itself.
                    if failed.object == 0 {
                        context.remember_failure(failed.queue, failed.status);
                    }
                    context.notify(&text, &[]);
                }
            }
            FromWorker::ContextNotice(notice) => {
                if let Some(context) = self.context(notice.context) {
                    context.notify(notice.message, notice.private_info);
                }
            }
            FromWorker::Output(_) => print(&frame.payload.read_to_vec()?),
            FromWorker::Closing(closing) => return Ok(Next::Stop(closing.reason.to_owned())),
        }
        Ok(Next::Continue)
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// Writes what a kernel printed, through the program's own stdio, so that it comes after what the
/// program printed before.
fn print(text: &[u8]) {
    // SAFETY: `stdout` is libc's own stream, valid for the life of the process; the buffer is ours.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}
