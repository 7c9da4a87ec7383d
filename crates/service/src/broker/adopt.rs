//! Sessions that have outlived the broker that began them: they are taken over before this one accepts anybody.
//!
//! What a record says is believed: only the service's own user can have written it. What the worker says is checked like
//! everything that comes from one. A session that cannot be taken over, because it belongs to another version or to other
//! devices, is left alone: it goes on until its program ends, or until it has waited for a broker for too long.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use telecl_policy::Tenant;
use tracing::{info, warn};

use super::accounts::Seen;
use super::admission::Place;
use super::figures::Figures;
use super::launch::{self, Adopted};
use super::records::{NotOurs, Record, Records};
use super::registry::{Joins, Process};
use super::{Broker, scratch, session};
use crate::board::SessionBoard;
use crate::channel::{CHANNEL_VERSION, Channel, Head, Kind, Possessions};

/// How long a worker may take to answer. It does nothing else meanwhile, but its machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes over what the broker before has left. Returns when all of it is known, or at least has had the time.
pub(crate) fn adopt_all(broker: &Arc<Broker>) {
    let Some(records) = &broker.records else { return };
    let found = records.read_all();
    let Some(last) = found.iter().map(|record| record.session).max() else { return };
    broker.next_session.fetch_max(last.saturating_add(1), Ordering::Relaxed);
    let roll = Arc::new(RollCall::new(Instant::now() + PATIENCE));
    for record in found {
        let (broker, missing) = (Arc::clone(broker), roll.expect_one());
        let thread = thread::Builder::new().name("telecl-session".into()).stack_size(512 << 10);
        if let Err(error) = thread.spawn(move || adopt(&broker, &record, missing)) {
            warn!(%error, "cannot start a thread for a session");
        }
    }
    roll.wait();
}

/// Sessions that are expected. None of them is given anything before it is known what all of them have: otherwise those
/// that answer first would be given memory that others hold.
#[derive(Debug)]
struct RollCall {
    missing: Mutex<usize>,
    changed: Condvar,
    /// Nobody waits for longer.
    deadline: Instant,
}

impl RollCall {
    fn new(deadline: Instant) -> RollCall {
        RollCall { missing: Mutex::new(0), changed: Condvar::new(), deadline }
    }

    fn expect_one(self: &Arc<RollCall>) -> Missing {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Missing { roll: Arc::clone(self) }
    }

    /// Waits until nobody is missing.
    fn wait(&self) {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.deadline.saturating_duration_since(Instant::now());
        // Either way one goes on.
        let _ = self.changed.wait_timeout_while(missing, left, |missing| *missing > 0);
    }
}

/// A session of which it is not known yet what it has. Dropped when it is, or when there is no such session.
#[derive(Debug)]
pub(crate) struct Missing {
    roll: Arc<RollCall>,
}

impl Missing {
    /// All that this one has is accounted for. Returns when that is so for the others, too.
    pub(crate) fn answered(self) {
        let roll = Arc::clone(&self.roll);
        drop(self);
        roll.wait();
    }
}

impl Drop for Missing {
    fn drop(&mut self) {
        *self.roll.missing.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.roll.changed.notify_all();
    }
}

/// The life of a session from here on.
fn adopt(broker: &Broker, record: &Record, missing: Missing) {
    let Some(records) = &broker.records else { return };
    let session = record.session;
    match take_over(broker, records, record) {
        Ok(orphan) => {
            let Orphan { tenant, process, .. } = &orphan;
            match broker.sessions.adopt(session, record.secret, Process::Adopted(Arc::clone(process))) {
                Ok(joins) => {
                    let who = record.who(tenant.clone());
                    let since = who.since;
                    info!(session, %tenant, program = record.program, age = ?since.elapsed(), "session taken over");
                    broker.accounts.open(who);
                    broker.accounts.work(session, &orphan.board);
                    let ended = orphan.attend(broker, record, &joins, missing);
                    bury(records, record);
                    session::close(broker, session, tenant, &record.program, since, ended);
                }
                Err(error) => warn!(session, %error, "cannot keep a session"),
            }
        }
        Err(NotOurs::Ended) => {
            info!(session, tenant = record.tenant, program = record.program, "the session has ended without a broker");
            account_for(broker, record);
            bury(records, record);
        }
        Err(reason) => {
            warn!(session, tenant = record.tenant, program = record.program, %reason, "the session is not taken over, and ends soon");
            drop(missing);
            if let Some((worker, process)) = find(record) {
                wait(&process);
                launch::kill_all(worker);
            }
            account_for(broker, record);
            bury(records, record);
        }
    }
}

