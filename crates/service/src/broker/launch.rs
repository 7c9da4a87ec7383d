//! A session and its worker: the session is handed over, the worker's requests to the broker are answered, its end is
//! waited for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};
use telecl_net::Stream;
use telecl_policy::Tenant;
use tracing::{debug, info, warn};

use super::admission::{Claim, Place};
use super::adopt::Missing;
use super::cache::{Answer, Client};
use super::mailbox::Mailbox;
use super::memory::{Account, Notice, Verdict};
use super::pool::Worker;
use super::records::{self, Granted, Record};
use super::registry::{Errand, Joins, Newcomer, Process};
use super::{Broker, WorkerCommand, farewell};
use crate::board::SessionBoard;
use crate::channel::{Begin, Channel, Done, Head, Kind, MemoryLimit, MemoryWish, Possessions};
use crate::environment;
use crate::process::exit_code;

/// A child process that cannot come back to us as a driver.
pub(crate) fn command(worker: &WorkerCommand) -> Command {
    let mut command = Command::new(&worker.program);
    command
        .args(&worker.args)
        .env(environment::INSIDE, "1")
        .env(environment::BROKER, std::process::id().to_string())
        .env_remove(environment::SERVICES);
    command
}

/// The connection of a session that has no worker yet.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    /// Whether its driver comes back when it has lost it: then its end is the worker's to judge.
    pub(crate) lasts: bool,
}

/// Runs the session's worker to its end, however it ends; says how.
pub(crate) fn work(
    broker: &Broker,
    begin: &Begin,
    tenant: &Tenant,
    socket: Socket,
    joins: &Joins,
) -> Result<String, String> {
    let session = begin.session;
    broker.sessions.hand_over(session);
    let mut socket = Some(socket);
    // Those that waited may have died unnoticed; the one that is started then has no excuse.
    for _ in 0..broker.settings.warm_workers + 2 {
        let worker = match broker.pool.take() {
            Ok(worker) => worker,
            Err(error) => {
                let program = broker.settings.worker.program.display();
                return Err(give_up(socket, &format!("cannot start the worker {program}: {error}"), false));
            }
        };
        let ended = run(broker, begin, tenant, &mut socket, joins, worker);
        // As long as the socket is here, the worker has not touched it, and another can.
        if socket.is_none() {
            return ended;
        }
        debug!(session, ?ended, "a worker ended before it took its session over");
        if broker.sessions.is_stopping() {
            return Err(give_up(socket, "the service is stopping", false));
        }
        if let Some(wish) = broker.sessions.is_ending(session) {
            return Ok(give_up(socket, &wish.reason(), true));
        }
    }
    Err(give_up(socket, "worker could not start", false))
}

/// Gives the session to the worker, answers its requests, and waits for its end. Takes the socket away as soon as it is
/// the worker's, who then holds the only handle on it: when the worker ends, so does the connection.
fn run(
    broker: &Broker,
    begin: &Begin,
    tenant: &Tenant,
    socket: &mut Option<Socket>,
    joins: &Joins,
    worker: Worker,
) -> Result<String, String> {
    let session = begin.session;
    let Worker { mut child, channel, scratch, .. } = worker;
    debug!(session, worker = child.id(), "worker gets the session");
    broker.sessions.work(session, Process::Child(Pid::from_child(&child)));
    // Given back when the process is gone: until then it has its devices.
    let board = SessionBoard::create(&begin.devices);
    let (board, memfd) =
        board.map_err(|error| give_up(socket.take(), &format!("cannot keep a session: {error}"), false))?;
    let board = Arc::new(board);
    broker.accounts.work(session, &board);
    broker.homes.fill(tenant.as_str(), &scratch);
    let grant = broker.rules.current().for_tenant(tenant);
    let memory = broker.memory.open(session, &begin.memory, grant.account(), &board, None);
    let memory = memory.map_err(|error| give_up(socket.take(), &format!("cannot keep a session: {error}"), false))?;
    let own = &begin.devices;
    let mut devices = DeviceClaims { broker, session, own, tenant, board, memory, held: Vec::new(), waiting: None };
    let pid = Pid::from_child(&child);
    // A process that a tenant's code has started may hold the channel open when the worker has ended.
    let process = pidfd_open(pid, PidfdFlags::empty()).ok();
    let attended = lend(broker, begin, child.id(), scratch.path(), &channel)
        .and_then(|()| match &*socket {
            Some(socket) => channel.hand_over(begin, &socket.stream, memfd.as_fd()),
            None => Ok(()),
        })
        .and_then(|()| attend(broker, &mut devices, socket, joins, &channel, (pid, process.as_ref())));
    drop(memfd);
    let ending = attended.unwrap_or_else(|error| {
        debug!(session, %error, "the worker's channel broke");
        Ending::Worker
    });
    if ending == Ending::Driver {
        // The vendor's driver may never come back from where it is.
        let _ = child.kill();
        *socket = None;
    }
    let ended = wait(broker, session, child);
    if ended.as_ref().is_ok_and(|status| status.code().is_some()) {
        // Whoever was killed may have left half of something.
        broker.homes.keep(tenant.as_str(), &scratch);
    }
    if let Some(records) = &broker.records {
        records.remove(session);
    }
    if let Err(error) = scratch.remove() {
        warn!(session, %error, "cannot remove the worker's directory");
    }
    match (ending, ended) {
        (Ending::Driver, _) => Ok("driver closed the connection".to_owned()),
        (Ending::Worker, Ok(status)) => describe(status),
        (Ending::Worker, Err(error)) => Err(format!("cannot wait for the worker: {error}")),
    }
}

