//! Two ends of a line over real sockets, with somebody in between who cuts.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::thread;

use telecl_wire::handshake::Resume;
use telecl_wire::request::Message;
use telecl_wire::{Header, decode};

use super::*;
use crate::Address;

const TERMS: Terms = Terms { heartbeat: Some(Duration::from_secs(5)), grace: Duration::from_secs(20) };

/// Passes connections on to an address; each for as many bytes as there is a budget for, then cuts it.
struct Cutter {
    address: SocketAddr,
    cuts: Arc<AtomicUsize>,
}

impl Cutter {
    /// `budget` has the bytes for the first connection, the second, and so on; those after that live on.
    fn start(target: SocketAddr, mut budget: impl Iterator<Item = usize> + Send + 'static) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(target)) else { return };
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                let left = budget.next().map(|bytes| Arc::new(Mutex::new(bytes)));
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (left, cuts) = (left.clone(), Arc::clone(&counted));
                    thread::spawn(move || pass_on(from, to, left.as_deref(), &cuts));
                }
            }
        });
        Cutter { address, cuts }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, left: Option<&Mutex<usize>>, cuts: &AtomicUsize) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let may = match left {
            None => n,
            Some(left) => {
                let mut left = lock(left);
                let may = n.min(*left);
                *left -= may;
                may
            }
        };
        if to.write_all(&bytes[..may]).is_err() {
            break;
        }
        if may < n {
            cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[derive(Debug)]
struct TestHome(SocketAddr);

fn connect_to(address: SocketAddr, deadline: Instant) -> io::Result<Stream> {
    let address = Address::tcp(address.ip().to_string(), address.port());
    Stream::connect(&address, deadline).map_err(io::Error::other)
}

impl Home for TestHome {
    fn connect(&self, deadline: Instant) -> io::Result<Stream> {
        connect_to(self.0, deadline)
    }

    fn ticket(&self) -> (u64, [u8; 16]) {
        (7, [9; 16])
    }

    fn spawn(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().spawn(body).map(drop)
    }

    fn opened(&self, _socket: BorrowedFd<'_>) {}

    fn closing(&self, _socket: BorrowedFd<'_>) {}
}

/// Both ends of a line, whose connections have so many bytes each.
fn line(terms: Terms, budget: impl Iterator<Item = usize> + Send + 'static) -> (Arc<Lasting>, Arc<Lasting>, Cutter) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let cutter = Cutter::start(listener.local_addr().unwrap(), budget);
    let near = connect_to(cutter.address, Instant::now() + Duration::from_secs(5)).unwrap();
    let driver = Lasting::at_driver(near, Arc::new(TestHome(cutter.address)), MAIN_LINE, terms);
    let far = listener.accept().unwrap().0;
    far.set_nodelay(true).unwrap();
    let worker = Lasting::at_worker(Stream::from_fd(far.into()), MAIN_LINE, terms);
    let at_broker = Arc::downgrade(&worker);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            stream.set_nodelay(true).unwrap();
            let stream = Stream::from_fd(stream.into());
            let Some(worker) = at_broker.upgrade() else { return };
            if let Ok(resume) = read_resume(&stream) {
                assert_eq!((resume.session, resume.secret, resume.stream), (7, [9; 16], MAIN_LINE));
                // It may be cut meanwhile.
                let _ = worker.resume(stream, resume.received);
            }
        }
    });
    (driver, worker, cutter)
}

fn read_resume(stream: &Stream) -> io::Result<Resume> {
    let mut header = [0; Header::LEN];
    stream.receive_payload(&mut header)?;
    let header = Header::parse(&header).unwrap();
    assert_eq!(header.opcode.get(), Resume::OPCODE);
    let mut body = vec![0; header.body_len()];
    stream.receive_payload(&mut body)?;
    Ok(decode(&body).unwrap())
}

/// Bytes that differ from place to place.
fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect()
}

fn receive(line: &Lasting, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(line.receive_all(&mut bytes).unwrap(), len);
    bytes
}

/// Says some things and has them said back.
fn converse(driver: &Arc<Lasting>, worker: &Arc<Lasting>) {
    let said: Vec<Vec<u8>> = [1, 5, 40, 200, 3].iter().map(|&len| noise(len, len as u64 + 1)).collect();
    let expected = said.clone();
    let worker = Arc::clone(worker);
    let echo = thread::spawn(move || {
        for words in &expected {
            let heard = receive(&worker, words.len());
            worker.send(&heard, &[], None).unwrap();
        }
    });
    for words in &said {
        // As a head and a payload.
        let (head, payload) = words.split_at(words.len() / 2);
        driver.send(head, payload, None).unwrap();
        assert_eq!(&receive(driver, words.len()), words);
    }
    echo.join().unwrap();
}

#[test]
fn a_cut_at_any_byte_of_a_conversation_changes_nothing() {
    let mut cuts = 0;
    // All data twice, with ten heads: about 700 bytes.
    for budget in 0..720 {
        let (driver, worker, cutter) = line(TERMS, [budget].into_iter());
        converse(&driver, &worker);
        cuts += cutter.cuts.load(Ordering::Relaxed);
        driver.end();
        worker.end();
    }
    assert!(cuts > 600, "only {cuts} were cut");
}

