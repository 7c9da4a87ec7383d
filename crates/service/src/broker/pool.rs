//! Workers that are started ahead, so that a session does not wait for a process to start and for the vendor's OpenCL to
//! be loaded.
//!
//! One thread, the *spawner*, starts all workers: the kernel ties a worker's death signal to the thread that started it,
//! and this one lives as long as the broker. Sessions take a worker that waits, or ask the spawner for one. An idle
//! worker has the vendor's libraries loaded and its devices listed, but no context: on NVIDIA a context takes hundreds of
//! megabytes of the device's memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use tracing::{debug, warn};

use super::scratch::WorkerScratch;
use super::{Broker, confinement, launch};
use crate::channel::{Channel, Kind};

/// How long a vendor's driver may take to start before an idle worker is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker that was taken is replaced after a moment, which belongs to the session that took it.
const SETTLE: Duration = Duration::from_millis(20);

/// How long to wait before another worker is started ahead if the last one died at its start: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// A worker process and what belongs to it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) child: Child,
    pub(crate) channel: Arc<Channel>,
    pub(crate) scratch: WorkerScratch,
    started: Instant,
    /// Has said that it has loaded everything.
    ready: bool,
}

impl Worker {
    /// Ends a worker that has no session.
    fn discard(mut self) {
        // It may have ended already; then this is how its process id is given back.
        launch::kill_all(Pid::from_child(&self.child));
        let _ = self.child.wait();
        let _ = self.scratch.remove();
    }
}

/// All workers that have no session. Its lock is held for a few lines, and no other is taken meanwhile.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
    /// Tells sessions that a worker was started for them.
    started: Condvar,
    /// Wakes the spawner.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    idle: VecDeque<Worker>,
    /// How many sessions wait for a worker.
    asked: usize,
    /// What was started for them.
    fresh: VecDeque<io::Result<Worker>>,
    /// No worker is started ahead before this.
    refill_at: Option<Instant>,
    stopped: bool,
}

impl State {
    /// A session has just got a worker; the next is not to be started in its way.
    fn settle(&mut self) {
        self.refill_at = self.refill_at.max(Some(Instant::now() + SETTLE));
    }
}

