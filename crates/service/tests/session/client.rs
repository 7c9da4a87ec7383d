//! A driver in miniature: enough to send requests and to sort what comes back.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use telecl_net::{Address, FrameReceiver, FrameSender, Stream};
use telecl_sys::*;
use telecl_wire::handshake::{Compression, Credential, Handshake, Hello, Join, MAGIC, Pong, Welcome};
use telecl_wire::region::Region;
use telecl_wire::reply::*;
use telecl_wire::request::*;
use telecl_wire::{Ids, PROTOCOL_VERSION, WireId};
use tempfile::TempDir;

/// How a client's bytes reach its worker: most tests are played over all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Tcp,
    SharedMemory,
    /// TCP, and every payload that may come on a further stream does.
    Streams,
}

static LINK: Mutex<Link> = Mutex::new(Link::Tcp);

/// The link of new clients.
pub(crate) fn choose(link: Link) {
    *LINK.lock().unwrap() = link;
}

fn chosen() -> Link {
    *LINK.lock().unwrap()
}

/// How many streams a client has that has some.
const STREAMS: usize = 3;

/// A broker process, ended with the test.
pub(crate) struct Broker {
    pub(crate) child: Child,
    pub(crate) address: Address,
    /// Has the Unix socket and the log.
    directory: TempDir,
    // Kept open: the broker may not die of a closed pipe.
    _stdout: BufReader<ChildStdout>,
}

impl Broker {
    pub(crate) fn start() -> Broker {
        match chosen() {
            Link::SharedMemory => Broker::start_at_socket(),
            Link::Tcp | Link::Streams => Broker::start_with("127.0.0.1:0", &[]),
        }
    }

    /// Listens at a Unix socket.
    pub(crate) fn start_at_socket() -> Broker {
        let directory = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", directory.path().join("telecl.sock").display());
        Broker::start_in(directory, &listen, &[], &[])
    }

    pub(crate) fn start_with(listen: &str, devices: &[&str]) -> Broker {
        Broker::start_in(tempfile::tempdir().unwrap(), listen, devices, &[])
    }

    /// Listens at a Unix socket, with a policy.
    pub(crate) fn start_with_policy(policy: &str) -> Broker {
        Broker::start_with_policy_and(policy, &[])
    }

    /// Listens at TCP, with a policy. It has a Unix socket besides.
    pub(crate) fn start_at_tcp_with_policy(policy: &str) -> Broker {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("policy.toml"), policy).unwrap();
        Broker::start_in(directory, "127.0.0.1:0", &[], &[])
    }

    /// As [`Broker::start_with_policy`], with two devices where the vendor is PoCL. One of them computes in the thread
    /// that enqueues, so commands that wait for others are not for it.
    pub(crate) fn start_with_two_devices(policy: &str) -> Broker {
        Broker::start_with_policy_and(policy, &[("POCL_DEVICES", "pthread basic")])
    }

    /// Its workers clear new memory, also that of processors.
    pub(crate) fn start_that_clears() -> Broker {
        Broker::start_with_policy_and("", &[("TELECL_TEST_CLEAR", "1")])
    }

    fn start_with_policy_and(policy: &str, variables: &[(&str, &str)]) -> Broker {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("policy.toml"), policy).unwrap();
        let listen = format!("unix:{}", directory.path().join("telecl.sock").display());
        Broker::start_in(directory, &listen, &[], variables)
    }

    /// Writes another policy, and waits until the service has read it.
    pub(crate) fn change_policy(&self, policy: &str) {
        let read = |log: &str| log.matches("policy read again").count() + log.matches("the policy is wrong").count();
        let before = read(&self.log());
        std::fs::write(self.directory.path().join("policy.toml"), policy).unwrap();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        crate::broker::until("the policy to be read", || read(&self.log()) > before);
    }

    fn start_in(directory: TempDir, listen: &str, devices: &[&str], variables: &[(&str, &str)]) -> Broker {
        let log = File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("serve").arg(listen).args(devices).env("XDG_RUNTIME_DIR", directory.path());
        command.env("TELECL_LOG", "info").envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(log);
        let policy = directory.path().join("policy.toml");
        if policy.exists() {
            command.env("TELECL_TEST_POLICY", policy);
        }
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        Broker { child, address: line.trim().parse().unwrap(), directory, _stdout: stdout }
    }

    /// What broker and workers have logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    pub(crate) fn connect(&self) -> Stream {
        Stream::connect(&self.address, Instant::now() + Duration::from_secs(5)).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.connect(), &self.address)
    }

    /// Process ids of the workers that have a session.
    pub(crate) fn workers(&self) -> Vec<u32> {
        self.children("telecl-worker")
    }

    /// Process ids of the workers that wait for one.
    pub(crate) fn idle_workers(&self) -> Vec<u32> {
        self.children("telecl-idle")
    }

    fn children(&self, name: &str) -> Vec<u32> {
        let id = self.child.id();
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
        // A thread may end while this looks at it; then it has no children.
        let children = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
        children
            .flat_map(|text| text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>())
            .filter(|pid| {
                let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                comm.trim_end() == name
            })
            .collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // It may have been stopped by the test.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- log ----\n{}", self.log());
        }
    }
}