/// Lets the session outlive this broker, if there is a place where the next one can find it. An error is the channel's.
fn lend(broker: &Broker, begin: &Begin, worker: u32, scratch: &Path, channel: &Channel) -> io::Result<()> {
    let (Some(records), Some(survival)) = (&broker.records, &broker.settings.survival) else { return Ok(()) };
    let session = begin.session;
    let made = || {
        let (who, _) = broker.accounts.find(session).ok_or(io::ErrorKind::NotFound)?;
        let secret = broker.sessions.secret(session).ok_or(io::ErrorKind::NotFound)?;
        let lease = records::new_lease()?;
        let (listener, lock) = (records.listen(session)?, broker.scratch.lock()?);
        let worker = records::Process::find(worker)?;
        let grant = Granted { offer: &broker.offer, devices: &begin.devices, memory: &begin.memory };
        records.write(&Record::new(&who, secret, lease, grant, worker, scratch))?;
        io::Result::Ok((lease, listener, lock))
    };
    match made() {
        Ok((lease, listener, lock)) => channel.let_survive(lease, survival.grace, listener.as_fd(), lock.as_fd()),
        Err(error) => {
            warn!(session, %error, "the session would not outlive this service");
            records.remove(session);
            Ok(())
        }
    }
}

/// Looks after a session that another broker has begun, to its end; says how it ended.
pub(crate) fn work_on(broker: &Broker, adopted: Adopted<'_>) -> Result<String, String> {
    let Adopted { session, own, limits, tenant, board, channel, worker, process, joins, has, missing } = adopted;
    let cannot = |error: io::Error| format!("cannot keep a session: {error}");
    let grant = broker.rules.current().for_tenant(tenant);
    let memory = broker.memory.open(session, limits, grant.account(), &board, Some(has)).map_err(cannot)?;
    let mut devices = DeviceClaims { broker, session, own, tenant, board, memory, held: Vec::new(), waiting: None };
    devices.keep(&has.devices).map_err(cannot)?;
    missing.answered();
    if let Err(error) = attend(broker, &mut devices, &mut None, joins, channel, (worker, Some(process))) {
        debug!(session, %error, "the worker's channel broke");
    }
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(process, PollFlags::IN)], None) {}
    kill_all(worker);
    match devices.board.exit() {
        Some(code) => describe_code(code),
        None => Err("worker was killed, or crashed".to_owned()),
    }
}

/// A session that another broker has begun.
pub(crate) struct Adopted<'a> {
    pub(crate) session: u64,
    /// The devices that it may use.
    pub(crate) own: &'a [u64],
    pub(crate) limits: &'a [MemoryLimit],
    pub(crate) tenant: &'a Tenant,
    pub(crate) board: Arc<SessionBoard>,
    pub(crate) channel: &'a Channel,
    pub(crate) worker: Pid,
    /// Readable when the worker has ended.
    pub(crate) process: &'a OwnedFd,
    pub(crate) joins: &'a Joins,
    pub(crate) has: &'a Possessions,
    pub(crate) missing: Missing,
}

