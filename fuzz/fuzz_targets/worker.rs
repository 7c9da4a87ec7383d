//! Whole sessions, played at a real worker over a fake OpenCL that aborts on any misuse.
//!
//! Each input is a session with a worker of its own: a forked process that runs what `telecl worker` runs. It may refuse
//! whatever it likes, and end the session with a reason; it may not crash, hang, or take more memory than it is allowed.
//! Its coverage counters are in memory that both processes share, so that libFuzzer sees what it did.
#![no_main]

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fuzz::play::{self, Script, Step};
use libfuzzer_sys::fuzz_target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use telecl_service::fuzzing::Host;
use telecl_wire::handshake::{Ping, Pong};
use telecl_wire::reply::{Closing, FromWorker, Reply};
use telecl_wire::request::Message;
use telecl_wire::{Header, decode, encode};
use zerocopy::IntoBytes;

/// How long a session may take. One that only waits for itself is over in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the worker may have of address space: stacks of threads that call the vendor have 16 MiB each, and pinned memory
/// 33 MiB for each context.
const ADDRESS_SPACE: u64 = 8 << 30;

/// With what a worker may end: the driver has closed the connection, or broken the protocol.
const CLOSED: i32 = 0;
const BROKEN: i32 = 2;

fuzz_target!(|input: &[u8]| {
    static ONCE: Once = Once::new();
    ONCE.call_once(prepare);
    play_session(input);
});