/// Everything that has arrived and was not asked for yet.
#[derive(Default, Debug)]
pub(crate) struct Arrived {
    pub(crate) replies: HashMap<u64, (i32, Vec<u8>)>,
    parts: HashMap<u64, Vec<u8>>,
    pub(crate) completed: HashMap<u64, Completed>,
    /// The order of completions.
    pub(crate) order: Vec<u64>,
    pub(crate) data: HashMap<u64, Vec<(Region, Vec<u8>)>>,
    /// (opcode, status, object)
    pub(crate) failed: Vec<(u16, i32, u64)>,
    /// What each of these says.
    pub(crate) messages: Vec<String>,
    /// What contexts were told.
    pub(crate) notices: Vec<String>,
    pub(crate) reached: Vec<(u64, i32)>,
    pub(crate) output: Vec<u8>,
    pub(crate) closing: Option<String>,
    pub(crate) by_policy: bool,
}

pub(crate) struct Client {
    pub(crate) sender: FrameSender,
    receiver: FrameReceiver,
    pub(crate) arrived: Arrived,
    next: u64,
    /// Encoded welcome.
    welcome: Vec<u8>,
    streams: Vec<Stream>,
    /// How many streams it will join when it has something for them, and how many payloads have come or gone there.
    wanted: usize,
    pub(crate) streamed: usize,
    /// Whether its worker is on its way.
    begun: bool,
}

pub(crate) fn hello() -> Hello<'static> {
    Hello {
        magic: MAGIC,
        protocol: PROTOCOL_VERSION,
        version: "test",
        program: "test",
        pid: std::process::id(),
        compression: Compression::Auto,
        credential: Credential::NONE,
    }
}

impl Client {
    /// As it is after `Welcome`; over a Unix socket with shared memory, if that is the link of the test.
    pub(crate) fn new(stream: Stream, address: &Address) -> Client {
        stream.set_receive_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut sender = FrameSender::new(stream.try_clone().unwrap());
        let mut receiver = FrameReceiver::new(stream);
        sender.send(&hello(), &[]).unwrap();
        let frame = receiver.next_frame().unwrap().unwrap();
        assert!(matches!(Handshake::decode(frame.opcode, frame.body).unwrap(), Handshake::Welcome(_)));
        let welcome = frame.body.to_vec();
        if chosen() == Link::SharedMemory && matches!(address, Address::Unix(_)) {
            (sender, receiver) = telecl_net::share_memory(sender.stream().unwrap()).unwrap().unwrap();
        }
        let wanted = if chosen() == Link::Streams { STREAMS } else { 0 };
        Client {
            sender,
            receiver,
            arrived: Arrived::default(),
            next: telecl_wire::FIRST_DRIVER_ID,
            welcome,
            streams: Vec::new(),
            wanted,
            streamed: 0,
            begun: false,
        }
    }

    /// What joins this session's stream of this number.
    pub(crate) fn ticket(&self, stream: u32) -> Join {
        let Welcome { session, secret, .. } = self.welcome();
        Join { magic: MAGIC, protocol: PROTOCOL_VERSION, session, secret, stream }
    }

    /// A connection to the service that has said this; with its answer.
    pub(crate) fn introduce(&self, join: &Join) -> (Stream, Result<(), String>) {
        let stream = self.sender.stream().unwrap().connect_again(Instant::now() + Duration::from_secs(5)).unwrap();
        stream.set_receive_timeout(Some(Duration::from_secs(60))).unwrap();
        let joined = telecl_net::join(&stream, join).map_err(|error| error.to_string());
        (stream, joined)
    }

    /// Has this many streams.
    pub(crate) fn join(&mut self, count: usize) {
        self.wanted = 0;
        while self.streams.len() < count {
            let (stream, joined) = self.introduce(&self.ticket(self.streams.len() as u32));
            assert_eq!(joined, Ok(()));
            self.streams.push(stream);
        }
    }

    pub(crate) fn stream(&self, number: usize) -> &Stream {
        &self.streams[number]
    }

