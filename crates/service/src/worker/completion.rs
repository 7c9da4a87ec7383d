//! The thread that tells the driver what has ended.
//!
//! Vendors call back in any order and on any thread, but a program that has seen a command end may rely on everything
//! before it: the data of an earlier read, the status of an event that was waited for. So every command the driver
//! asked about has a [`Token`], knows the tokens that come before it, and is reported after them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use telecl_opencl::{Event, Queue};
use telecl_sys::*;
use telecl_wire::region::Region;
use telecl_wire::reply::{Completed, ContextNotice, Data, StatusReached};

use super::link::Link;
use super::output::Output;
use super::pending::{Ends, Pending};
use super::staging::Chunk;
use super::start::guarded;

/// How often events are looked at while something is open: soon after a failure, seldom otherwise.
const FASTEST: Duration = Duration::from_millis(5);
const SLOWEST: Duration = Duration::from_millis(500);
/// … and while nothing is.
const IDLE: Duration = Duration::from_secs(5);

/// Names a command that is to be reported. Later commands have larger ones.
pub(crate) type Token = u64;

/// Something that other threads want the driver to know.
#[derive(Debug)]
pub(crate) enum Note {
    /// One of the vendor's commands behind a command of the driver has ended.
    PartEnded { group: Arc<Group>, event: Event, status: i32, data: Option<(Region, Chunk)> },
    /// So many of them have come to nothing, or are accounted for.
    Settled { group: Arc<Group>, parts: usize, status: i32 },
    /// A watched event has reached a status.
    Reached { event: u64, status: i32 },
    /// Something has failed, and others may have failed with it unnoticed.
    LookAround,
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
    ends: OnceLock<(Event, Event)>,
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
        queue: Queue,
    },
}

impl Group {
    /// Sets where profiling times come from; to be called before the last part can end.
    pub(crate) fn set_ends(&self, first: Event, last: Event) {
        // A second call changes nothing.
        let _ = self.ends.set((first, last));
    }