fn prepare() {
    let library = std::env::var_os("TELECL_FUZZ_OPENCL")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/libfake-opencl.so")), PathBuf::from);
    assert!(library.exists(), "{} is missing: run fuzz/run worker, which makes it", library.display());
    let scratch = std::env::temp_dir().join(format!("telecl-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a directory");
    // SAFETY: nothing else runs yet that could read the environment.
    unsafe {
        std::env::set_var("TELECL_OPENCL_LIBRARY", library);
        std::env::set_var("TELECL_SCRATCH", scratch);
    }
    share_counters();
}

/// libFuzzer counts sessions; this is what they come to.
fn count_messages(messages: usize) {
    const STEP: usize = 100_000;
    static PLAYED: AtomicUsize = AtomicUsize::new(0);
    let before = PLAYED.fetch_add(messages, Ordering::Relaxed);
    if before / STEP != (before + messages) / STEP {
        eprintln!("{} messages played", before + messages);
    }
}

fn play_session(input: &[u8]) {
    let script = play::script(input);
    count_messages(script.messages);
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let (host, channel) = Host::new(play::DEVICES.to_vec()).expect("a channel");
    let theirs = OwnedFd::from(theirs);
    // SAFETY: the child goes on in one thread, and does nothing but become a worker.
    let worker = unsafe { libc::fork() };
    assert!(worker >= 0, "cannot fork");
    if worker == 0 {
        drop((host, ours, theirs));
        become_worker(channel.as_raw_fd());
    }
    drop(channel);
    let worker = Worker {
        pid: worker,
        host,
        socket: ours,
        received: Vec::new(),
        closing: None,
        replies: Vec::new(),
        pong: false,
    };
    worker.host.hand_over(&theirs).expect("a worker that takes its session");
    drop(theirs);
    worker.play(script);
}

/// Never returns.
fn become_worker(channel: RawFd) -> ! {
    // SAFETY: these calls have no preconditions that matter here; the descriptor is open.
    unsafe {
        libc::dup2(channel, 0);
        libc::close(channel);
        // A crash is for whoever waits for us to see.
        for signal in [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGALRM] {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::alarm(0);
        let limit = libc::rlimit { rlim_cur: ADDRESS_SPACE, rlim_max: ADDRESS_SPACE };
        libc::setrlimit(libc::RLIMIT_AS, &limit);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
    }
    telecl_service::worker_main(telecl_service::Clearing::WhereNeeded);
    unreachable!("a worker ends by itself")
}

struct Worker {
    pid: libc::pid_t,
    host: Host,
    socket: UnixStream,
    received: Vec<u8>,
    closing: Option<String>,
    replies: Vec<u64>,
    pong: bool,
}

impl Worker {
    fn play(mut self, script: Script) {
        self.socket.set_nonblocking(true).expect("a socket");
        let deadline = Instant::now() + PATIENCE;
        let mut alive = true;
        for step in script.steps {
            alive = alive
                && match step {
                    Step::Frames(frames) => self.send(&frames, deadline),
                    Step::Reply(call) => self.wait(deadline, |worker| worker.replies.contains(&call)),
                };
        }
        let body = encode(&Ping { number: 7 });
        let ping = [Header::new(Ping::OPCODE, body.len(), 0).as_bytes(), &body].concat();
        let asked = alive && self.send(&ping, deadline);
        let answered = asked && (script.unfinished || self.wait(deadline, |worker| worker.pong));
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        self.wait(deadline, |_| false);
        self.judge(answered);
    }

    /// Sends all of it; `false` if the worker is gone.
    fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> bool {
        while !bytes.is_empty() {
            match (&self.socket).write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.look(PollFlags::IN | PollFlags::OUT, deadline) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes what comes until `done`; `false` if the worker is gone before.
    fn wait(&mut self, deadline: Instant, done: impl Fn(&Worker) -> bool) -> bool {
        while !done(self) {
            if !self.look(PollFlags::IN, deadline) {
                return done(self);
            }
        }
        true
    }

    /// Waits for something to do, and does it; `false` at the end of the connection.
    fn look(&mut self, flags: PollFlags, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // SAFETY: the process is our child, and was not waited for.
            unsafe { libc::kill(self.pid, libc::SIGABRT) };
            panic!("the worker hangs");
        }
        let left = Timespec::try_from(left).expect("a short time");
        let mut polled = [PollFd::new(&self.socket, flags), PollFd::new(&self.host, PollFlags::IN)];
        let _ = poll(&mut polled, Some(&left));
        let asks = !polled[1].revents().is_empty();
        if asks && self.host.attend().is_err() {
            // Its end; what it has sent before is still to be received.
            return self.receive_rest();
        }
        let mut bytes = [0; 64 << 10];
        match (&self.socket).read(&mut bytes) {
            Ok(0) => false,
            Ok(received) => {
                self.received.extend_from_slice(&bytes[..received]);
                self.take_frames();
                true
            }
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn receive_rest(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        while let Ok(received @ 1..) = (&self.socket).read(&mut bytes) {
            self.received.extend_from_slice(&bytes[..received]);
        }
        self.take_frames();
        false
    }

    /// What a worker sends is well formed, whatever it was sent.
    fn take_frames(&mut self) {
        let mut taken = 0;
        while let Some(head) = self.received[taken..].first_chunk() {
            let header = Header::parse(head).expect("a frame header");
            let end = taken + Header::LEN + header.body_len() + header.payload_len();
            if end > self.received.len() {
                break;
            }
            let body = &self.received[taken + Header::LEN..][..header.body_len()];
            match header.opcode.get() {
                Pong::OPCODE => self.pong = true,
                Reply::OPCODE => self.replies.push(decode::<Reply>(body).expect("a reply").call),
                Closing::OPCODE => {
                    self.closing = Some(decode::<Closing<'_>>(body).expect("a reason").reason.to_owned())
                }
                opcode => drop(FromWorker::decode(opcode, body).expect("a message of a worker")),
            }
            taken = end;
        }
        self.received.drain(..taken);
    }

    fn judge(self, answered: bool) {
        let mut status = 0;
        // SAFETY: the process is our child, and was not waited for. libFuzzer's clock may interrupt.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } != self.pid {}
        assert!(libc::WIFEXITED(status), "the worker was killed by signal {}", libc::WTERMSIG(status));
        match libc::WEXITSTATUS(status) {
            CLOSED => assert!(answered, "the worker left without a word"),
            BROKEN => assert!(self.closing.is_some_and(|reason| !reason.is_empty()), "the worker gave no reason"),
            code => panic!("the worker ended with {code}"),
        }
    }
}

/// Puts the coverage counters into memory that a forked process shares: what it counts, we see. Counters in the same page
/// as other data stay where they are.
fn share_counters() {
    const PAGE: usize = 4096;
    let Some((start, len)) = counters() else { return };
    let (start, stop) = (start.next_multiple_of(PAGE), (start + len) / PAGE * PAGE);
    if start >= stop {
        return;
    }
    let len = stop - start;
    // SAFETY: the pages have nothing but counters, which are saved and put back; nobody else runs meanwhile.
    unsafe {
        let saved = std::slice::from_raw_parts(start as *const u8, len).to_vec();
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let mapped = libc::mmap(start as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert!(mapped as usize == start, "cannot share the counters");
        std::ptr::copy_nonoverlapping(saved.as_ptr(), start as *mut u8, len);
    }
}

/// Where this program's counters are, and how many: its section headers say so. (To name the symbols at both ends of the
/// section would keep the linker from telling libFuzzer of them.)
fn counters() -> Option<(usize, usize)> {
    let program = std::fs::read("/proc/self/exe").ok()?;
    let word = |at: usize, size: usize| -> Option<usize> {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(program.get(at..at + size)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let (sections, size, count, names) = (word(0x28, 8)?, word(0x3A, 2)?, word(0x3C, 2)?, word(0x3E, 2)?);
    let names = word(sections + names * size + 0x18, 8)?;
    let section = (0..count).map(|number| sections + number * size).find(|section| {
        let name = word(*section, 4).and_then(|name| program.get(names + name..));
        name.is_some_and(|name| name.starts_with(b"__sancov_cntrs\0"))
    })?;
    let path = std::fs::read_link("/proc/self/exe").ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let first = maps.lines().find(|line| line.ends_with(path.to_str().unwrap_or("?")))?;
    let base = usize::from_str_radix(first.split('-').next()?, 16).ok()?;
    Some((base + word(section + 0x10, 8)?, word(section + 0x20, 8)?))
}
