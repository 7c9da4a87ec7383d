//! Which sessions there are, so that all of them can be ended, and further connections can join them.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, pidfd_send_signal};
use telecl_net::Stream;
use telecl_wire::MAX_STREAMS;
use telecl_wire::handshake::{Join, Resume};

use super::mailbox::Mailbox;
use crate::board::{SessionBoard, Wish};

/// How long sessions may take to end by themselves, and then after SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// Connections for the session's worker.
pub(crate) type Joins = Mailbox<Newcomer>;

/// A further connection of a session.
#[derive(Debug)]
pub(crate) struct Newcomer {
    /// The number of the stream that it is, or is to be.
    pub(crate) stream: u32,
    pub(crate) errand: Errand,
    pub(crate) socket: Stream,
}

/// What a further connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// It is a stream more.
    Join,
    /// It takes the place of one that was lost, on which the driver has received so many bytes.
    Resume { received: u64 },
}

/// All sessions of a broker. Its lock is held for a few lines; that of a [`Mailbox`] may be taken meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<u64, Session>,
    stopping: bool,
}

#[derive(Debug)]
struct Session {
    stage: Stage,
    secret: [u8; 16],
    joins: Arc<Joins>,
    /// Which numbers have been given to streams.
    streams: [bool; MAX_STREAMS],
    /// Somebody wants it to end.
    ending: Option<Wish>,
}

#[derive(Debug)]
enum Stage {
    /// Welcomed, and nothing asked of it yet.
    Waiting(Stream),
    /// Its worker is being started.
    Starting,
    Working(Process),
}

/// A worker's process, as it can be sent signals.
#[derive(Clone, Debug)]
pub(crate) enum Process {
    /// A child of this one, whose number is nobody else's as long as it is not waited for.
    Child(Pid),
    /// Started by a broker that is gone.
    Adopted(Arc<OwnedFd>),
}

impl State {
    fn set_stage(&mut self, session: u64, stage: Stage) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.stage = stage;
        }
    }

    fn is_ending(&self, session: u64) -> Option<Wish> {
        self.sessions.get(&session)?.ending
    }
}

/// Why a connection does not become a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotJoined {
    /// Which of the two it is, only those who know the secret can tell.
    #[error("there is no such session, or it has another secret")]
    Stranger,
    #[error("a session has no more than {MAX_STREAMS} streams")]
    Number,
    #[error("the session has had a stream of this number")]
    Twice,
}

/// Whether two secrets are the same; takes as long in any case.
fn is_same(one: &[u8; 16], other: &[u8; 16]) -> bool {
    one.iter().zip(other).fold(0, |different, (one, other)| different | (one ^ other)) == 0
}

impl Registry {
    /// Notes a session, which whoever knows the secret may join. An error if the service is stopping and takes none.
    pub(crate) fn enter(&self, session: u64, stream: Stream, secret: [u8; 16]) -> io::Result<Arc<Joins>> {
        let joins = Arc::new(Joins::new()?);
        let mut state = self.lock();
        if state.stopping {
            return Err(io::Error::other("the service is stopping"));
        }
        let (stage, streams) = (Stage::Waiting(stream), [false; MAX_STREAMS]);
        state.sessions.insert(session, Session { stage, secret, joins: Arc::clone(&joins), streams, ending: None });
        Ok(joins)
    }

    /// Notes a session that another broker has begun, and that has its worker.
    pub(crate) fn adopt(&self, session: u64, secret: [u8; 16], worker: Process) -> io::Result<Arc<Joins>> {
        let joins = Arc::new(Joins::new()?);
        // Which streams it has had, its worker knows.
        let (stage, streams) = (Stage::Working(worker), [false; MAX_STREAMS]);
        let adopted = Session { stage, secret, joins: Arc::clone(&joins), streams, ending: None };
        self.lock().sessions.insert(session, adopted);
        Ok(joins)
    }

    /// What those know who may join it.
    pub(crate) fn secret(&self, session: u64) -> Option<[u8; 16]> {
        self.lock().sessions.get(&session).map(|session| session.secret)
    }

    /// Gives a connection to the session that it wants to be a stream of. Its worker gets it when there is one.
    pub(crate) fn join(&self, join: &Join, stream: Stream) -> Result<(), (Stream, NotJoined)> {
        let mut state = self.lock();
        let known = state.sessions.get_mut(&join.session).filter(|session| is_same(&session.secret, &join.secret));
        let Some(session) = known else { return Err((stream, NotJoined::Stranger)) };
        match session.streams.get_mut(join.stream as usize) {
            None => Err((stream, NotJoined::Number)),
            Some(true) => Err((stream, NotJoined::Twice)),
            Some(used) => {
                *used = true;
                session.joins.put(Newcomer { stream: join.stream, errand: Errand::Join, socket: stream });
                Ok(())
            }
        }
    }

    /// Gives a connection to the session that has lost one. Which it was, its worker knows. Gives it back if there is no
    /// such session.
    pub(crate) fn resume(&self, resume: &Resume, stream: Stream) -> Result<(), Stream> {
        let state = self.lock();
        let known = state.sessions.get(&resume.session).filter(|session| is_same(&session.secret, &resume.secret));
        let Some(session) = known else { return Err(stream) };
        let errand = Errand::Resume { received: resume.received };
        session.joins.put(Newcomer { stream: resume.stream, errand, socket: stream });
        Ok(())
    }

    /// Whether all sessions are being ended.
    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Those that have, or are about to get, a worker.
    pub(crate) fn running_ids(&self) -> Vec<u64> {
        let state = self.lock();
        let running = state.sessions.iter().filter(|(_, session)| !matches!(session.stage, Stage::Waiting(_)));
        running.map(|(id, _)| *id).collect()
    }