/// Who ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Worker,
    /// Gone before the worker had the session.
    Driver,
}

/// Hands further streams over, and answers what the worker asks, until it closes the channel.
fn attend(
    broker: &Broker,
    devices: &mut DeviceClaims<'_>,
    socket: &mut Option<Socket>,
    joins: &Joins,
    channel: &Channel,
    (worker, process): (Pid, Option<&OwnedFd>),
) -> io::Result<Ending> {
    let mut ended = false;
    let mailbox = Arc::new(Mailbox::new()?);
    // Each tenant is a trust domain: what a worker stores is code that others would run.
    let cache = broker.cache.client(devices.session, devices.tenant.as_str(), Arc::clone(&mailbox));
    loop {
        let mut polled = vec![
            PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(mailbox.as_fd(), PollFlags::IN),
        ];
        let begun = socket.is_none();
        polled.push(match socket {
            // Errors and hang-ups are reported unasked.
            Some(Socket { stream, lasts: false }) => PollFd::new(stream, PollFlags::RDHUP),
            // Not the end of what may be replaced.
            Some(Socket { lasts: true, .. }) => PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
            // Not before: a worker that does not begin the session takes none of its sockets along.
            None => PollFd::from_borrowed_fd(joins.as_fd(), PollFlags::IN),
        });
        polled.push(PollFd::new(&devices.memory, PollFlags::IN));
        polled.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        let patience = devices.waiting.as_ref().map(|waiting| waiting.claim.patience().unwrap_or_default());
        let patience = patience.into_iter().chain(devices.memory.patience()).min();
        let patience = patience.and_then(|left| Timespec::try_from(left).ok());
        polled.extend(devices.waiting.iter().map(|waiting| PollFd::new(&waiting.claim, PollFlags::IN)));
        match poll(&mut polled, patience.as_ref()) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let had_ended = ended;
        if process.is_some() && ready[4] && !ended {
            kill_all(worker);
            ended = true;
        }
        devices.look(channel)?;
        devices.look_for_memory(channel)?;
        if ready[1] {
            for answer in mailbox.take() {
                send(channel, answer)?;
            }
        }
        if ready[2] && begun {
            for Newcomer { stream, errand, socket } in joins.take() {
                let (kind, mut content) = match errand {
                    Errand::Join => (Kind::Join, Vec::new()),
                    Errand::Resume { received } => (Kind::Resume, telecl_wire::encode(&received)),
                };
                content.extend(socket.encryption()?);
                channel.send_with(Head::new(kind).number(stream.into()), &content, &[socket.as_fd()])?;
            }
        }
        if ready[0] {
            let Some((head, content)) = channel.receive()? else { return Ok(Ending::Worker) };
            match head.kind {
                Kind::Begun => *socket = None,
                Kind::Admit => devices.ask(channel, head.number, &content)?,
                Kind::Wants | Kind::WantsNot | Kind::Done => devices.take_turn(head, &content)?,
                Kind::Reserve | Kind::Unreserve => devices.use_memory(channel, head, &content)?,
                Kind::Withdraw if devices.memory.withdraw(head.number) => {
                    channel.send(Head::new(Kind::Denied).number(head.number), b"withdrawn")?;
                }
                // Its answer is on its way.
                Kind::Withdraw => {}
                Kind::Moved => devices.memory.moved(head.number),
                Kind::Stays => devices.memory.stays(),
                _ => ask(&cache, head, content)?,
            }
        } else if ready[2] && !begun {
            return Ok(Ending::Driver);
        } else if had_ended {
            return Ok(Ending::Worker);
        }
    }
}

/// The devices that a session uses, or waits for.
struct DeviceClaims<'b> {
    broker: &'b Broker,
    session: u64,
    /// Those that it may use.
    own: &'b [u64],
    tenant: &'b Tenant,
    board: Arc<SessionBoard>,
    held: Vec<(Vec<u64>, Claim<'b>)>,
    waiting: Option<Waiting<'b>>,
    memory: Account<'b>,
}

struct Waiting<'b> {
    /// By which the worker knows its question.
    number: u64,
    devices: Vec<u64>,
    claim: Claim<'b>,
}