impl Pool {
    pub(crate) fn new() -> io::Result<Pool> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Pool { state: Mutex::default(), started: Condvar::new(), wake })
    }

    /// A worker for a session: one that waits, best one that is ready, or else a new one.
    pub(crate) fn take(&self) -> io::Result<Worker> {
        let mut state = self.lock();
        if !state.idle.is_empty() {
            let best = state.idle.iter().position(|worker| worker.ready).unwrap_or(0);
            let worker = state.idle.remove(best);
            state.settle();
            drop(state);
            self.wake();
            return worker.ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        state.asked += 1;
        self.wake();
        let waited = self.started.wait_while(state, |state| state.fresh.is_empty() && !state.stopped);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.fresh.pop_front().unwrap_or_else(|| Err(io::Error::other("the service is stopping")))
    }

    /// Ends all idle workers. No session is left by now.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        self.started.notify_all();
        self.wake();
        idle.into_iter().for_each(Worker::discard);
    }

    fn wake(&self) {
        // Full means that the spawner is going to wake up anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the spawner.
pub(crate) fn start(broker: &Arc<Broker>) -> io::Result<()> {
    let broker = Arc::clone(broker);
    let thread = thread::Builder::new().name("telecl-spawner".into()).stack_size(512 << 10);
    thread.spawn(move || Spawner { broker, pause: FIRST_PAUSE }.run())?;
    Ok(())
}

struct Spawner {
    broker: Arc<Broker>,
    /// How long the next pause will be, if workers die at their start.
    pause: Duration,
}

impl Spawner {
    fn run(mut self) {
        loop {
            self.serve_sessions();
            let wait = self.refill();
            if self.broker.pool.lock().stopped {
                return;
            }
            self.sleep(wait);
            self.look_after_idle();
        }
    }

    /// Starts workers for the sessions that wait for one.
    fn serve_sessions(&self) {
        let pool = &self.broker.pool;
        while pool.lock().asked > 0 {
            let worker = spawn(&self.broker);
            let mut state = pool.lock();
            state.asked -= 1;
            state.fresh.push_back(worker);
            state.settle();
            drop(state);
            pool.started.notify_all();
        }
    }

    /// Starts one worker ahead if there are too few; returns how long there is nothing to do.
    fn refill(&mut self) -> Option<Duration> {
        let state = self.broker.pool.lock();
        if state.stopped || state.idle.len() >= self.broker.settings.warm_workers {
            // Somebody has to notice if the vendor's driver does not start.
            return state.idle.iter().any(|worker| !worker.ready).then_some(PATIENCE);
        }
        let due = state.refill_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if !due.is_zero() {
            return Some(due);
        }
        drop(state);
        match spawn(&self.broker) {
            Ok(worker) => {
                let mut state = self.broker.pool.lock();
                if state.stopped {
                    drop(state);
                    worker.discard();
                } else {
                    state.idle.push_back(worker);
                }
                Some(Duration::ZERO)
            }
            Err(error) => {
                self.back_off(&format!("cannot start it: {error}"));
                Some(Duration::ZERO)
            }
        }
    }

    /// Waits for a session that wants a worker, or for something to happen to an idle one.
    fn sleep(&self, at_most: Option<Duration>) {
        let pool = &self.broker.pool;
        let channels: Vec<_> = pool.lock().idle.iter().map(|worker| Arc::clone(&worker.channel)).collect();
        let mut polled = vec![PollFd::new(&pool.wake, PollFlags::IN)];
        polled.extend(channels.iter().map(|channel| PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)));
        let at_most = at_most.and_then(|time| Timespec::try_from(time).ok());
        if let Err(error) = poll(&mut polled, at_most.as_ref())
            && error != Errno::INTR
        {
            warn!(%error, "cannot watch idle workers");
            // Not in a circle.
            thread::sleep(FIRST_PAUSE);
        }
        let mut counter = [0; 8];
        let _ = rustix::io::read(&pool.wake, &mut counter);
    }

    /// Notes who is ready, and buries the dead.
    fn look_after_idle(&mut self) {
        let mut dead = Vec::new();
        let mut state = self.broker.pool.lock();
        for index in (0..state.idle.len()).rev() {
            let worker = &mut state.idle[index];
            match look_at(worker) {
                Look::Same => {}
                Look::Ready => {
                    worker.ready = true;
                    self.pause = FIRST_PAUSE;
                    debug!(worker = worker.child.id(), took = ?worker.started.elapsed(), "worker waits for a session");
                }
                Look::Dead => dead.extend(state.idle.remove(index)),
            }
        }
        drop(state);
        for worker in dead {
            if worker.ready {
                debug!(worker = worker.child.id(), "an idle worker died");
            } else {
                self.back_off("it ended, or hung, before it was ready");
            }
            worker.discard();
        }
    }

    /// No storm of workers that cannot start. Sessions still get one each, and hear what is wrong.
    fn back_off(&mut self, reason: &str) {
        if self.pause == FIRST_PAUSE {
            warn!(reason, "workers cannot be started ahead; trying again from time to time");
        } else {
            debug!(reason, "workers still cannot be started ahead");
        }
        self.broker.pool.lock().refill_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

enum Look {
    Same,
    Ready,
    Dead,
}

fn look_at(worker: &Worker) -> Look {
    let mut polled = [PollFd::from_borrowed_fd(worker.channel.as_fd(), PollFlags::IN)];
    let something = poll(&mut polled, Some(&Timespec::default())).is_ok_and(|count| count > 0);
    let late = !worker.ready && worker.started.elapsed() > PATIENCE;
    match something {
        false if late => Look::Dead,
        false => Look::Same,
        // A worker without a session runs nobody's code: it sends whole messages.
        true => match worker.channel.receive() {
            Ok(Some((head, _))) if head.kind == Kind::Ready => Look::Ready,
            _ => Look::Dead,
        },
    }
}

/// A worker process. Its end of the channel is its standard input: the one descriptor that needs no unsafe code to be
/// passed on. All others of this process are close-on-exec.
fn spawn(broker: &Broker) -> io::Result<Worker> {
    let scratch = broker.scratch.worker()?;
    let (channel, theirs) = Channel::pair()?;
    let child =
        confinement::command(&broker.settings, &scratch).stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
    debug!(worker = child.id(), "worker started");
    Ok(Worker { child, channel: Arc::new(channel), scratch, started: Instant::now(), ready: false })
}