/// Writes down that there was a session. What it came to, only its worker knew.
fn account_for(broker: &Broker, record: &Record) {
    let Ok(tenant) = Tenant::parse(&record.tenant) else { return };
    let (who, figures) = (Arc::new(record.who(tenant)), Figures::default());
    let seen = Seen { who, works: true, devices: Vec::new(), figures };
    let ended = Err("it ended while no service looked after it; what it has used is not known".to_owned());
    broker.accounting.write(&seen, &broker.offer, SystemTime::now(), &ended);
}

/// What is left of a session whose worker has ended.
fn bury(records: &Records, record: &Record) {
    records.remove(record.session);
    scratch::remove_left(&record.scratch);
}

/// A session that has answered.
struct Orphan {
    tenant: Tenant,
    worker: Pid,
    process: Arc<OwnedFd>,
    channel: Channel,
    board: Arc<SessionBoard>,
    has: Possessions,
}

impl Orphan {
    fn attend(&self, broker: &Broker, record: &Record, joins: &Joins, missing: Missing) -> Result<String, String> {
        let Orphan { tenant, worker, process, channel, board, has } = self;
        let account = broker.rules.current().for_tenant(tenant).account().clone();
        let claim = broker.admission.keep(vec![Place::Tenant(account)]);
        if record.is_of_pod() {
            broker.memory.follow(record.session, tenant);
        }
        let _claim = claim.map_err(|error| error.to_string())?;
        let (own, limits) = (record.devices(), record.memory());
        launch::work_on(
            broker,
            Adopted {
                session: record.session,
                own: &own,
                limits: &limits,
                tenant,
                board: Arc::clone(board),
                channel,
                worker: *worker,
                process,
                joins,
                has,
                missing,
            },
        )
    }
}

/// Finds the session's worker, and has it listen to this broker.
fn take_over(broker: &Broker, records: &Records, record: &Record) -> Result<Orphan, NotOurs> {
    let tenant = record.check(&broker.offer)?;
    let (worker, process) = find(record).ok_or(NotOurs::Ended)?;
    let process = Arc::new(process);
    let (channel, board, has) = introduce(records, record)
        .map_err(|error| NotOurs::Different(format!("its worker does not listen to this service: {error}")))?;
    Ok(Orphan { tenant, worker, process, channel, board: Arc::new(board), has })
}

/// The worker's process, if it is still the one that the record means.
fn find(record: &Record) -> Option<(Pid, OwnedFd)> {
    let pid = i32::try_from(record.worker.pid).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // After that: from now on its number is not given to another unnoticed.
    record.worker.is_there().then_some((pid, process))
}

fn introduce(records: &Records, record: &Record) -> io::Result<(Channel, SessionBoard, Possessions)> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let socket = UnixStream::connect(records.socket(record.session))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let own = socket.try_clone()?;
    let channel = Channel::from_fd(socket.into());
    channel.send(Head::new(Kind::Adopt).number(CHANNEL_VERSION).key(record.lease), &[])?;
    let (head, content, mut descriptors) =
        channel.receive_with()?.ok_or_else(|| broken("it has closed the channel"))?;
    let (Kind::Adopted, Some(memfd)) = (head.kind, descriptors.pop()) else {
        return Err(broken("it answers with something else"));
    };
    let board = SessionBoard::open(&memfd, &record.devices()).map_err(io::Error::other)?;
    let has = Possessions::parse(&content).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    own.set_read_timeout(None)?;
    Ok((channel, board, has))
}

fn wait(process: &OwnedFd) {
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(process, PollFlags::IN)], None) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_on_before_all_are_known_or_have_had_their_time() {
        let roll = Arc::new(RollCall::new(Instant::now() + Duration::from_secs(60)));
        let (first, second, gone) = (roll.expect_one(), roll.expect_one(), roll.expect_one());
        let waits = thread::spawn(move || first.answered());
        drop(gone);
        thread::sleep(Duration::from_millis(20));
        assert!(!waits.is_finished(), "one is missing");
        second.answered();
        waits.join().unwrap();
        roll.wait();
        let over = Arc::new(RollCall::new(Instant::now()));
        let _silent = over.expect_one();
        over.expect_one().answered();
    }
}