impl DeviceClaims<'_> {
    /// The session was given room on these devices by another broker.
    fn keep(&mut self, devices: &[u64]) -> io::Result<()> {
        let mut devices: Vec<u64> = devices.iter().copied().filter(|id| self.own.contains(id)).collect();
        devices.sort_unstable();
        devices.dedup();
        let claim = self.broker.admission.keep(devices.iter().map(|id| Place::Device(*id)).collect())?;
        self.broker.accounts.admit(self.session, &devices);
        let grant = self.broker.rules.current().for_tenant(self.tenant);
        for device in &devices {
            self.broker.turns.adopt(*device, self.session, &grant, &self.board);
        }
        self.held.push((devices, claim));
        Ok(())
    }

    /// The worker is about to make a context with these devices. It asks one question at a time.
    fn ask(&mut self, channel: &Channel, number: u64, content: &[u8]) -> io::Result<()> {
        let broken = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut devices: Vec<u64> = telecl_wire::decode(content).map_err(|error| broken(error.to_string()))?;
        if self.waiting.is_some() || !devices.iter().all(|id| self.own.contains(id)) {
            return Err(broken("a worker wants what is not its session's".to_owned()));
        }
        devices.sort_unstable();
        devices.dedup();
        devices.retain(|id| !self.held.iter().any(|(held, _)| held.contains(id)));
        let claim = self.broker.admission.claim(devices.iter().map(|id| Place::Device(*id)).collect())?;
        self.waiting = Some(Waiting { number, devices, claim });
        self.look(channel)?;
        if let Some(Waiting { claim, .. }) = &self.waiting {
            let (session, at_most) = (self.session, claim.patience().unwrap_or_default());
            info!(session, tenant = %self.tenant, ?at_most, "session waits for room on a device");
        }
        Ok(())
    }

    /// The worker wants a turn on a device, or has had one.
    fn take_turn(&self, head: Head, content: &[u8]) -> io::Result<()> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "a worker has no such device, or no such turn");
        let place = usize::try_from(head.number).ok();
        let device = *place.and_then(|place| self.own.get(place)).ok_or_else(broken)?;
        if head.kind == Kind::Wants {
            self.broker.turns.wants(self.session, device);
        } else if head.kind == Kind::WantsNot {
            self.broker.turns.wants_no_more(self.session, device);
        } else {
            let done = Done::parse(content).map_err(|_| broken())?;
            self.broker.turns.done(self.session, device, done);
        }
        Ok(())
    }

    /// Tells the worker if its wait is over.
    fn look(&mut self, channel: &Channel) -> io::Result<()> {
        let Some(mut waiting) = self.waiting.take() else { return Ok(()) };
        if waiting.claim.is_admitted() {
            let Waiting { number, devices, claim } = waiting;
            self.broker.accounts.admit(self.session, &devices);
            self.broker.accounts.waited(self.tenant, claim.waited(), true);
            let grant = self.broker.rules.current().for_tenant(self.tenant);
            for device in &devices {
                self.broker.turns.join(*device, self.session, &grant, &self.board);
            }
            self.held.push((devices, claim));
            return channel.send(Head::new(Kind::Admitted).number(number), &[]);
        }
        if waiting.claim.patience().is_some() {
            self.waiting = Some(waiting);
            return Ok(());
        }
        self.broker.accounts.waited(self.tenant, waiting.claim.waited(), false);
        let reason = waiting.claim.refusal();
        warn!(session = self.session, tenant = %self.tenant, reason, "session refused a device");
        channel.send(Head::new(Kind::Refused).number(waiting.number), reason.as_bytes())
    }
}

impl DeviceClaims<'_> {
    /// The worker wants memory that the tenant's sessions share, or needs some no more.
    fn use_memory(&mut self, channel: &Channel, head: Head, content: &[u8]) -> io::Result<()> {
        let wish = MemoryWish::parse(content).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let account = &self.memory;
        if head.kind == Kind::Unreserve {
            account.give_back(&wish);
            return Ok(());
        }
        let verdict = account.reserve(head.number, &wish);
        self.answer_wish(channel, head.number, verdict)
    }

    /// Tells the worker what has come of its wishes for memory, and whether others need what it has.
    fn look_for_memory(&self, channel: &Channel) -> io::Result<()> {
        let notices: Vec<Notice> = self.memory.notices().collect();
        if notices.contains(&Notice::MoveOut) {
            channel.send(Head::new(Kind::MoveOut), &[])?;
        }
        if self.memory.patience().is_some() {
            for (number, verdict) in self.memory.look() {
                self.answer_wish(channel, number, verdict)?;
            }
        }
        Ok(())
    }

    fn answer_wish(&self, channel: &Channel, number: u64, verdict: Verdict) -> io::Result<()> {
        match verdict {
            Verdict::Granted => channel.send(Head::new(Kind::Reserved).number(number), &[]),
            Verdict::Waits => Ok(()),
            Verdict::Denied(reason) => {
                debug!(session = self.session, tenant = %self.tenant, reason, "session refused memory");
                channel.send(Head::new(Kind::Denied).number(number), reason.as_bytes())
            }
        }
    }
}

