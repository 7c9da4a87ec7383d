//! Taking what the worker sends, in the order in which it is sent.
//!
//! Whoever waits for something takes frames itself, as long as nobody else does: a thread that has to be woken
//! costs more than a short command. The receiver thread (`telecl-rx`) does it while nobody waits.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use telecl_net::{Bell, Deferred, Frame, FrameReceiver, Idle, Payload, Progress, ReceiveError, Spin};
use telecl_sys::{CL_DEVICE_NOT_AVAILABLE, ClError};
use telecl_wire::DecodeError;
use telecl_wire::reply::FromWorker;
use telecl_wire::request::{CreateContext, Message};

use super::callbacks::{ReceiverMark, on_receiver_thread, spawn};
use super::streams::Landed;
use super::{Session, log};
use crate::registry::lock;

/// How long a thread hopes that another, which has the link, brings what it waits for.
const HOPE: Duration = Duration::from_micros(20);

/// Reads of this size are more than the program can look at soon.
const BULK: u64 = 4 << 20;

/// How long whoever takes frames waits for a payload before it looks for more of them.
const PAYLOAD: Duration = Duration::from_millis(5);

/// What comes from the worker.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) frames: FrameReceiver,
    backlog: Backlog,
}

/// Frames that have come and were put off, because a payload before them is still being received on another stream.
#[derive(Debug, Default)]
struct Backlog {
    deferred: Deferred<Landed>,
    /// Where these payloads go. No two of them overlap.
    targets: VecDeque<Range<usize>>,
}

impl Inbox {
    pub(super) fn new(frames: FrameReceiver) -> Inbox {
        Inbox { frames, backlog: Backlog::default() }
    }
}

impl Backlog {
    fn overlaps(&self, target: &Range<usize>) -> bool {
        self.targets.iter().any(|other| other.start < target.end && target.start < other.end)
    }
}

/// Starts the thread, which does nothing until the bell rings: whoever waits for a kernel may have the link for long, and
/// lines are to be tended meanwhile. It holds the session only weakly, so that the last user closes it.
pub(super) fn start(session: &Arc<Session>, bell: Arc<Bell>) -> io::Result<()> {
    let session = Arc::downgrade(session);
    spawn("telecl-rx", 256 << 10, move || {
        let _mark = ReceiverMark::set();
        run(&session, &bell);
        crate::process::forget_socket(&*bell);
        bell.with_stream(|stream| crate::process::forget_socket(stream));
    })
}

