//! Telling the driver what has ended.
//!
//! What has ended is reported by the thread that noticed it, if it is one of ours; for the vendors' own threads there is
//! the completion thread. Vendors call back in any order and on any thread, but a program that has seen a command end may rely on everything
//! before it: the data of an earlier read, the status of an event that was waited for. So every command the driver
//! asked about has a [`Token`], knows the tokens that come before it, and is reported after them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use telecl_opencl::{ClError, ClResult, Event, Queue};
use telecl_sys::*;
use telecl_wire::region::Region;
use telecl_wire::reply::{Completed, ContextNotice, Data, Reply, StatusReached};

use super::account::Account;
use super::bounds::{MOST_FINISHES, MOST_ORDERED, MOST_UNREPORTED};
use super::ends::{Ends, Lanes, Loose, Pending, Running, Weight};
use super::link::Link;
use super::output::Output;
use super::staging::Chunk;
use super::start::{VENDOR_STACK, guarded};
use super::table::IdHash;
use super::turns::Turns;
use crate::board::Count;

/// How often events are looked at while something is open: soon after a failure, seldom otherwise.
const FASTEST: Duration = Duration::from_millis(5);
const SLOWEST: Duration = Duration::from_millis(500);
/// … and while nothing is.
const IDLE: Duration = Duration::from_secs(5);
/// How long the executor may leave lanes alone while it is busy in the vendor's driver.
const NEGLECT: Duration = Duration::from_millis(2);
/// How often the completion thread looks for neglected lanes in vain before it stops.
const IN_VAIN: u32 = 10;

/// Names a command that is to be reported. Later commands have larger ones.
pub(crate) type Token = u64;

/// Something that other threads want the driver to know.
#[derive(Debug)]
pub(crate) enum Note {
    /// One of the vendor's commands behind a command of the driver has ended.
    PartEnded { group: Arc<Group>, event: Arc<Event>, status: i32, data: Option<(Region, Chunk)> },
    /// So many of them have come to nothing, or are accounted for.
    Settled { group: Arc<Group>, parts: usize, status: i32 },
    /// A watched event has reached a status.
    Reached { event: u64, status: i32 },
    /// Something has failed, and others may have failed with it unnoticed.
    LookAround,
    /// Commands stand in lanes that were empty.
    Guard,
    /// Memory was freed that the broker does not know of.
    MemoryFreed(Arc<Account>),
    /// The vendor has something to say about a context.
    Notice { context: u64, message: String, private_info: Vec<u8> },
}

/// One command of the driver: one or more commands of the vendor.
#[derive(Debug)]
pub(crate) struct Group {
    report: Report,
    token: Token,
    /// What is reported before.
    after: Vec<Token>,
    /// The vendor's commands that have not ended, and those still to come.
    left: AtomicUsize,
    /// The first error among them.
    status: AtomicI32,
    /// The first and the last of the vendor's events.
    ends: OnceLock<(Arc<Event>, Arc<Event>)>,
}

/// What is sent when all has ended.
#[derive(Debug)]
pub(crate) enum Report {
    Completed {
        event: u64,
        profiling: bool,
    },
    /// The reply to a finish of this queue.
    Finished {
        call: u64,
        queue: Arc<Queue>,
    },
}

impl Group {
    /// Sets where profiling times come from; to be called before the last part can end.
    pub(crate) fn set_ends(&self, first: Arc<Event>, last: Arc<Event>) {
        // A second call changes nothing.
        let _ = self.ends.set((first, last));
    }