impl Drop for DeviceClaims<'_> {
    fn drop(&mut self) {
        self.broker.turns.leave(self.session);
    }
}

fn send(channel: &Channel, answer: Answer) -> io::Result<()> {
    match answer {
        Answer::Hit(number, content) => channel.send(Head::new(Kind::Hit).number(number), &content),
        Answer::Build(number) => channel.send(Head::new(Kind::Build).number(number), &[]),
    }
}

fn ask(cache: &Client<'_>, head: Head, content: Vec<u8>) -> io::Result<()> {
    match head.kind {
        Kind::Lookup => cache.lookup(head.number, head.key),
        Kind::Await => cache.wait(head.number, head.key),
        Kind::Store => cache.store(head.key, content),
        Kind::Failed => cache.failed(head.key),
        Kind::Unkept => cache.unkept(head.key),
        Kind::Forget => cache.forget(head.key),
        // It was taken before it could say so to the spawner.
        Kind::Ready => {}
        Kind::Begin
        | Kind::Begun
        | Kind::Hit
        | Kind::Build
        | Kind::Join
        | Kind::Admit
        | Kind::Admitted
        | Kind::Refused
        | Kind::Wants
        | Kind::Done
        | Kind::Reserve
        | Kind::Reserved
        | Kind::Denied
        | Kind::Unreserve
        | Kind::MoveOut
        | Kind::Moved
        | Kind::Stays
        | Kind::Withdraw
        | Kind::WantsNot
        | Kind::Resume
        | Kind::Survive
        | Kind::Adopt
        | Kind::Adopted => {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a worker says nothing of the kind"));
        }
    }
    Ok(())
}

fn wait(broker: &Broker, session: u64, mut child: Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    // Waits without reaping, so that the process id cannot be another's while the registry still has it.
    while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {}
    broker.sessions.hand_over(session);
    // What a tenant's code has started may not outlive its session.
    kill_all(pid);
    child.wait()
}

/// Ends a worker and all that it has started: they are one process group, which nobody leaves. Its process id has not
/// been given back yet.
pub(crate) fn kill_all(worker: Pid) {
    // They may have ended already.
    let _ = kill_process_group(worker, Signal::KILL);
}

fn describe(status: ExitStatus) -> Result<String, String> {
    match (status.code(), status.signal()) {
        (Some(code), _) => describe_code(code),
        (None, Some(signal)) => Err(format!("worker was killed by signal {signal}{}", signal_name(signal))),
        (None, None) => Err(status.to_string()),
    }
}

fn describe_code(code: i32) -> Result<String, String> {
    let well = match code {
        exit_code::CLOSED => "driver closed the connection",
        exit_code::GONE => "driver lost its connection and did not come back",
        exit_code::STOPPED => "service stopped",
        exit_code::IDLE => "it did nothing for longer than its policy allows",
        exit_code::BUILD_TOO_LONG => "a build took longer than its policy allows",
        exit_code::KERNEL_TOO_LONG => "a kernel ran for longer than its policy allows",
        exit_code::BROKEN_PROTOCOL => return Err("driver broke the protocol".to_owned()),
        exit_code::NOT_STARTED => return Err("worker could not start".to_owned()),
        exit_code::PANICKED => return Err("worker panicked".to_owned()),
        code => return Err(format!("worker ended with exit code {code}")),
    };
    Ok(well.to_owned())
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map(|name| format!(" ({name})")).unwrap_or_default()
}

/// Tells the driver why there is no worker, and returns the reason. With `policy`, because somebody wants it so.
fn give_up(socket: Option<Socket>, reason: &str, policy: bool) -> String {
    if let Some(socket) = socket {
        farewell::close(socket.stream, reason, policy);
    }
    reason.to_owned()
}