fn run(session: &Weak<Session>, bell: &Bell) {
    let mut tended = Instant::now();
    loop {
        let Some(every) = session.upgrade().map(|session| session.streams.tend_every()) else { return };
        let due = every.map(|every| every.saturating_sub(tended.elapsed()).max(Duration::from_millis(1)));
        let Ok(rang) = bell.wait(due) else { return };
        let Some(session) = session.upgrade() else { return };
        if every.is_some_and(|every| tended.elapsed() >= every) {
            tended = Instant::now();
            session.streams.tend();
        }
        if rang {
            session.take_what_rang(every.is_some());
        }
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
    /// The bell has rung: takes what there is. Where lines are to be tended, does not wait for another thread that takes
    /// frames, however long that may be.
    fn take_what_rang(self: &Arc<Self>, tends: bool) {
        if !tends {
            return self.take_all(&mut lock(&self.receiver));
        }
        self.rang.store(true, Ordering::SeqCst);
        match self.receiver.try_lock() {
            Ok(mut inbox) => {
                self.rang.store(false, Ordering::SeqCst);
                self.take_all(&mut inbox);
            }
            Err(TryLockError::Poisoned(inbox)) => self.take_all(&mut inbox.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Takes frames until `done`. Returns early if another thread does so, or if the session is lost; then its
    /// callers wait for that thread, or find what they wait for failed.
    pub(crate) fn receive_until(self: &Arc<Self>, done: impl Fn() -> bool) {
        if done() || on_receiver_thread() {
            return;
        }
        let Some(mut inbox) = self.claim_receiver(&done) else { return };
        let _mark = ReceiverMark::set();
        inbox.frames.mute();
        while !done() && !self.is_lost() {
            let progress = if inbox.backlog.deferred.is_empty() { inbox.frames.wait() } else { inbox.frames.poll() };
            self.take_next(&mut inbox, progress);
        }
        self.let_ring(&mut inbox);
        drop(inbox);
        if self.rang.swap(false, Ordering::SeqCst)
            && let Some(bell) = self.bell.get()
        {
            // An error would be one of memory. What rang then will be noticed when it rings again.
            let _ = bell.ring_by_hand();
        }
    }

    /// Takes all that has arrived, and leaves the rest to the bell.
    fn take_all(self: &Arc<Self>, inbox: &mut Inbox) {
        while !self.is_lost() {
            match inbox.frames.look() {
                Ok(Progress::Nothing) if inbox.backlog.deferred.is_empty() => return self.let_ring(inbox),
                progress => self.take_next(inbox, progress),
            }
        }
    }

    /// Lets the bell ring again. It does not know of what was read ahead, so that is taken first.
    fn let_ring(self: &Arc<Self>, inbox: &mut Inbox) {
        while !self.is_lost() {
            match inbox.frames.glance() {
                Ok(Progress::Nothing) => match inbox.frames.unmute() {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => self.lose(&error.to_string()),
                },
                progress => self.take_next(inbox, progress),
            }
        }
        if let Some(bell) = self.bell.get()
            && !inbox.backlog.deferred.is_empty()
            && let Err(error) = bell.ring_by_hand()
        {
            // Nobody would see to what was put off.
            self.lose(&error.to_string());
        }
    }

    fn claim_receiver(&self, done: impl Fn() -> bool) -> Option<MutexGuard<'_, Inbox>> {
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

    /// Takes a frame, if there is one, and what was put off as far as it can be; waits for that if there is no frame.
    fn take_next(self: &Arc<Self>, inbox: &mut Inbox, progress: Result<Progress, ReceiveError>) {
        let Inbox { frames, backlog } = inbox;
        let taken = match progress {
            Ok(Progress::Ready) => self.take(frames.frame(), backlog),
            Ok(Progress::Nothing) => self.wait_for_payload(backlog),
            Ok(Progress::Closed) => Ok(Next::Stop("the service closed the connection".to_owned())),
            Err(error) => Err(error),
        };
        match taken {
            Ok(Next::Continue) => {}
            Ok(Next::Stop(reason)) => self.lose(&reason),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// Handles a frame, unless others are put off: then it is, too.
    fn take(self: &Arc<Self>, frame: Frame<'_>, backlog: &mut Backlog) -> Result<Next, ReceiveError> {
        let Frame { opcode, body, mut payload } = frame;
        if let Some((stream, len)) = payload.take_stream() {
            return self.expect_payload(opcode, body, stream, len, backlog);
        }
        if backlog.deferred.is_empty() {
            return self.handle(opcode, body, Some(payload));
        }
        if payload.is_empty() && backlog.deferred.has_room() {
            backlog.deferred.push(opcode, body, None);
            return self.handle_deferred(backlog);
        }
        match self.wait_for_all(backlog)? {
            Next::Continue => self.handle(opcode, body, Some(payload)),
            stop => Ok(stop),
        }
    }

    /// Data that comes on another stream: has it received there, and puts off what follows until it is here.
    fn expect_payload(
        self: &Arc<Self>,
        opcode: u16,
        body: &[u8],
        stream: usize,
        len: usize,
        backlog: &mut Backlog,
    ) -> Result<Next, ReceiveError> {
        let FromWorker::Data(data) = FromWorker::decode(opcode, body)? else {
            return Err(DecodeError::BadHeader.into());
        };
        let target = lock(&self.pending).get(&data.event).and_then(|pending| pending.target.clone());
        let place = match &target {
            Some(target) => target.range(&data.region, len).ok_or(DecodeError::BadValue)?,
            // Data that nobody asked for goes nowhere, as of a command that failed meanwhile.
            None => 0..0,
        };
        // Two reads into the same memory end in their order.
        while backlog.overlaps(&place) || !backlog.deferred.has_room() {
            if let stop @ Next::Stop(_) = self.wait_for_payload(backlog)? {
                return Ok(stop);
            }
        }
        let coming = self.streams.expect(stream, target.map(|target| (target, data.region)), len)?;
        backlog.targets.push_back(place);
        backlog.deferred.push(opcode, &[], Some(coming));
        self.handle_deferred(backlog)
    }

    fn wait_for_all(self: &Arc<Self>, backlog: &mut Backlog) -> Result<Next, ReceiveError> {
        while !backlog.deferred.is_empty() {
            if let stop @ Next::Stop(_) = self.wait_for_payload(backlog)? {
                return Ok(stop);
            }
        }
        Ok(Next::Continue)
    }

    /// Waits a while for the payload that others wait for, and handles what then can be.
    fn wait_for_payload(self: &Arc<Self>, backlog: &mut Backlog) -> Result<Next, ReceiveError> {
        if let Some(stream) = backlog.deferred.waits_for()?
            // Its thread may still be asleep.
            && !self.streams.receive_now(stream)
        {
            backlog.deferred.wait(PAYLOAD)?;
        }
        self.handle_deferred(backlog)
    }

    /// Handles what was put off, as far as the payloads before it are here.
    fn handle_deferred(self: &Arc<Self>, backlog: &mut Backlog) -> Result<Next, ReceiveError> {
        while let Some((opcode, body, landed)) = backlog.deferred.pop()? {
            let next = match landed {
                Some(landed) => {
                    backlog.targets.pop_front();
                    landed.map(|()| Next::Continue)
                }
                None => self.handle(opcode, &body, None),
            };
            if let stop @ Next::Stop(_) = next? {
                return Ok(stop);
            }
        }
        Ok(Next::Continue)
    }

    fn handle(self: &Arc<Self>, opcode: u16, body: &[u8], payload: Option<Payload<'_>>) -> Result<Next, ReceiveError> {
        let rest = |payload: Option<Payload<'_>>| payload.map_or(Ok(Vec::new()), Payload::read_to_vec);
        match FromWorker::decode(opcode, body)? {
            FromWorker::Reply(reply) => {
                let payload = rest(payload)?;
                self.calls.answer(reply.call, reply.status, &payload, |job| self.run_callback(job));
            }
            FromWorker::ReplyPart(part) => {
                let payload = rest(payload)?;
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
                if let (Some(mut target), Some(mut payload)) = (target, payload) {
                    let bulk = target.bytes() >= BULK;
                    let spans = target.fill_target(&data.region, payload.len()).ok_or(DecodeError::BadValue)?;
                    for span in spans {
                        if bulk { payload.read_bulk_into(span)? } else { payload.read_into(span)? }
                    }
                }
            }
            FromWorker::Failed(failed) => {
                let text = format!("telecl: {}: {}", failed.message, ClError(failed.status));
                // No room for a context. Nothing is broken, so the user must be told.
                if failed.opcode == CreateContext::OPCODE && failed.status == CL_DEVICE_NOT_AVAILABLE {
                    log::error(format_args!("no context at {}: {}", self.address, failed.message));
                }
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
            FromWorker::Output(_) => print(&rest(payload)?),
            FromWorker::Closing(closing) if closing.policy => {
                self.expel(closing.reason);
                return Ok(Next::Stop(closing.reason.to_owned()));
            }
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