    /// Announces one more of the vendor's commands.
    pub(crate) fn expect_one_more(&self) {
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether none of the vendor's commands so far is under way: what is left is the one that was announced first.
    pub(crate) fn is_waiting_for_parts(&self) -> bool {
        self.left.load(Ordering::Acquire) <= 1
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

/// Which tokens have not been reported yet. Its lock is held for a few lines and no other is taken meanwhile.
#[derive(Debug, Default)]
struct Ledger {
    last: Token,
    open: HashSet<Token, IdHash>,
    /// How many tokens all of them are to be reported after.
    ordered: usize,
}

/// How many threads wait in the vendor's `clFinish`.
static FINISHES: AtomicUsize = AtomicUsize::new(0);

/// The way to report, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Completion(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    notes: Sender<Note>,
    ledger: Arc<Mutex<Ledger>>,
    reporter: Mutex<Reporter>,
    pending: Pending,
    lanes: Lanes,
    /// Whether the completion thread looks after the lanes.
    guarded: AtomicBool,
    /// Whether there were too many commands when one was opened last.
    full: AtomicBool,
}

impl Completion {
    /// Starts the thread.
    pub(crate) fn start(link: Arc<Link>, output: Arc<Output>) -> io::Result<Completion> {
        let (notes, received) = mpsc::channel();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let lanes = Lanes::new(Arc::clone(&link));
        let reporter = Reporter {
            link: Arc::clone(&link),
            output,
            ledger: Arc::clone(&ledger),
            parked: HashMap::default(),
            notes: notes.clone(),
            lanes: lanes.clone(),
        };
        let completion = Completion(Arc::new(Shared {
            notes,
            ledger,
            reporter: Mutex::new(reporter),
            pending: Pending::default(),
            lanes,
            guarded: AtomicBool::new(false),
            full: AtomicBool::new(false),
        }));
        let attendant = Attendant {
            link: Arc::clone(&link),
            completion: completion.clone(),
            rhythm: SLOWEST,
            swept: Instant::now(),
            taken: 0,
            in_vain: 0,
        };
        let thread = thread::Builder::new().name("telecl-completion".into()).stack_size(VENDOR_STACK);
        thread.spawn(move || guarded(&link, "completion", move || attendant.run(&received)))?;
        Ok(completion)
    }

    /// Opens a command of `parts` of the vendor's commands that is reported after those in `after`.
    pub(crate) fn begin(&self, report: Report, parts: usize, mut after: Vec<Token>) -> Arc<Group> {
        let token = {
            let mut ledger = lock(&self.0.ledger);
            ledger.last += 1;
            let token = ledger.last;
            ledger.open.insert(token);
            after.retain(|token| ledger.open.contains(token));
            ledger.ordered += after.len();
            self.note_room(&ledger);
            token
        };
        let (left, status) = (AtomicUsize::new(parts), AtomicI32::new(CL_COMPLETE));
        Arc::new(Group { report, token, after, left, status, ends: OnceLock::new() })
    }

    /// Gives up a command that was opened but never came to be; its end is reported by the caller.
    pub(crate) fn abandon(&self, group: &Arc<Group>) {
        let parts = group.left.load(Ordering::Acquire);
        self.settled(group, parts, i32::MIN);
    }

    fn note_room(&self, ledger: &Ledger) {
        let full = ledger.open.len() >= MOST_UNREPORTED || ledger.ordered >= MOST_ORDERED;
        self.0.full.store(full, Ordering::Relaxed);
    }

    /// An error if there are too many commands that were not reported yet. A driver may keep them from ending, and from
    /// being received.
    pub(crate) fn check_room(&self) -> ClResult<()> {
        if !self.0.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.note_room(&lock(&self.0.ledger));
        if self.0.full.load(Ordering::Relaxed) { Err(ClError(CL_OUT_OF_RESOURCES)) } else { Ok(()) }
    }

    /// Whether there are commands that were not reported yet.
    pub(crate) fn is_under_way(&self) -> bool {
        !lock(&self.0.ledger).open.is_empty() || FINISHES.load(Ordering::Relaxed) > 0
    }

    /// The commands that are running, as far as they have events.
    pub(crate) fn running(&self) -> Vec<Running<Event>> {
        let mut running = self.0.lanes.running();
        running.extend(self.0.pending.running());
        running
    }

    /// Removes from `tokens` what has been reported.
    pub(crate) fn prune(&self, tokens: &mut Vec<Token>) {
        let ledger = lock(&self.0.ledger);
        tokens.retain(|token| ledger.open.contains(token));
    }

    /// Says that parts of a command will not come, or come with no event of their own.
    pub(crate) fn settled(&self, group: &Arc<Group>, parts: usize, status: i32) {
        self.report(Note::Settled { group: Arc::clone(group), parts, status });
    }

    /// Counts the end of `event` as the end of one part.
    pub(crate) fn watch(&self, ends: &Ends, group: &Arc<Group>, event: &Arc<Event>) {
        let group = Arc::clone(group);
        self.on_end(ends, event, Weight::Light, move |status, event| Note::PartEnded {
            group,
            event: Arc::clone(event),
            status,
            data: None,
        });
    }

    /// Reports what `note` says when the command of `event` has ended.
    pub(crate) fn on_end(
        &self,
        ends: &Ends,
        event: &Arc<Event>,
        weight: Weight,
        note: impl FnOnce(i32, &Arc<Event>) -> Note + Send + 'static,
    ) {
        let completion = self.clone();
        if ends.is_in_order() {
            ends.on_end(event, weight, move |status, event| completion.report(note(status, event)));
            self.guard_lanes();
        } else {
            ends.on_end(event, weight, move |status, event| completion.note(note(status, event)));
        }
    }

    /// Answers a finish with what the vendor's own says.
    pub(crate) fn ask_vendor_to_finish(&self, call: u64, queue: &Arc<Queue>) {
        self.0.reporter.lock().unwrap_or_else(PoisonError::into_inner).ask_vendor_to_finish(call, queue);
    }

    /// Has the completion thread look after the lanes, for the case that the executor is held up by the vendor.
    fn guard_lanes(&self) {
        if !self.0.guarded.load(Ordering::Relaxed) && !self.0.guarded.swap(true, Ordering::AcqRel) {
            self.note(Note::Guard);
        }
    }

    /// What notices the end of a new queue's commands. `candid` says that an event's status tells of every failure.
    pub(crate) fn ends(&self, out_of_order: bool, candid: bool, turns: Arc<Turns>) -> Ends {
        if out_of_order {
            Ends::OutOfOrder(Loose::new(self.0.pending.clone(), candid, turns))
        } else {
            Ends::InOrder(self.0.lanes.add(candid, turns))
        }
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.0.lanes
    }

    /// Leaves it to the completion thread, which also flushes the link; for threads that are not ours.
    pub(crate) fn note(&self, note: Note) {
        // The thread ends only with the process.
        let _ = self.0.notes.send(note);
    }

    /// Reports here and now. The link is flushed by the caller, sooner or later.
    fn report(&self, note: Note) {
        self.0.reporter.lock().unwrap_or_else(PoisonError::into_inner).take(note);
    }
}

/// What the completion thread owns.
struct Attendant {
    link: Arc<Link>,
    completion: Completion,
    /// How long until events are looked at again, and when they were.
    rhythm: Duration,
    swept: Instant,
    /// How many turns had been taken in the lanes when they were looked at last, and how often that was in vain.
    taken: u64,
    in_vain: u32,
}

impl Attendant {
    fn run(mut self, notes: &Receiver<Note>) {
        loop {
            // Frames are joined as long as there is more to say.
            let note = match notes.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.link.flush();
                    self.wait(notes)
                }
                Ok(note) => Some(note),
                Err(TryRecvError::Disconnected) => return,
            };
            match note {
                Some(Note::LookAround) => {
                    self.look_around();
                    self.rhythm = FASTEST;
                    self.swept = Instant::now();
                }
                Some(Note::Guard) => self.in_vain = 0,
                Some(Note::MemoryFreed(account)) => account.give_back(),
                Some(Note::PartEnded { group, event, status, data }) => {
                    let status = if status < CL_COMPLETE { status } else { final_status(&event) };
                    self.completion.report(Note::PartEnded { group, event, status, data });
                }
                Some(note) => self.completion.report(note),
                None => self.look_after(),
            }
        }
    }