#[test]
fn a_cut_at_any_byte_of_a_resumption_changes_nothing() {
    // The words that resume a line have about 100 bytes, there and back.
    for budget in 0..200 {
        let (driver, worker, _cutter) = line(TERMS, [150, budget, budget / 2].into_iter());
        converse(&driver, &worker);
        driver.end();
        worker.end();
    }
}

/// Sends pieces of all sizes, and checks what comes.
fn exchange(line: &Arc<Lasting>, ours: u64, theirs: u64, total: usize) {
    let sender = Arc::clone(line);
    let sending = thread::spawn(move || {
        let mut data = noise(total, ours);
        let mut rest = data.as_mut_slice();
        let mut size = 1;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at_mut(size.min(rest.len()));
            let (head, payload) = piece.split_at(piece.len().min(100));
            sender.send(head, payload, None).unwrap();
            // What was sent belongs to the caller again.
            piece.fill(0xee);
            rest = after;
            size = (size * 7 + 13) % 1_500_000;
        }
    });
    let expected = noise(total, theirs);
    let mut rest = expected.as_slice();
    let mut buffer = vec![0; 1 << 20];
    let mut size = 17;
    while !rest.is_empty() {
        let n = size.min(rest.len());
        assert_eq!(line.receive_all(&mut buffer[..n]).unwrap(), n);
        assert!(buffer[..n] == rest[..n], "wrong data");
        rest = &rest[n..];
        size = (size * 5 + 11) % 900_000;
    }
    sending.join().unwrap();
}

#[test]
fn streams_in_both_directions_survive_cuts_at_random() {
    const TOTAL: usize = 48 << 20;
    let budgets = noise(8 * 60, 3);
    let budgets: Vec<usize> =
        budgets.chunks(8).map(|word| (u64::from_le_bytes(word.try_into().unwrap()) % 3_000_000) as usize).collect();
    let (driver, worker, cutter) = line(TERMS, budgets.into_iter());
    let far = Arc::clone(&worker);
    let there = thread::spawn(move || exchange(&far, 5, 6, TOTAL));
    exchange(&driver, 6, 5, TOTAL);
    there.join().unwrap();
    assert!(cutter.cuts.load(Ordering::Relaxed) > 20);
    assert!(lock(&driver.outbound).unsure() < 32 << 20, "what has arrived is forgotten");
}

#[test]
fn a_farewell_is_the_end_at_once() {
    let (driver, worker, _cutter) = line(TERMS, std::iter::empty());
    driver.send(b"last words", &[], None).unwrap();
    driver.leave();
    assert_eq!(receive(&worker, 10), b"last words");
    assert_eq!(worker.receive(&mut [0; 10]).unwrap(), 0);
    assert_eq!(worker.health(), Health::Left);
    assert!(worker.send(b"x", &[], None).is_err());
    assert!(driver.send(b"x", &[], None).is_err());
}

#[test]
fn who_cannot_come_back_gets_an_error_in_both_directions_when_the_grace_ends() {
    let terms = Terms { grace: Duration::from_millis(300), ..TERMS };
    let (driver, _worker, _cutter) = line(terms, std::iter::repeat(0));
    let receiving = Arc::clone(&driver);
    let waiting = thread::spawn(move || receiving.receive(&mut [0; 1]).unwrap_err());
    let begin = Instant::now();
    let error = loop {
        if let Err(error) = driver.send(b"x", &[], None) {
            break error;
        }
    };
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert!(waiting.join().unwrap().to_string().contains("could not be resumed"));
}

#[test]
fn a_silent_peer_is_noticed_and_one_that_says_nothing_new_is_not_silent() {
    let terms = Terms { heartbeat: Some(Duration::from_millis(400)), ..TERMS };
    let (driver, worker, _cutter) = line(terms, std::iter::empty());
    for _ in 0..15 {
        assert!(driver.tend() < Duration::from_millis(400));
        worker.tend();
        thread::sleep(Duration::from_millis(80));
    }
    // From now on nobody tends the worker's end.
    let begin = Instant::now();
    while driver.tend() < Duration::from_millis(400) {
        assert!(begin.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(80));
    }
    driver.give_up_connection();
    converse(&driver, &worker);
}

#[test]
fn a_peer_that_lies_about_what_it_has_ends_the_line() {
    let (driver, worker, _cutter) = line(TERMS, std::iter::empty());
    worker.received.store(100, Ordering::Relaxed);
    worker.say_something(false);
    let error = driver.receive(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

#[test]
fn what_two_sides_agree_on_is_the_shorter_time() {
    let second = Duration::from_secs(1);
    let one = Terms { heartbeat: Some(second), grace: 3 * second };
    let other = Terms { heartbeat: Some(2 * second), grace: 2 * second };
    assert_eq!(one.and(other), Terms { heartbeat: Some(second), grace: 2 * second });
    let none = Terms { heartbeat: None, grace: Duration::ZERO };
    assert_eq!(one.and(none), none);
    assert!(none.is_nothing() && !one.is_nothing());
}