    /// Announces one more of the vendor's commands.
    pub(crate) fn expect_one_more(&self) {
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

/// Which tokens have not been reported yet. Its lock is held for a few lines and no other is taken meanwhile.
#[derive(Debug, Default)]
struct Ledger {
    last: Token,
    open: HashSet<Token>,
}

/// The way to the completion thread.
#[derive(Clone, Debug)]
pub(crate) struct Completion {
    notes: Sender<Note>,
    ledger: Arc<Mutex<Ledger>>,
    pending: Pending,
}

impl Completion {
    /// Starts the thread.
    pub(crate) fn start(link: Arc<Link>, output: Arc<Output>) -> io::Result<Completion> {
        let (notes, received) = mpsc::channel();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let pending = Pending::default();
        let reporter = Reporter {
            link,
            output,
            ledger: Arc::clone(&ledger),
            parked: HashMap::new(),
            pending: pending.clone(),
            rhythm: SLOWEST,
            swept: Instant::now(),
        };
        let thread = thread::Builder::new().name("telecl-completion".into()).stack_size(512 << 10);
        thread.spawn(move || {
            let link = Arc::clone(&reporter.link);
            guarded(&link, "completion", move || reporter.run(&received));
        })?;
        Ok(Completion { notes, ledger, pending })
    }

    /// Opens a command of `parts` of the vendor's commands that is reported after those in `after`.
    pub(crate) fn begin(&self, report: Report, parts: usize, mut after: Vec<Token>) -> Arc<Group> {
        let token = {
            let mut ledger = lock(&self.ledger);
            ledger.last += 1;
            let token = ledger.last;
            ledger.open.insert(token);
            after.retain(|token| ledger.open.contains(token));
            token
        };
        let (left, status) = (AtomicUsize::new(parts), AtomicI32::new(CL_COMPLETE));
        Arc::new(Group { report, token, after, left, status, ends: OnceLock::new() })
    }

    /// Gives up a command that was opened but never came to be; its end is reported by the caller.
    pub(crate) fn abandon(&self, group: &Arc<Group>) {
        // Through the channel, because others may be waiting for it.
        let parts = group.left.load(Ordering::Acquire);
        self.settled(group, parts, i32::MIN);
    }

    /// Removes from `tokens` what has been reported.
    pub(crate) fn prune(&self, tokens: &mut Vec<Token>) {
        let ledger = lock(&self.ledger);
        tokens.retain(|token| ledger.open.contains(token));
    }

    /// Says that parts of a command will not come, or come with no event of their own.
    pub(crate) fn settled(&self, group: &Arc<Group>, parts: usize, status: i32) {
        self.note(Note::Settled { group: Arc::clone(group), parts, status });
    }

    /// Counts the end of `event` as the end of one part.
    pub(crate) fn watch(&self, ends: &Ends, group: &Arc<Group>, event: &Event) {
        let (completion, group) = (self.clone(), Arc::clone(group));
        ends.on_end(event, move |status, event| {
            completion.note(Note::PartEnded { group, event: event.clone(), status, data: None });
        });
    }

    /// What notices the end of a new queue's commands.
    pub(crate) fn ends(&self, out_of_order: bool) -> Ends {
        Ends::of_queue(&self.pending, out_of_order)
    }

    pub(crate) fn note(&self, note: Note) {
        // The thread ends only with the process.
        let _ = self.notes.send(note);
    }
}

/// What the completion thread owns.
struct Reporter {
    link: Arc<Link>,
    output: Arc<Output>,
    ledger: Arc<Mutex<Ledger>>,
    /// Commands that have ended, by a token that must be reported before them.
    parked: HashMap<Token, Vec<Arc<Group>>>,
    pending: Pending,
    /// How long until events are looked at again, and when they were.
    rhythm: Duration,
    swept: Instant,
}

impl Reporter {
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
                Some(note) => self.take(note),
                None => self.look_around(),
            }
        }
    }

    /// The next note, or `None` when it is time to look at the events themselves.
    fn wait(&self, notes: &Receiver<Note>) -> Option<Note> {
        // What is enqueued while this waits is not noticed here, hence the limit.
        let rhythm = if self.pending.may_be_open() { self.rhythm } else { IDLE };
        notes.recv_timeout((self.swept + rhythm).saturating_duration_since(Instant::now())).ok()
    }

    /// Ends what the vendor said nothing about; the less there is to find, the less often.
    fn look_around(&mut self) {
        self.pending.sweep();
        self.swept = Instant::now();
        self.rhythm = (2 * self.rhythm).min(SLOWEST);
    }

    fn look_around_soon(&mut self) {
        self.rhythm = FASTEST;
        self.swept = Instant::now();
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::PartEnded { group, event, status, data } => {
                let status = if status < CL_COMPLETE { status } else { final_status(&event) };
                if let (CL_COMPLETE, Some((region, chunk)), Report::Completed { event, .. }) =
                    (status, data, &group.report)
                {
                    self.link.push(&Data { event: *event, region }, chunk.bytes());
                }
                self.settle(group, 1, status);
            }
            Note::Settled { group, parts, status } => self.settle(group, parts, status),
            Note::LookAround => {
                self.look_around();
                self.look_around_soon();
            }
            Note::Reached { event, status } => self.link.push(&StatusReached { event, status }, &[]),
            Note::Notice { context, message, private_info } => {
                let notice = ContextNotice { context, message: &message, private_info: &private_info };
                self.link.push(&notice, &[]);
            }
        }
    }

    fn settle(&mut self, group: Arc<Group>, parts: usize, status: i32) {
        if status < CL_COMPLETE {
            self.look_around_soon();
            // The first failure is the one that is told.
            let _ = group.status.compare_exchange(CL_COMPLETE, status, Ordering::AcqRel, Ordering::Acquire);
        }
        if group.left.fetch_sub(parts, Ordering::AcqRel) == parts {
            self.report_in_order(group);
        }
    }

    /// Reports the group and whatever has waited for it, or parks it.
    fn report_in_order(&mut self, group: Arc<Group>) {
        let mut ready = vec![group];
        while let Some(group) = ready.pop() {
            let waits_for = {
                let ledger = lock(&self.ledger);
                group.after.iter().copied().find(|token| ledger.open.contains(token))
            };
            if let Some(token) = waits_for {
                self.parked.entry(token).or_default().push(group);
                continue;
            }
            self.report(&group);
            lock(&self.ledger).open.remove(&group.token);
            ready.extend(self.parked.remove(&group.token).into_iter().flatten());
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
                self.link.push(&Completed { event: *event, status, profile }, &[]);
            }
            Report::Finished { call, queue } if self.output.is_expected() => {
                self.finish_aloud(*call, queue);
            }
            // What failed before says so itself; clFinish succeeds.
            Report::Finished { call, .. } => self.link.reply(*call, CL_SUCCESS, &[]),
        }
    }

    /// Some drivers print only in clFinish. Commands that came after may make it wait, hence the thread.
    fn finish_aloud(&self, call: u64, queue: &Queue) {
        let (queue, output, link) = (queue.clone(), Arc::clone(&self.output), Arc::clone(&self.link));
        let replying = Arc::clone(&link);
        let finish = move || {
            let _ = queue.finish();
            output.drain();
            replying.reply(call, CL_SUCCESS, &[]);
        };
        let thread = thread::Builder::new().name("telecl-finish".into()).stack_size(256 << 10);
        if thread.spawn(finish).is_err() {
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