    /// The next note, or `None` when it is time to look at the events themselves.
    fn wait(&self, notes: &Receiver<Note>) -> Option<Note> {
        // What is enqueued while this waits is not noticed here, hence the limit.
        let rhythm = if self.completion.0.pending.may_be_open() { self.rhythm } else { IDLE };
        let left = (self.swept + rhythm).saturating_duration_since(Instant::now());
        let left = if self.completion.0.guarded.load(Ordering::Relaxed) { left.min(NEGLECT) } else { left };
        notes.recv_timeout(left).ok()
    }

    fn look_after(&mut self) {
        if self.swept.elapsed() >= self.rhythm {
            self.look_around();
        }
        if !self.completion.0.guarded.load(Ordering::Relaxed) {
            return;
        }
        let (lanes, taken) = (&self.completion.0.lanes, self.completion.0.lanes.taken());
        if !lanes.may_be_open() {
            self.in_vain += 1;
            if self.in_vain > IN_VAIN {
                self.completion.0.guarded.store(false, Ordering::Release);
                if lanes.may_be_open() {
                    // Came in between.
                    self.completion.guard_lanes();
                }
            }
        } else if taken == std::mem::replace(&mut self.taken, taken) {
            lanes.hand_over();
        }
    }

    /// Ends what the vendor said nothing about; the less there is to find, the less often.
    fn look_around(&mut self) {
        self.completion.0.pending.sweep();
        self.swept = Instant::now();
        self.rhythm = (2 * self.rhythm).min(SLOWEST);
    }
}

/// Puts what has ended on the link, in an order that the driver can rely on.
#[derive(Debug)]
struct Reporter {
    link: Arc<Link>,
    output: Arc<Output>,
    ledger: Arc<Mutex<Ledger>>,
    /// Commands that have ended, by a token that must be reported before them.
    parked: HashMap<Token, Vec<Arc<Group>>, IdHash>,
    notes: Sender<Note>,
    lanes: Lanes,
}

impl Reporter {
    fn take(&mut self, note: Note) {
        match note {
            Note::PartEnded { group, status, data, .. } => {
                if let (CL_COMPLETE, Some((region, chunk)), Report::Completed { event, .. }) =
                    (status, data, &group.report)
                {
                    self.link.push_chunk(&Data { event: *event, region }, chunk);
                }
                self.settle(group, 1, status);
            }
            Note::Settled { group, parts, status } => self.settle(group, parts, status),
            Note::Reached { event, status } => self.link.push(&StatusReached { event, status }, &[]),
            Note::Notice { context, message, private_info } => {
                let notice = ContextNotice { context, message: &message, private_info: &private_info };
                self.link.push(&notice, &[]);
            }
            // The completion thread's own.
            Note::LookAround | Note::Guard | Note::MemoryFreed(_) => {}
        }
    }

