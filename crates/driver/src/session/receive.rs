//! Taking what the worker sends, in the order in which it is sent.
//!
//! Whoever waits for something takes frames itself, as long as nobody else does: a thread that has to be woken
//! costs more than a short command. The receiver thread (`telecl-rx`) does it while nobody waits.

use std::io;
use std::sync::{Arc, MutexGuard, TryLockError, Weak};
use std::time::Duration;

use telecl_net::{Bell, Frame, FrameReceiver, Idle, Progress, ReceiveError, Spin};
use telecl_sys::ClError;
use telecl_wire::DecodeError;
use telecl_wire::reply::FromWorker;

use super::callbacks::{ReceiverMark, on_receiver_thread, spawn};
use super::{Session, log};
use crate::registry::lock;

/// How long a thread hopes that another, which has the link, brings what it waits for.
const HOPE: Duration = Duration::from_micros(20);

/// Reads of this size are more than the program can look at soon.
const BULK: u64 = 4 << 20;

/// Starts the thread. It holds the session only weakly, so that the last user closes it.
pub(super) fn start(session: &Arc<Session>, bell: Arc<Bell>) -> io::Result<()> {
    let session = Arc::downgrade(session);
    spawn("telecl-rx", 256 << 10, move || {
        let _mark = ReceiverMark::set();
        if let Some(session) = session.upgrade() {
            session.take_all(&mut lock(&session.receiver));
        }
        run(&session, &bell);
        crate::process::forget_socket(&*bell);
        crate::process::forget_socket(bell.stream());
    })
}

fn run(session: &Weak<Session>, bell: &Bell) {
    while bell.wait().is_ok() {
        let Some(session) = session.upgrade() else { return };
        let mut receiver = lock(&session.receiver);
        session.take_all(&mut receiver);
        drop(receiver);
        if session.is_lost() {
            return;
        }
    }
}

enum Next {
    Continue,
    Stop(String),
}

impl Session {
    /// Takes frames until `done`. Returns early if another thread does so, or if the session is lost; then its
    /// callers wait for that thread, or find what they wait for failed.
    pub(crate) fn receive_until(self: &Arc<Self>, done: impl Fn() -> bool) {
        if done() || on_receiver_thread() {
            return;
        }
        let Some(mut receiver) = self.claim_receiver(&done) else { return };
        let _mark = ReceiverMark::set();
        receiver.mute();
        while !done() && !self.is_lost() {
            let progress = receiver.wait();
            self.take_next(&mut receiver, progress);
        }
        self.let_ring(&mut receiver);
    }

    /// Takes all that has arrived, and leaves the rest to the bell.
    fn take_all(self: &Arc<Self>, receiver: &mut FrameReceiver) {
        while !self.is_lost() {
            match receiver.look() {
                Ok(Progress::Nothing) => return self.let_ring(receiver),
                progress => self.take_next(receiver, progress),
            }
        }
    }

    /// Lets the bell ring again. It does not know of what was read ahead, so that is taken first.
    fn let_ring(self: &Arc<Self>, receiver: &mut FrameReceiver) {
        while !self.is_lost() {
            match receiver.glance() {
                Ok(Progress::Nothing) => match receiver.unmute() {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => self.lose(&error.to_string()),
                },
                progress => self.take_next(receiver, progress),
            }
        }
    }

    fn claim_receiver(&self, done: impl Fn() -> bool) -> Option<MutexGuard<'_, FrameReceiver>> {
        let mut hope = Spin::new(HOPE);
        loop {
            match self.receiver.try_lock() {
                Ok(receiver) => return Some(receiver),
                Err(TryLockError::Poisoned(receiver)) => return Some(receiver.into_inner()),
                Err(TryLockError::WouldBlock) if done() || !hope.turn() => return None,
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }

    fn take_next(self: &Arc<Self>, receiver: &mut FrameReceiver, progress: Result<Progress, ReceiveError>) {
        let taken = match progress {
            Ok(Progress::Ready) => self.take(receiver.frame()),
            Ok(Progress::Nothing) => Ok(Next::Continue),
            Ok(Progress::Closed) => Ok(Next::Stop("the service closed the connection".to_owned())),
            Err(error) => Err(error),
        };
        match taken {
            Ok(Next::Continue) => {}
            Ok(Next::Stop(reason)) => self.lose(&reason),
            Err(error) => self.lose(&error.to_string()),
        }
    }

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
                    if let Some(event) = pending.listener.event() {
                        event.note_hidden_failure(done.status);
                    }
                    pending.listener.finish(done.status, done.profile);
                    drop(pending.uses);
                }
            }
            FromWorker::StatusReached(reached) => {
                let event =
                    lock(&self.pending).get(&reached.event).and_then(|pending| pending.listener.event().cloned());
                if let Some(event) = event {
                    event.reach(reached.status);
                }
            }
            FromWorker::Data(data) => {
                let target = lock(&self.pending).get(&data.event).and_then(|pending| pending.target.clone());
                // Data that nobody asked for is skipped, as of a command that failed meanwhile.
                if let Some(mut target) = target {
                    let bulk = target.bytes() >= BULK;
                    let spans = target.fill_target(&data.region, frame.payload.len()).ok_or(DecodeError::BadValue)?;
                    for span in spans {
                        if bulk { frame.payload.read_bulk_into(span)? } else { frame.payload.read_into(span)? }
                    }
                }
            }
            FromWorker::Failed(failed) => {
                let text = format!("telecl: {}: {}", failed.message, ClError(failed.status));
                log::debug(format_args!("{}: request {} failed: {text}", self.address, failed.opcode));
                // Of a read that was asked for ahead nobody is to know.
                let listener =
                    lock(&self.pending).get(&failed.object).map(|pending| pending.listener.event().is_some());
                if listener == Some(false) {
                    return Ok(Next::Continue);
                }
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