    /// Sends a frame whose payload will come on a stream.
    pub(crate) fn announce<'a>(&mut self, message: &impl Message<'a>, stream: usize, len: usize) {
        self.sender.push_on_stream(message, stream, len).and_then(|()| self.sender.flush()).unwrap();
    }

    pub(crate) fn welcome(&self) -> Welcome<'_> {
        telecl_wire::decode(&self.welcome).unwrap()
    }

    pub(crate) fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn send<'a>(&mut self, message: &impl Message<'a>) {
        self.begun = true;
        self.sender.send(message, &[]).unwrap();
    }

    pub(crate) fn send_with<'a, M: Message<'a>>(&mut self, message: &M, payload: &[u8]) {
        const BULK: [u16; 4] = [WriteBuffer::OPCODE, WriteRect::OPCODE, WriteImage::OPCODE, Stage::OPCODE];
        if self.begun && self.wanted > 0 {
            self.join(self.wanted);
        }
        self.begun = true;
        if self.streams.is_empty() || !BULK.contains(&M::OPCODE) {
            return self.sender.send(message, payload).unwrap();
        }
        let stream = self.streamed % self.streams.len();
        self.streamed += 1;
        self.announce(message, stream, payload.len());
        self.streams[stream].send_payload(payload).unwrap();
    }

    /// Whether the worker took it; it may be gone.
    pub(crate) fn try_send_with<'a>(&mut self, message: &impl Message<'a>, payload: &[u8]) -> bool {
        self.begun = true;
        self.sender.send(message, payload).is_ok()
    }

    /// Takes the next frame; `false` at the end of the stream.
    pub(crate) fn receive(&mut self) -> bool {
        let next = match self.receiver.next_frame() {
            // A worker that ends while there is something for it to read.
            Err(telecl_net::ReceiveError::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            next => next.unwrap(),
        };
        let Some(mut frame) = next else { return false };
        let (opcode, body) = (frame.opcode, frame.body.to_vec());
        let payload = match frame.payload.take_stream() {
            None => frame.payload.read_to_vec().unwrap(),
            Some((stream, len)) => {
                assert_eq!(opcode, Data::OPCODE);
                let mut payload = vec![0; len];
                self.streams[stream].receive_payload(&mut payload).unwrap();
                self.streamed += 1;
                payload
            }
        };
        let arrived = &mut self.arrived;
        match FromWorker::decode(opcode, &body).unwrap() {
            FromWorker::Reply(reply) => {
                let mut answer = arrived.parts.remove(&reply.call).unwrap_or_default();
                answer.extend(payload);
                arrived.replies.insert(reply.call, (reply.status, answer));
            }
            FromWorker::ReplyPart(part) => arrived.parts.entry(part.call).or_default().extend(payload),
            FromWorker::Completed(completed) => {
                arrived.order.push(completed.event);
                assert!(arrived.completed.insert(completed.event, completed).is_none(), "completed twice");
            }
            FromWorker::StatusReached(reached) => arrived.reached.push((reached.event, reached.status)),
            FromWorker::Data(data) => {
                assert!(!arrived.completed.contains_key(&data.event), "data after completion");
                arrived.data.entry(data.event).or_default().push((data.region, payload));
            }
            FromWorker::Failed(failed) => {
                arrived.failed.push((failed.opcode, failed.status, failed.object));
                arrived.messages.push(failed.message.to_owned());
            }
            FromWorker::ContextNotice(notice) => arrived.notices.push(notice.message.to_owned()),
            FromWorker::Output(_) => arrived.output.extend(payload),
            FromWorker::Closing(closing) => {
                arrived.closing = Some(closing.reason.to_owned());
                arrived.by_policy = closing.policy;
            }
        }
        true
    }

    /// Whether nothing has arrived.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.receiver.look().unwrap() == telecl_net::Progress::Nothing
    }

    /// The next frame must be a pong; its number.
    pub(crate) fn pong(&mut self) -> u64 {
        loop {
            let frame = self.receiver.next_frame().unwrap().unwrap();
            if frame.opcode == Pong::OPCODE {
                return telecl_wire::decode::<Pong>(frame.body).unwrap().number;
            }
            // Writes may have ended already.
            let FromWorker::Completed(completed) = FromWorker::decode(frame.opcode, frame.body).unwrap() else {
                panic!("message {} instead of a pong", frame.opcode)
            };
            self.arrived.order.push(completed.event);
        }
    }

    pub(crate) fn reply(&mut self, call: u64) -> (i32, Vec<u8>) {
        while !self.arrived.replies.contains_key(&call) {
            assert!(self.receive(), "connection closed: {:?}", self.arrived.closing);
        }
        self.arrived.replies.remove(&call).unwrap()
    }

    pub(crate) fn completed(&mut self, event: u64) -> Completed {
        while !self.arrived.completed.contains_key(&event) {
            assert!(self.receive(), "connection closed: {:?}", self.arrived.closing);
        }
        self.arrived.completed[&event].clone()
    }

    /// The bytes of a linear read, after its completion.
    pub(crate) fn linear(&mut self, event: u64, size: usize) -> Vec<u8> {
        assert_eq!(self.completed(event).status, CL_COMPLETE, "{:?}", self.arrived.failed);
        let mut bytes = vec![0; size];
        for (region, part) in self.arrived.data.remove(&event).unwrap_or_default() {
            let start = region.origin[0] as usize;
            assert_eq!(region.size, [part.len() as u64, 1, 1]);
            bytes[start..start + part.len()].copy_from_slice(&part);
        }
        bytes
    }

    pub(crate) fn finish(&mut self, queue: u64) {
        let call = self.id();
        self.send(&Finish { call, queue });
        assert_eq!(self.reply(call).0, CL_SUCCESS);
    }

    pub(crate) fn status_of(&mut self, kind: Kind, id: u64) -> i32 {
        let call = self.id();
        self.send(&Check { call, kind, id });
        self.reply(call).0
    }

    /// A context with the first device, and a queue.
    pub(crate) fn context_and_queue(&mut self, bits: u64) -> (u64, u64) {
        let (platform, device) = {
            let welcome = self.welcome();
            (welcome.platforms[0].index, welcome.platforms[0].devices[0].id)
        };
        let (context, queue) = (self.id(), self.id());
        self.send(&CreateContext { id: context, platform, devices: Ids(&[WireId::new(device)]) });
        let properties = [WireId::new(CL_QUEUE_PROPERTIES.into()), WireId::new(bits)];
        self.send(&CreateQueue { id: queue, context, device, properties: Ids(&properties) });
        assert_eq!(self.status_of(Kind::Queue, queue), CL_SUCCESS);
        (context, queue)
    }

    /// A further queue on the first device.
    pub(crate) fn queue(&mut self, context: u64, bits: u64) -> u64 {
        let (id, device) = (self.id(), self.welcome().platforms[0].devices[0].id);
        let properties = [WireId::new(CL_QUEUE_PROPERTIES.into()), WireId::new(bits)];
        self.send(&CreateQueue { id, context, device, properties: Ids(&properties) });
        id
    }

    pub(crate) fn buffer(&mut self, context: u64, size: u64, content: &[u8]) -> u64 {
        let id = self.id();
        let request = CreateBuffer { id, context, flags: CL_MEM_READ_WRITE, size, staged: 0, properties: Ids(&[]) };
        self.send_with(&request, content);
        id
    }

    /// A program from source, built with `options`.
    pub(crate) fn program(&mut self, context: u64, source: &str, options: &[u8]) -> (u64, i32, Vec<u8>) {
        let (id, call) = (self.id(), self.id());
        self.send_with(&CreateProgramWithSource { id, context, staged: 0 }, source.as_bytes());
        self.send(&Build { call, program: id, devices: Ids(&[]), options });
        let (status, report) = self.reply(call);
        (id, status, report)
    }

    pub(crate) fn kernel(&mut self, program: u64, name: &str) -> u64 {
        let id = self.id();
        self.send(&CreateKernel { id, program, name: name.as_bytes() });
        id
    }

    pub(crate) fn run(&mut self, command: Command_<'_>, kernel: u64, args: Vec<Arg<'_>>, items: u64) {
        let request =
            RunKernel { command, kernel, args, dimensions: 1, offset: None, global: [items, 0, 0], local: None };
        self.send(&request);
    }
}

/// The wire's command; the name is taken by std's here.
pub(crate) type Command_<'a> = telecl_wire::request::Command<'a>;

pub(crate) fn command(queue: u64, event: u64) -> Command_<'static> {
    Command_ { queue, event, seen: true, waits: Ids(&[]) }
}

/// A plain image of two dimensions.
pub(crate) fn flat(width: u64, height: u64) -> ImageDesc {
    ImageDesc {
        kind: CL_MEM_OBJECT_IMAGE2D,
        width,
        height,
        depth: 0,
        array_size: 0,
        row_pitch: 0,
        slice_pitch: 0,
        mip_levels: 0,
        samples: 0,
        parent: 0,
    }
}

pub(crate) fn memory_arg(index: u32, object: u64) -> Arg<'static> {
    Arg { index, form: ArgForm::Memory, size: 8, object, value: &[] }
}

pub(crate) fn bytes_arg(index: u32, value: &[u8]) -> Arg<'_> {
    Arg { index, form: ArgForm::Bytes, size: value.len() as u64, object: 0, value }
}
