//! Which sessions there are, so that all of them can be ended.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use telecl_net::Stream;

/// How long sessions may take to end by themselves, and then after SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// All sessions of a broker. Its lock is held for a few lines and no other is taken meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<u64, Stage>,
    stopping: bool,
}

#[derive(Debug)]
enum Stage {
    /// Welcomed, and nothing asked of it yet.
    Waiting(Stream),
    /// Its worker is being started.
    Starting,
    Working(Pid),
}

impl Registry {
    /// Notes a session; `false` if the service is stopping and takes none.
    pub(crate) fn enter(&self, session: u64, stream: Stream) -> bool {
        let mut state = self.lock();
        if !state.stopping {
            state.sessions.insert(session, Stage::Waiting(stream));
        }
        !state.stopping
    }

    /// Whether all sessions are being ended.
    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// The session now belongs to a worker, and its socket with it.
    pub(crate) fn work(&self, session: u64, worker: Pid) {
        let mut state = self.lock();
        state.sessions.insert(session, Stage::Working(worker));
        if state.stopping {
            signal(worker, Signal::TERM);
        }
    }

    /// Closes this registry's handle on a session's socket, which a worker is about to own.
    pub(crate) fn hand_over(&self, session: u64) {
        self.lock().sessions.insert(session, Stage::Starting);
    }

    /// The session has ended. Must come before its worker's process id is given back to the system, so that no signal
    /// reaches a stranger.
    pub(crate) fn leave(&self, session: u64) {
        self.lock().sessions.remove(&session);
        self.changed.notify_all();
    }

    /// Ends all sessions and returns how many would not.
    pub(crate) fn end_all(&self) -> usize {
        let mut state = self.lock();
        state.stopping = true;
        for stage in state.sessions.values() {
            match stage {
                Stage::Waiting(stream) => stream.shutdown(),
                Stage::Starting => {}
                Stage::Working(worker) => signal(*worker, Signal::TERM),
            }
        }
        let state = self.wait_until_empty(state);
        for stage in state.sessions.values() {
            if let Stage::Working(worker) = stage {
                signal(*worker, Signal::KILL);
            }
        }
        self.wait_until_empty(state).sessions.len()
    }

    fn wait_until_empty<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout_while(state, GRACE, |state| !state.sessions.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(worker: Pid, signal: Signal) {
    // Fails only for a worker that has already ended.
    let _ = kill_process(worker, signal);
}