    fn settle(&mut self, group: Arc<Group>, parts: usize, status: i32) {
        if status < CL_COMPLETE {
            self.lanes.note_failure();
            // The thread ends only with the process.
            let _ = self.notes.send(Note::LookAround);
            // The first failure is the one that is told.
            let _ = group.status.compare_exchange(CL_COMPLETE, status, Ordering::AcqRel, Ordering::Acquire);
        }
        if group.left.fetch_sub(parts, Ordering::AcqRel) == parts {
            self.report_in_order(group);
        }
    }

    /// Reports the group and whatever has waited for it, or parks it.
    fn report_in_order(&mut self, group: Arc<Group>) {
        let mut next = Some(group);
        let mut ready = Vec::new();
        while let Some(group) = next.take().or_else(|| ready.pop()) {
            let waits_for = if group.after.is_empty() {
                None
            } else {
                let ledger = lock(&self.ledger);
                group.after.iter().copied().find(|token| ledger.open.contains(token))
            };
            if let Some(token) = waits_for {
                self.parked.entry(token).or_default().push(group);
                continue;
            }
            self.report(&group);
            {
                let mut ledger = lock(&self.ledger);
                ledger.open.remove(&group.token);
                ledger.ordered -= group.after.len();
            }
            if !self.parked.is_empty() {
                ready.extend(self.parked.remove(&group.token).into_iter().flatten());
            }
        }
    }

    fn report(&self, group: &Group) {
        let status = group.status.load(Ordering::Acquire);
        let ends = group.ends.get();
        if let (true, Some((_, last))) = (self.output.is_expected(), ends) {
            // Has ended, so this does not wait; but some drivers print only when somebody does.
            let _ = last.wait();
        }
        self.output.drain();
        match &group.report {
            // Abandoned: its end was reported where it failed.
            _ if status == i32::MIN => {}
            Report::Completed { event, profiling } => {
                let profile = match ends {
                    Some((first, last)) if *profiling && status == CL_COMPLETE => profile(first, last),
                    _ => [0; 5],
                };
                if status < CL_COMPLETE {
                    self.link.board().add(Count::Failures, 1);
                }
                self.link.push(&Completed { event: *event, status, profile }, &[]);
            }
            Report::Finished { call, queue } if self.output.is_expected() || status < CL_COMPLETE => {
                self.ask_vendor_to_finish(*call, queue);
            }
            Report::Finished { call, .. } => self.link.push(&Reply { call: *call, status: CL_SUCCESS }, &[]),
        }
    }

    /// Some drivers print only in clFinish, and whether it succeeds where a command has failed is theirs to say. Commands
    /// that came after may make it wait, hence the thread.
    fn ask_vendor_to_finish(&self, call: u64, queue: &Arc<Queue>) {
        let (queue, output, link) = (Arc::clone(queue), Arc::clone(&self.output), Arc::clone(&self.link));
        let replying = Arc::clone(&link);
        if FINISHES.fetch_add(1, Ordering::Relaxed) >= MOST_FINISHES {
            FINISHES.fetch_sub(1, Ordering::Relaxed);
            return link.reply(call, CL_OUT_OF_RESOURCES, &[]);
        }
        let finish = move || {
            let status = queue.finish().map_or_else(ClError::code, |()| CL_SUCCESS);
            output.drain();
            replying.reply(call, status, &[]);
            FINISHES.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = thread::Builder::new().name("telecl-finish".into()).stack_size(VENDOR_STACK);
        if thread.spawn(finish).is_err() {
            FINISHES.fetch_sub(1, Ordering::Relaxed);
            link.reply(call, CL_SUCCESS, &[]);
        }
    }
}

/// With what a command has ended. NVIDIA's driver (580) tells callbacks of success even where the event has failed.
fn final_status(event: &Event) -> i32 {
    event.status().map_or(CL_COMPLETE, |status| status.min(CL_COMPLETE))
}

/// The times of a command that may have several of the vendor's behind it.
fn profile(first: &Event, last: &Event) -> [u64; 5] {
    let time = |event: &Event, param| event.profiling_info(param).unwrap_or(0);
    let end = time(last, CL_PROFILING_COMMAND_END);
    // Known since OpenCL 2.0.
    let complete = last.profiling_info(CL_PROFILING_COMMAND_COMPLETE).unwrap_or(end);
    [
        time(first, CL_PROFILING_COMMAND_QUEUED),
        time(first, CL_PROFILING_COMMAND_SUBMIT),
        time(first, CL_PROFILING_COMMAND_START),
        end,
        complete,
    ]
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