    /// The session now belongs to a worker, and its socket with it.
    pub(crate) fn work(&self, session: u64, worker: Process) {
        let mut state = self.lock();
        if state.stopping || state.is_ending(session).is_some() {
            signal(&worker, Signal::TERM);
        }
        state.set_stage(session, Stage::Working(worker));
    }

    /// Whether somebody has ended the session, which may still be here.
    pub(crate) fn is_ending(&self, session: u64) -> Option<Wish> {
        self.lock().is_ending(session)
    }

    /// Ends a session, and waits for it. Its worker finds out why on the board. `false` if it would not end.
    pub(crate) fn end(&self, session: u64, wish: Wish, board: Option<&SessionBoard>) -> bool {
        let mut state = self.lock();
        let Some(ending) = state.sessions.get_mut(&session) else { return true };
        ending.ending = Some(wish);
        match &ending.stage {
            Stage::Waiting(stream) => stream.shutdown(),
            // Whoever starts it will notice.
            Stage::Starting => {}
            Stage::Working(worker) => {
                if let Some(board) = board {
                    board.wish(wish);
                }
                signal(worker, Signal::TERM);
            }
        }
        let gone = |state: &State| !state.sessions.contains_key(&session);
        let state = self.wait_until(state, gone);
        if let Some(Session { stage: Stage::Working(worker), .. }) = state.sessions.get(&session) {
            signal(worker, Signal::KILL);
        }
        gone(&self.wait_until(state, gone))
    }

    /// Closes the connection of a session that has asked for nothing, if that is still so.
    pub(crate) fn displace(&self, session: u64) {
        if let Some(Session { stage: Stage::Waiting(stream), .. }) = self.lock().sessions.get(&session) {
            stream.shutdown();
        }
    }

    /// Closes this registry's handle on a session's socket, which a worker is about to own.
    pub(crate) fn hand_over(&self, session: u64) {
        self.lock().set_stage(session, Stage::Starting);
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
        for session in state.sessions.values() {
            match &session.stage {
                Stage::Waiting(stream) => stream.shutdown(),
                Stage::Starting => {}
                Stage::Working(worker) => signal(worker, Signal::TERM),
            }
        }
        let state = self.wait_until_empty(state);
        for session in state.sessions.values() {
            if let Stage::Working(worker) = &session.stage {
                signal(worker, Signal::KILL);
            }
        }
        self.wait_until_empty(state).sessions.len()
    }

    fn wait_until_empty<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.wait_until(state, |state| state.sessions.is_empty())
    }

    fn wait_until<'a>(&self, state: MutexGuard<'a, State>, done: impl Fn(&State) -> bool) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout_while(state, GRACE, |state| !done(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(worker: &Process, signal: Signal) {
    // Fails only for a worker that has already ended.
    let _ = match worker {
        Process::Child(pid) => kill_process(*pid, signal),
        Process::Adopted(pidfd) => pidfd_send_signal(pidfd, signal),
    };
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use telecl_wire::PROTOCOL_VERSION;
    use telecl_wire::handshake::MAGIC;

    use super::*;

    fn stream() -> Stream {
        Stream::from_fd(UnixStream::pair().unwrap().0.into())
    }

    #[test]
    fn only_who_knows_the_secret_joins_and_each_number_is_given_once() {
        let sessions = Registry::default();
        let joins = sessions.enter(7, stream(), [5; 16]).unwrap();
        let join = |session, secret, number| {
            let join = Join { magic: MAGIC, protocol: PROTOCOL_VERSION, session, secret, stream: number };
            sessions.join(&join, stream()).map_err(|(_, reason)| reason)
        };
        let mut wrong = [5; 16];
        wrong[15] = 4;
        assert_eq!(join(7, wrong, 0), Err(NotJoined::Stranger));
        assert_eq!(join(8, [5; 16], 0), Err(NotJoined::Stranger));
        for number in 0..MAX_STREAMS as u32 {
            assert_eq!(join(7, [5; 16], number), Ok(()));
            assert_eq!(join(7, [5; 16], number), Err(NotJoined::Twice));
        }
        assert_eq!(join(7, [5; 16], MAX_STREAMS as u32), Err(NotJoined::Number));
        assert!(joins.take().iter().map(|joined| joined.stream).eq(0..MAX_STREAMS as u32));
        let resume = |secret| {
            let (magic, protocol) = (MAGIC, PROTOCOL_VERSION);
            let resume = Resume { magic, protocol, session: 7, secret, stream: u32::MAX, received: 12 };
            sessions.resume(&resume, stream()).is_ok()
        };
        assert!(!resume(wrong) && resume([5; 16]) && resume([5; 16]));
        let errands: Vec<_> = joins.take().iter().map(|resumed| (resumed.stream, resumed.errand)).collect();
        assert_eq!(errands, [(u32::MAX, Errand::Resume { received: 12 }); 2]);
        sessions.leave(7);
        assert_eq!(join(7, [5; 16], 0), Err(NotJoined::Stranger));
        assert!(!resume([5; 16]));
    }

    #[test]
    fn who_only_waits_is_ended_by_the_end_of_its_connection() {
        let sessions = Registry::default();
        assert!(sessions.end(7, Wish::EndedByOperator, None), "there is nobody to end");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        sessions.enter(7, Stream::from_fd(ours.into()), [5; 16]).unwrap();
        assert_eq!(sessions.is_ending(7), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // As the session's own thread, which notices the end of the connection.
                assert_eq!(std::io::Read::read(&mut theirs, &mut [0]).unwrap(), 0);
                assert_eq!(sessions.is_ending(7), Some(Wish::EndedByOperator));
                sessions.leave(7);
            });
            assert!(sessions.end(7, Wish::EndedByOperator, None));
        });
    }
}
