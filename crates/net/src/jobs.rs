//! What is to be done on the further streams of a session: payloads to send, or to receive.

use std::array;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telecl_wire::MAX_STREAMS;

use crate::idle::{Idle, Spin, processors_are_few};

/// How many jobs a stream may have before a sender waits: one under way, and one that follows without a pause. More would
/// only put small frames further behind.
const ROOM: usize = 2;

/// How long a thread looks for its next job before it sleeps. To be woken takes as long as a good part of a payload.
const SPIN: Duration = Duration::from_micros(50);

/// A queue of jobs for each stream, in one direction. Jobs of a stream are done in order, one at a time: by the stream's
/// own thread, or by one that waits for them and finds that nobody has begun.
///
/// Its lock is held for a few lines, and no other is taken meanwhile.
pub struct StreamJobs<J> {
    state: Mutex<State<J>>,
    /// Wakes the thread of each stream.
    work: [Condvar; MAX_STREAMS],
    /// Wakes those who wait for room, or for the end of what is under way.
    changed: Condvar,
    any: AtomicBool,
}

struct State<J> {
    queues: [Queue<J>; MAX_STREAMS],
    closed: bool,
}

struct Queue<J> {
    stage: Stage,
    jobs: VecDeque<J>,
    /// Whether one is being done.
    busy: bool,
}

/// Whether jobs are taken, and done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Absent,
    Announced,
    Open,
}

impl<J> Queue<J> {
    fn load(&self) -> usize {
        self.jobs.len() + usize::from(self.busy)
    }

    fn begin(&mut self) -> Option<J> {
        let may = self.stage == Stage::Open && !self.busy;
        let job = if may { self.jobs.pop_front() } else { None };
        self.busy |= job.is_some();
        job
    }
}

impl<J> Default for StreamJobs<J> {
    fn default() -> Self {
        let queue = |_| Queue { stage: Stage::Absent, jobs: VecDeque::new(), busy: false };
        StreamJobs {
            state: Mutex::new(State { queues: array::from_fn(queue), closed: false }),
            work: array::from_fn(|_| Condvar::new()),
            changed: Condvar::new(),
            any: AtomicBool::new(false),
        }
    }
}

impl<J> StreamJobs<J> {
    /// Takes jobs for this stream from now on, which are done when it is open; `false` if it did already, or takes none
    /// any more.
    pub fn announce(&self, stream: usize) -> bool {
        self.advance(stream, Stage::Absent, Stage::Announced)
    }

    /// Jobs of this stream are done from now on; `false` if they were already, or none are any more.
    pub fn open(&self, stream: usize) -> bool {
        let opened =
            self.advance(stream, Stage::Announced, Stage::Open) || self.advance(stream, Stage::Absent, Stage::Open);
        if opened {
            self.any.store(true, Ordering::Release);
            self.work[stream].notify_one();
        }
        opened
    }

    /// Forgets a stream that was announced and will not be opened, and its jobs.
    pub fn withdraw(&self, stream: usize) {
        if self.advance(stream, Stage::Announced, Stage::Absent) {
            let forgotten = std::mem::take(&mut self.lock().queues[stream].jobs);
            drop(forgotten);
        }
    }

    fn advance(&self, stream: usize, from: Stage, to: Stage) -> bool {
        let mut state = self.lock();
        let closed = state.closed;
        let queue = state.queues.get_mut(stream).filter(|queue| !closed && queue.stage == from);
        queue.map(|queue| queue.stage = to).is_some()
    }

