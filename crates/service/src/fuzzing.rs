//! The inside of the service, for the fuzz targets in `fuzz/`: what reads a stranger's first words, what reads a worker's
//! messages, and the broker's end of a worker's channel.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use telecl_net::{Compression, Stream, Terms};

use crate::board::SessionBoard;
use crate::broker::introduce;
use crate::channel::{Begin, Channel, Done, Head, Kind, Limits, MemoryWish};
use crate::turn::{Standing, TurnWord};

/// Reads what is on a connection as the broker does; whether it is an introduction.
pub fn introduction(stream: OwnedFd) -> bool {
    introduce(&Stream::from_fd(stream), Duration::from_secs(5))
}

/// Reads all messages from a worker as the broker does, with their contents; how many made sense.
pub fn worker_messages(channel: OwnedFd) -> usize {
    let channel = Channel::from_fd(channel);
    let mut understood = 0;
    while let Ok(Some((head, content))) = channel.receive() {
        understood += usize::from(has_sense(head, &content));
    }
    understood
}

fn has_sense(head: Head, content: &[u8]) -> bool {
    match head.kind {
        Kind::Begin => {
            let mut reader = telecl_wire::Reader::new(content);
            Begin::parse(head.number, &mut reader).is_ok_and(|begin| content.starts_with(&begin.content()))
        }
        Kind::Admit => telecl_wire::decode::<Vec<u64>>(content).is_ok(),
        Kind::Done => Done::parse(content).is_ok_and(|done| content.starts_with(&done.content())),
        Kind::Reserve | Kind::Unreserve => {
            MemoryWish::parse(content).is_ok_and(|wish| wish.amounts.len() <= content.len() / 16)
        }
        _ => true,
    }
}

/// The bytes of sample messages, to start from.
pub fn sample_worker_messages() -> Vec<Vec<u8>> {
    let samples: Vec<(Head, Vec<u8>)> = vec![
        (Head::new(Kind::Ready), vec![]),
        (Head::new(Kind::Lookup).number(1).key([7; 32]), vec![]),
        (Head::new(Kind::Store).key([7; 32]), b"program".to_vec()),
        (Head::new(Kind::Admit).number(2), telecl_wire::encode(&vec![1u64, 2])),
        (Head::new(Kind::Done).number(0), Done { used: Duration::from_millis(3), more: true, brief: false }.content()),
        (Head::new(Kind::Reserve).number(3), MemoryWish::each([1, 2], 4096).content()),
        (Head::new(Kind::Begin).number(4), begin(vec![1, 2]).content()),
    ];
    samples
        .into_iter()
        .map(|(head, content)| {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
            Channel::from_fd(ours.into()).send(head, &content).expect("room for a message");
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut &theirs, &mut bytes).expect("a message");
            bytes
        })
        .collect()
}

fn begin(devices: Vec<u64>) -> Begin {
    let limits = Limits {
        longest_idle: None,
        commands: u32::MAX,
        longest_build: None,
        longest_kernel: None,
        overrun_ends: false,
    };
    Begin { session: 1, compression: Compression::Off, terms: Terms::default(), limits, devices, memory: Vec::new() }
}

/// The broker of one worker: grants whatever it asks for, and has nothing in its cache.
#[derive(Debug)]
pub struct Host {
    channel: Channel,
    board: SessionBoard,
    memfd: OwnedFd,
    begin: Begin,
}

impl Host {
    /// A host, and the worker's standard input.
    pub fn new(devices: Vec<u64>) -> io::Result<(Host, OwnedFd)> {
        let (channel, worker) = Channel::pair()?;
        let (board, memfd) = SessionBoard::create(&devices)?;
        // The devices are the session's alone.
        (0..devices.len()).for_each(|place| TurnWord(board.turn(place)).give(Standing::Resting));
        Ok((Host { channel, board, memfd, begin: begin(devices) }, worker))
    }

    /// Gives the worker its session.
    pub fn hand_over(&self, socket: &OwnedFd) -> io::Result<()> {
        let stream = Stream::from_fd(socket.try_clone()?);
        self.channel.hand_over(&self.begin, &stream, self.memfd.as_fd())
    }

    /// Answers what the worker has asked so far. An error if it is gone.
    pub fn attend(&self) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&now))? > 0 {
            let Some((head, _)) = self.channel.receive()? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let answer = match head.kind {
                Kind::Admit => Kind::Admitted,
                Kind::Lookup | Kind::Await => Kind::Build,
                Kind::Reserve => Kind::Reserved,
                Kind::Wants => {
                    let place = usize::try_from(head.number).unwrap_or(usize::MAX);
                    if place < self.board.devices().len() {
                        TurnWord(self.board.turn(place)).give(Standing::Alone);
                    }
                    continue;
                }
                _ => continue,
            };
            self.channel.send(Head::new(answer).number(head.number).key(head.key), &[])?;
        }
        Ok(())
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
