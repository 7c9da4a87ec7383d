//! Requests that wait for an answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use telecl_sys::{CL_DEVICE_NOT_AVAILABLE, CL_SUCCESS, ClError, ClResult, cl_int};
use telecl_wire::request::Message;

use super::Session;
use crate::arrival::Arrival;
use crate::process;
use crate::registry::lock;

/// Number of a request that is answered.
pub(crate) type CallId = u64;

/// What a worker answered: its status and the payload.
pub(crate) type Answer = (cl_int, Vec<u8>);

/// Who gets an answer.
enum Waiter {
    Thread(Arc<Arrival<Answer>>),
    /// Runs on the callback thread.
    Job(Box<dyn FnOnce(Answer) + Send>),
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Waiter::Thread(_) => "Thread",
            Waiter::Job(_) => "Job",
        })
    }
}

/// Requests under way.
#[derive(Debug, Default)]
pub(super) struct Calls {
    next: AtomicU64,
    open: Mutex<HashMap<CallId, Call>>,
}

#[derive(Debug)]
struct Call {
    waiter: Waiter,
    /// Payloads of the parts that have come so far.
    parts: Vec<u8>,
}

impl Calls {
    fn open(&self, waiter: Waiter) -> CallId {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.open).insert(id, Call { waiter, parts: Vec::new() });
        id
    }

    fn close(&self, id: CallId) -> Option<Call> {
        lock(&self.open).remove(&id)
    }

    /// A piece of a long answer.
    pub(super) fn add_part(&self, id: CallId, part: &[u8]) {
        if let Some(call) = lock(&self.open).get_mut(&id) {
            call.parts.extend_from_slice(part);
        }
    }

    /// An answer has come; `run` takes jobs to the callback thread.
    pub(super) fn answer(&self, id: CallId, status: cl_int, last: &[u8], run: impl FnOnce(Box<dyn FnOnce() + Send>)) {
        let Some(mut call) = self.close(id) else { return };
        call.parts.extend_from_slice(last);
        let answer = (status, call.parts);
        match call.waiter {
            Waiter::Thread(slot) => slot.set(answer),
            Waiter::Job(job) => run(Box::new(move || job(answer))),
        }
    }
}

impl Session {
    /// Sends a request and waits for its answer, whatever its status.
    pub(crate) fn ask<'a, M: Message<'a>>(
        self: &Arc<Self>,
        payload: &[u8],
        request: impl FnOnce(CallId) -> M,
    ) -> ClResult<Answer> {
        self.ask_then(payload, request, || {})
    }

    /// As [`Session::ask`]; `then` may send more before it waits.
    fn ask_then<'a, M: Message<'a>>(
        self: &Arc<Self>,
        payload: &[u8],
        request: impl FnOnce(CallId) -> M,
        then: impl FnOnce(),
    ) -> ClResult<Answer> {
        let slot = Arc::new(Arrival::default());
        let id = self.calls.open(Waiter::Thread(Arc::clone(&slot)));
        let sent = self.post_and_more(&request(id), payload).map(|()| then()).and_then(|()| self.push_out());
        if let Err(error) = sent {
            self.calls.close(id);
            return Err(error);
        }
        // Lost between the check in `post` and now: nobody would answer any more.
        if self.is_lost() || process::is_exiting() {
            self.fail_calls();
        }
        self.receive_until(|| slot.is_set());
        // Set by now, and nobody else takes it.
        slot.wait().take().ok_or(ClError(CL_DEVICE_NOT_AVAILABLE))
    }

    /// Sends a request, waits, and returns the payload of a successful answer.
    pub(crate) fn call<'a, M: Message<'a>>(self: &Arc<Self>, request: impl FnOnce(CallId) -> M) -> ClResult<Vec<u8>> {
        match self.ask(&[], request)? {
            (CL_SUCCESS, payload) => Ok(payload),
            (status, _) => Err(ClError(status)),
        }
    }

    /// As [`Session::call`]; `then` may send more before it waits.
    pub(crate) fn call_then<'a, M: Message<'a>>(
        self: &Arc<Self>,
        request: impl FnOnce(CallId) -> M,
        then: impl FnOnce(),
    ) -> ClResult<Vec<u8>> {
        match self.ask_then(&[], request, then)? {
            (CL_SUCCESS, payload) => Ok(payload),
            (status, _) => Err(ClError(status)),
        }
    }

    /// Sends a request and returns; `then` runs on the callback thread when the answer is there.
    pub(crate) fn call_later<'a, M: Message<'a>>(
        &self,
        request: impl FnOnce(CallId) -> M,
        then: impl FnOnce(Answer) + Send + 'static,
    ) -> ClResult<()> {
        let id = self.calls.open(Waiter::Job(Box::new(then)));
        self.post(&request(id), &[]).inspect_err(|_| {
            self.calls.close(id);
        })?;
        if self.is_lost() {
            self.fail_calls();
        }
        Ok(())
    }

    pub(super) fn fail_calls(&self) {
        let open: Vec<_> = lock(&self.calls.open).drain().collect();
        for (_, call) in open {
            let answer = (CL_DEVICE_NOT_AVAILABLE, Vec::new());
            match call.waiter {
                Waiter::Thread(slot) => slot.set(answer),
                Waiter::Job(job) => self.run_callback(move || job(answer)),
            }
        }
    }
}
