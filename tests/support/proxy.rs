//! What stands between a driver and a service, and does to their connections what networks do.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// As by the end of a process that has read everything.
    Fin,
    /// As by a system that knows nothing of the connection.
    Reset,
}

/// Passes connections on. Its threads end with their connections.
#[derive(Clone, Debug)]
pub struct Proxy {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Connections that live, each with both its ends.
    live: Vec<(u64, TcpStream, TcpStream)>,
    next: u64,
    /// Nothing is passed on; connections stay open.
    stalled: bool,
    /// New connections are closed at once.
    refusing: bool,
    /// Every piece waits for so long.
    delay: Duration,
    /// So many bytes are passed on, and then everything is cut in this way.
    budget: Option<(usize, Cut)>,
    cuts: usize,
    /// Bytes so far.
    passed: usize,
}

impl Proxy {
    /// In front of whatever listens at `target`.
    pub fn start(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no proxy: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no proxy: {error}")).to_string();
        let shared = Shared { target: target.to_owned(), state: Mutex::default(), changed: Condvar::new() };
        let proxy = Proxy { address, shared: Arc::new(shared) };
        let accepting = Arc::clone(&proxy.shared);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                accepting.take(near);
            }
        });
        proxy
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Cuts all connections there are.
    pub fn cut(&self, how: Cut) {
        self.shared.cut(&mut self.shared.lock(), how);
    }

    /// Cuts all connections after so many bytes more, wherever in a message that is.
    pub fn cut_after(&self, bytes: usize, how: Cut) {
        self.shared.lock().budget = Some((bytes, how));
    }

    /// How often connections have been cut.
    pub fn cuts(&self) -> usize {
        self.shared.lock().cuts
    }

    /// How many bytes have been passed on, in both directions.
    pub fn passed(&self) -> usize {
        self.shared.lock().passed
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.shared.lock().live.len()
    }

    /// Passes nothing on any more, while connections stay open; or goes on.
    pub fn stall(&self, stalled: bool) {
        self.shared.lock().stalled = stalled;
        self.shared.changed.notify_all();
    }

    /// Closes new connections at once; or takes them again.
    pub fn refuse(&self, refusing: bool) {
        self.shared.lock().refusing = refusing;
    }

    /// Has every piece wait for so long.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }
}

impl Shared {
    fn take(self: &Arc<Self>, near: TcpStream) {
        if self.lock().refusing {
            return;
        }
        // A service that is gone closes connections, too.
        let Ok(far) = TcpStream::connect(&self.target) else { return };
        let clone = |stream: &TcpStream| stream.try_clone();
        let (Ok(one), Ok(other)) = (clone(&near), clone(&far)) else { return };
        let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.live.push((number, one, other));
        drop(state);
        for (from, to) in [(clone(&near), clone(&far)), (clone(&far), clone(&near))] {
            let (Ok(from), Ok(to)) = (from, to) else { return };
            let shared = Arc::clone(self);
            thread::spawn(move || {
                let _ = shared.pass(&from, &to);
                // Both directions end together.
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                shared.lock().live.retain(|(live, ..)| *live != number);
            });
        }
    }

    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut piece = vec![0; 64 << 10];
        loop {
            let read = from.read(&mut piece)?;
            let mut state = self.lock();
            while state.stalled {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let (delay, mut passed, mut cut) = (state.delay, read, None);
            if let Some((left, how)) = &mut state.budget {
                passed = read.min(*left);
                *left -= passed;
                cut = (passed < read).then_some(*how);
            }
            state.passed += passed;
            drop(state);
            if read == 0 {
                return Ok(());
            }
            thread::sleep(delay);
            to.write_all(&piece[..passed])?;
            if let Some(how) = cut {
                let mut state = self.lock();
                if state.budget.take().is_some() {
                    self.cut(&mut state, how);
                }
                return Ok(());
            }
        }
    }

    fn cut(&self, state: &mut State, how: Cut) {
        state.cuts += 1;
        state.budget = None;
        for (_, near, far) in state.live.drain(..) {
            for end in [near, far] {
                // A socket that is told to forget its peer resets the connection, whoever else has it open.
                if how == Cut::Fin || rustix::net::connect_unspec(&end).is_err() {
                    let _ = end.shutdown(Shutdown::Both);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