    /// Whether a stream has been opened.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The stream with the least to do, if need be when it has done some of it; `None` if there is no stream, or none any
    /// more.
    pub fn wait_for_room(&self) -> Option<usize> {
        if !self.any() {
            return None;
        }
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let open = state.queues.iter().enumerate().filter(|(_, queue)| queue.stage == Stage::Open);
            let (stream, queue) = open.min_by_key(|(_, queue)| queue.load())?;
            if queue.load() < ROOM {
                return Some(stream);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Adds a job, and wakes the stream's thread. Gives it back if the stream is not open.
    pub fn put(&self, stream: usize, job: J) -> Result<(), J> {
        let asleep = self.put_quietly(stream, job)?;
        if asleep {
            self.work[stream].notify_one();
        }
        Ok(())
    }

    /// As [`StreamJobs::put`], for a caller that will [help](StreamJobs::help) at once, so that nobody need wake up.
    /// Returns whether nobody is at work there.
    pub fn put_quietly(&self, stream: usize, job: J) -> Result<bool, J> {
        let mut state = self.lock();
        let closed = state.closed;
        match state.queues.get_mut(stream) {
            Some(queue) if queue.stage != Stage::Absent && !closed => {
                queue.jobs.push_back(job);
                Ok(!queue.busy)
            }
            _ => Err(job),
        }
    }

    /// The thread of a stream: does its jobs until there are no more, or one says so by `false`.
    pub fn work(&self, stream: usize, mut job: impl FnMut(J) -> bool) {
        while let Some(next) = self.next(stream) {
            let _end = End(self, stream);
            if !job(next) {
                return;
            }
        }
    }

    /// Does the stream's next job, if nobody is at work there; `false` if there is none to do.
    pub fn help(&self, stream: usize, job: impl FnOnce(J)) -> bool {
        let next = self.lock().queues.get_mut(stream).and_then(Queue::begin);
        let Some(next) = next else { return false };
        let _end = End(self, stream);
        job(next);
        true
    }

    /// Takes no more jobs, and forgets those that nobody has begun. Threads end with the job they are at.
    pub fn close(&self) {
        let mut forgotten = Vec::new();
        let mut state = self.lock();
        state.closed = true;
        state.queues.iter_mut().for_each(|queue| forgotten.extend(queue.jobs.drain(..)));
        drop(state);
        self.work.iter().for_each(Condvar::notify_all);
        self.changed.notify_all();
        // Not under the lock: who knows what a job does when it is dropped.
        drop(forgotten);
    }

    /// After [`StreamJobs::close`]: waits until nobody is at work any more.
    pub fn wait_for_end(&self) {
        let state = self.lock();
        let busy = |state: &mut State<J>| state.queues.iter().any(|queue| queue.busy);
        drop(self.changed.wait_while(state, busy).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for the next job; `None` if there will be none.
    fn next(&self, stream: usize) -> Option<J> {
        let mut spin = if processors_are_few() { None } else { Some(Spin::new(SPIN)) };
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.queues[stream].begin() {
                return Some(job);
            }
            if let Some(turns) = &mut spin {
                drop(state);
                if !turns.turn() {
                    spin = None;
                }
                state = self.lock();
                continue;
            }
            state = self.work[stream].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> fmt::Debug for StreamJobs<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let load: Vec<usize> =
            state.queues.iter().filter(|queue| queue.stage == Stage::Open).map(Queue::load).collect();
        f.debug_struct("StreamJobs").field("load", &load).field("closed", &state.closed).finish()
    }
}

/// The end of a job.
struct End<'j, J>(&'j StreamJobs<J>, usize);

impl<J> Drop for End<'_, J> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let queue = &mut state.queues[self.1];
        queue.busy = false;
        let more = !queue.jobs.is_empty();
        drop(state);
        if more {
            // Its thread may have gone to sleep while another did the job.
            self.0.work[self.1].notify_one();
        }
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn jobs_of_a_stream_are_done_in_order_by_whoever_is_there() {
        let jobs = StreamJobs::default();
        assert!(jobs.open(3) && !jobs.open(3));
        let (done, order) = mpsc::channel();
        thread::scope(|scope| {
            let worker = done.clone();
            scope.spawn(|| {
                let worker = worker;
                jobs.work(3, |job| worker.send(job).is_ok());
            });
            for job in 0..1000 {
                jobs.put(3, job).unwrap();
                if job % 3 == 0 {
                    jobs.help(3, |job| done.send(job).unwrap());
                }
            }
            assert!(order.iter().take(1000).eq(0..1000));
            jobs.close();
        });
    }

    #[test]
    fn a_stream_that_is_not_open_takes_no_job() {
        let jobs = StreamJobs::default();
        assert_eq!((jobs.put(0, 'a'), jobs.put(MAX_STREAMS, 'b')), (Err('a'), Err('b')));
        assert!(!jobs.open(MAX_STREAMS) && !jobs.any());
        assert_eq!(jobs.wait_for_room(), None);
        assert!(jobs.open(0));
        jobs.close();
        assert_eq!((jobs.put(0, 'c'), jobs.wait_for_room()), (Err('c'), None));
        assert!(!jobs.open(1));
    }

    #[test]
    fn jobs_of_a_stream_that_is_announced_wait_until_it_is_open_or_withdrawn() {
        let jobs = StreamJobs::default();
        assert!(jobs.announce(0) && jobs.announce(1) && !jobs.announce(1));
        let token = std::sync::Arc::new(());
        assert!(jobs.put(0, token.clone()).is_ok() && jobs.put(1, token.clone()).is_ok());
        assert!(!jobs.help(0, drop) && jobs.wait_for_room().is_none());
        jobs.withdraw(1);
        assert_eq!(std::sync::Arc::strong_count(&token), 2);
        assert!(jobs.put(1, token.clone()).is_err());
        assert!(jobs.open(0) && !jobs.open(0));
        assert!(jobs.help(0, drop));
        jobs.withdraw(0);
        assert_eq!(jobs.wait_for_room(), Some(0), "what is open stays");
    }

    #[test]
    fn room_is_where_there_is_least_to_do() {
        let jobs = StreamJobs::default();
        assert!(jobs.open(1) && jobs.open(2));
        for (stream, job) in [(1, 'a'), (2, 'b'), (1, 'c'), (2, 'd')] {
            assert_eq!(jobs.wait_for_room(), Some(stream));
            jobs.put(stream, job).unwrap();
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| jobs.wait_for_room());
            assert!(jobs.help(2, |job| assert_eq!(job, 'b')));
            assert_eq!(waiting.join().unwrap(), Some(2));
        });
    }

    #[test]
    fn closing_forgets_what_nobody_has_begun_and_waits_for_the_rest() {
        let jobs = StreamJobs::default();
        assert!(jobs.open(0));
        let token = std::sync::Arc::new(());
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| {
                let finished = finished;
                jobs.work(0, |_token| {
                    begin.send(()).unwrap();
                    finished.recv().is_ok()
                });
            });
            jobs.put(0, token.clone()).unwrap();
            jobs.put(0, token.clone()).unwrap();
            begun.recv().unwrap();
            jobs.close();
            assert_eq!(std::sync::Arc::strong_count(&token), 2);
            let waiting = scope.spawn(|| jobs.wait_for_end());
            finish.send(()).unwrap();
            waiting.join().unwrap();
        });
        assert_eq!(std::sync::Arc::strong_count(&token), 1);
    }
}
