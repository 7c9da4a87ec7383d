//! The session's state, and the loop that executes its requests in order.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use telecl_net::{
    Deferred, Frame, FrameReceiver, Idle, LearningSpin, Payload, Progress, ReceiveError, processors_are_few,
};
use telecl_opencl::{Device, Library, Platform, Sampler};
use telecl_sys::*;
use telecl_wire::handshake::{Ping, Pong};
use telecl_wire::request::{self, Finish, Kind, Message, Release};
use telecl_wire::{DecodeError, Header, Request, decode};
use tracing::{debug, warn};

use super::account::Account;
use super::backing::Backings;
use super::bounds::{Lease, MOST_OBJECTS, MOST_OPEN_PARTS, too_far};
use super::broker::Broker;
use super::clear::{Clearing, Clears};
use super::completion::Completion;
use super::context::ContextEntry;
use super::ends::Lanes;
use super::event::EventEntry;
use super::gate::{Blocked, Gate};
use super::includes::Includes;
use super::inventory;
use super::kernel::KernelEntry;
use super::link::Link;
use super::memory::MemoryEntry;
use super::moving::Residence;
use super::numa::Nearness;
use super::output::Output;
use super::patience::{Activity, Patience};
use super::program::ProgramSlot;
use super::queue::QueueEntry;
use super::report::is_nvidia;
use super::staging::{Chunk, Pool};
use super::table::Table;
use super::transfer::OpenWrite;
use super::turns::Turns;
use crate::board::{Count, SessionBoard};
use crate::channel::{Limits, MemoryLimit};

/// Everything that belongs to one driver. Only the executor has it; other threads get clones of what they need.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) link: Arc<Link>,
    pub(super) output: Arc<Output>,
    pub(super) completion: Completion,
    /// By index; those without a device that is offered are `None`.
    pub(super) platforms: Vec<Option<Platform>>,
    pub(super) devices: Table<Device>,
    /// Of sub-devices: the root device that each is a part of.
    pub(super) roots: HashMap<u64, u64>,
    /// Root devices that the session counts for.
    pub(super) admitted: HashSet<u64>,
    /// On which processors the worker runs.
    pub(super) nearness: Nearness,
    pub(super) contexts: Table<ContextEntry>,
    pub(super) queues: Table<QueueEntry>,
    pub(super) memory: Table<MemoryEntry>,
    pub(super) samplers: Table<Arc<Sampler>>,
    pub(super) programs: Table<Arc<ProgramSlot>>,
    pub(super) kernels: Table<KernelEntry>,
    pub(super) events: Table<EventEntry>,
    pub(super) includes: Includes,
    pub(super) broker: Arc<Broker>,
    /// Writes of which only some parts have arrived, by their event.
    pub(super) open_writes: HashMap<u64, OpenWrite>,
    /// How many parts of them.
    pub(super) open_parts: usize,
    /// Bulk data that a later request names.
    staged: HashMap<u64, Staged>,
    /// Requests that wait for the payload of the first of them.
    deferred: Deferred<Chunk>,
    /// Queues with a read that is not enqueued as a whole.
    pub(super) open_reads: Vec<u64>,
    /// Whether some queue has commands that were not flushed.
    pub(super) unflushed: bool,
    /// Whether the command at hand is likely to be waited for: nothing has arrived behind it, or a finish.
    pub(super) is_last: bool,
    /// Whether all devices are NVIDIA's, whose events tell of every failure, and whose commands end even if what they
    /// wait for has failed already.
    pub(super) candid: bool,
    activity: Arc<Activity>,
    /// By the places of the devices on the board.
    pub(super) gates: Vec<Gate>,
    /// Events of the program that are not set, and the gates of commands that wait for them.
    pub(super) unset: HashMap<u64, HashSet<usize>>,
    /// What commands wait for of these: by their own event, that of the last, and of all if they are counted.
    pub(super) blocked_events: HashMap<u64, Vec<u64>>,
    pub(super) last_blockers: Vec<u64>,
    pub(super) blocked: Vec<Blocked>,
    pub(super) limits: Limits,
    /// What the broker gets to know.
    pub(super) board: Arc<SessionBoard>,
    /// What memory it has.
    pub(super) account: Arc<Account>,
    /// All memory objects, if the session may be moved, and where they are.
    pub(super) backings: Backings,
    pub(super) residence: Residence,
    pub(super) clearing: Clearing,
    pub(super) clears: Clears,
}

/// After so many requests in a row the executor asks for the time, and after so much time for commands that have ended.
const BUSY: u32 = 16;
const UNSEEN: Duration = Duration::from_micros(200);

/// How long it sleeps between two looks for memory that a large read needs.
const NAP: Duration = Duration::from_micros(50);

/// What a piece of staged data takes up besides its bytes.
const STAGED_ENTRY: usize = 128;

/// How long it waits for a payload before it looks for other things to do.
const PAYLOAD: Duration = Duration::from_millis(5);

/// What comes with a request.
#[derive(Debug)]
enum Content<'r> {
    Nothing,
    /// Is to be read from where the frame came.
    Follows(Payload<'r>),
    /// Came on another stream.
    Here(Chunk),
}

impl Content<'_> {
    fn len(&self) -> usize {
        match self {
            Content::Nothing => 0,
            Content::Follows(payload) => payload.len(),
            Content::Here(chunk) => chunk.len(),
        }
    }

    fn append_to(self, bytes: &mut Vec<u8>) -> Result<(), ReceiveError> {
        match self {
            Content::Nothing => {}
            Content::Follows(mut payload) => payload.append_to(bytes)?,
            Content::Here(chunk) => bytes.extend_from_slice(chunk.bytes()),
        }
        Ok(())
    }
}

/// Bulk data that came ahead, and what it counts for.
#[derive(Debug)]
struct Staged {
    bytes: Vec<u8>,
    lease: Lease,
}

/// Sees to it that others report what ends while the executor waits for the rest of a frame.
#[derive(Debug)]
struct Watch {
    lanes: Lanes,
    link: Arc<Link>,
    turns: Vec<Arc<Turns>>,
}

impl Idle for Watch {
    fn turn(&mut self) -> bool {
        false
    }

    fn sleeping(&mut self) {
        self.link.flush();
        self.lanes.hand_over_all();
        self.turns.iter().for_each(|turns| turns.fall_asleep());
    }
}

/// How a session ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The driver closed the connection.
    Closed,
    /// The driver sent something that is not our protocol.
    Broken(String),
}

impl Session {
    /// Loads the vendor's OpenCL. A node without any still has sessions; all they can do is fail properly.
    pub(crate) fn new(
        link: Arc<Link>,
        output: Arc<Output>,
        broker: Arc<Broker>,
        scratch: PathBuf,
        board: Arc<SessionBoard>,
        limits: Limits,
        memory: &[MemoryLimit],
    ) -> io::Result<Session> {
        let mut platforms = Vec::new();
        let mut devices = Table::new(CL_INVALID_DEVICE);
        match Library::load() {
            Ok(library) => {
                for (platform, found) in inventory::enumerate(library) {
                    let mut any = false;
                    for (id, device) in found.into_iter().filter(|(id, _)| board.place(*id).is_some()) {
                        devices.insert(id, Ok(device));
                        any = true;
                    }
                    platforms.push(any.then_some(platform));
                }
            }
            Err(error) => warn!(session = link.session(), %error, "no OpenCL on this node"),
        }
        link.host_memory().set_device_memory(device_memory(&devices, memory));
        let gate = |place| Gate::new(Turns::new(Arc::clone(&board), place, Arc::clone(&broker)));
        let gates = (0..board.devices().len()).map(gate).collect();
        let candid = devices.iter().all(|(_, device)| is_nvidia(device));
        debug!(session = link.session(), devices = devices.iter().count(), "worker ready");
        let completion = Completion::start(Arc::clone(&link), Arc::clone(&output))?;
        let account = Account::new(Arc::clone(&board), Arc::clone(&broker), completion.clone(), memory);
        Ok(Session {
            completion,
            link,
            output,
            platforms,
            devices,
            roots: HashMap::new(),
            admitted: HashSet::new(),
            nearness: Nearness::new(),
            contexts: Table::new(CL_INVALID_CONTEXT),
            queues: Table::new(CL_INVALID_COMMAND_QUEUE),
            memory: Table::new(CL_INVALID_MEM_OBJECT),
            samplers: Table::new(CL_INVALID_SAMPLER),
            programs: Table::new(CL_INVALID_PROGRAM),
            kernels: Table::new(CL_INVALID_KERNEL),
            events: Table::new(CL_INVALID_EVENT),
            includes: Includes::new(scratch),
            broker,
            open_writes: HashMap::new(),
            open_parts: 0,
            open_reads: Vec::new(),
            staged: HashMap::new(),
            deferred: Deferred::default(),
            unflushed: false,
            is_last: false,
            candid,
            activity: Arc::default(),
            gates,
            unset: HashMap::new(),
            blocked_events: HashMap::new(),
            last_blockers: Vec::new(),
            blocked: Vec::new(),
            limits,
            board,
            account,
            backings: Backings::default(),
            residence: Residence::default(),
            clearing: Clearing::WhereNeeded,
            clears: Clears::default(),
        })
    }

    /// Has it end, or reported, when something takes longer than its limits allow.
    pub(crate) fn keep_to_limits(&self) -> io::Result<()> {
        let (activity, link) = (Arc::clone(&self.activity), Arc::clone(&self.link));
        Patience { limits: self.limits, activity, completion: self.completion.clone(), link }.start()
    }

    /// Executes requests until there are no more.
    pub(crate) fn run(mut self, mut receiver: FrameReceiver) -> Ended {
        let lanes = self.completion.lanes().clone();
        // For waits within a frame; between frames there is more to do, see `rest`.
        let turns = self.gates.iter().map(|gate| Arc::clone(&gate.turns)).collect();
        receiver.set_idle(Watch { lanes: lanes.clone(), link: Arc::clone(&self.link), turns });
        let mut spin = LearningSpin::new();
        let mut busy = 0;
        let mut looked = Instant::now();
        loop {
            let progress = match receiver.poll() {
                Ok(Progress::Nothing) => {
                    busy = 0;
                    if !self.deferred.is_empty() {
                        self.wait_for_payload().map(|()| Progress::Nothing)
                    } else if self.rest(&mut spin) {
                        continue;
                    } else {
                        match self.sleep(&mut receiver) {
                            // It has looked for long enough.
                            Ok(Progress::Nothing) => continue,
                            progress => progress,
                        }
                    }
                }
                progress => progress,
            };
            let executed = match progress {
                Ok(Progress::Ready) => {
                    let is_last = receiver.next_opcode().is_none_or(|opcode| opcode == Finish::OPCODE);
                    self.activity.begin();
                    let taken = self.take(receiver.frame(), is_last);
                    self.activity.end();
                    taken
                }
                Ok(Progress::Nothing) => Ok(()),
                Ok(Progress::Closed) => return Ended::Closed,
                Err(error) => Err(error),
            };
            match executed {
                Ok(()) => {}
                // Bytes that make no sense come from a driver that is still there.
                Err(ReceiveError::Io(error)) if error.kind() != io::ErrorKind::InvalidData => return Ended::Closed,
                Err(ReceiveError::Io(error)) => return Ended::Broken(error.to_string()),
                Err(error) => return Ended::Broken(error.to_string()),
            }
            spin.arrived();
            busy += 1;
            if busy % BUSY == 0 && looked.elapsed() > UNSEEN {
                looked = Instant::now();
                if lanes.look() {
                    self.link.flush();
                }
            }
        }
    }

    /// There is no request: does what has been put off, reports what has ended. `false` if the executor may sleep.
    fn rest(&mut self, spin: &mut LearningSpin) -> bool {
        let (found, open) = self.catch_up();
        if found {
            spin.arrived();
        }
        self.look_after_turns();
        self.leave_if_resting();
        if !(open && processors_are_few()) && spin.turn() {
            return true;
        }
        self.seal_all();
        self.completion.lanes().hand_over_all();
        if open {
            // The driver frees shared memory without a word.
            std::thread::sleep(NAP);
        }
        open
    }

    /// Does what has been put off, and reports what has ended: whether something had, and whether reads are still open.
    pub(super) fn catch_up(&mut self) -> (bool, bool) {
        if self.unflushed {
            self.flush_queues();
        }
        let mut found = self.completion.lanes().look();
        let open = self.go_on_reading(&mut found);
        self.link.flush();
        (found, open)
    }

    /// A request has arrived. It is executed, unless others are put off: then it is, too.
    fn take(&mut self, frame: Frame<'_>, is_last: bool) -> Result<(), ReceiveError> {
        let Frame { opcode, body, mut payload } = frame;
        self.board.step(Count::BytesIn, (Header::LEN + body.len() + payload.len()) as u64);
        if let Some((stream, len)) = payload.take_stream() {
            return self.expect_payload(opcode, body, stream, len);
        }
        if !self.deferred.is_empty() {
            if payload.is_empty() && self.deferred.has_room() {
                self.deferred.push(opcode, body, None);
                return self.execute_deferred();
            }
            while !self.deferred.is_empty() {
                self.wait_for_payload()?;
            }
        }
        self.is_last = is_last;
        self.execute(opcode, body, Content::Follows(payload))
    }

    /// A request whose payload comes on another stream: has it received, and puts the request off until it is there.
    fn expect_payload(&mut self, opcode: u16, body: &[u8], stream: usize, len: usize) -> Result<(), ReceiveError> {
        let queue = match Request::decode(opcode, body)? {
            Request::WriteBuffer(m) => Some(m.command.queue),
            Request::WriteRect(m) => Some(m.command.queue),
            Request::WriteImage(m) => Some(m.command.queue),
            Request::Stage(_) => None,
            _ => return Err(DecodeError::BadHeader.into()),
        };
        while !self.deferred.has_room() {
            self.wait_for_payload()?;
        }
        self.link.host_memory().check(len)?;
        let chunk = match queue {
            None => Pool::plain(&self.link).take_beyond(len),
            Some(queue) => {
                let pool = self.pool(queue);
                loop {
                    match pool.take_set_aside(len) {
                        Some(chunk) => break chunk,
                        // What is received first is given to the device first.
                        None if self.deferred.coming() > 0 => self.wait_for_payload()?,
                        None => break pool.take(len),
                    }
                }
            }
        };
        let coming = self.link.streams().expect(stream, chunk)?;
        self.deferred.push(opcode, body, Some(coming));
        self.execute_deferred()
    }

    /// Waits for the payload of the first request that is put off, and executes what then can be. Returns early if there
    /// is something else to do.
    fn wait_for_payload(&mut self) -> Result<(), ReceiveError> {
        let (found, open) = self.catch_up();
        if let Some(stream) = self.deferred.waits_for()?
            && !found
        {
            self.seal_all();
            self.completion.lanes().hand_over_all();
            self.leave_turns();
            // Its thread may still be asleep.
            if !self.link.streams().help(&self.link, stream) {
                self.deferred.wait(if open { NAP } else { PAYLOAD })?;
            }
        }
        self.execute_deferred()
    }

    /// Executes requests that were put off, as far as their payloads are here.
    fn execute_deferred(&mut self) -> Result<(), ReceiveError> {
        while let Some((opcode, body, chunk)) = self.deferred.pop()? {
            self.is_last = self.deferred.next_opcode().is_none_or(|opcode| opcode == Finish::OPCODE);
            self.execute(opcode, &body, chunk.map_or(Content::Nothing, Content::Here))?;
        }
        Ok(())
    }

    /// One request. Errors are those of the link; what OpenCL refuses is told to the driver, and work goes on.
    fn execute(&mut self, opcode: u16, body: &[u8], payload: Content<'_>) -> Result<(), ReceiveError> {
        if opcode == Ping::OPCODE {
            let Ping { number } = decode(body)?;
            self.link.send(&Pong { number }, &[]);
            return Ok(());
        }
        let request = Request::decode(opcode, body)?;
        self.check_bounds(opcode)?;
        if is_command(&request) {
            self.board.step(Count::Commands, 1);
        }
        match request {
            Request::Stage(m) => self.stage(m.id, payload)?,
            Request::Release(m) => self.release(&m),
            Request::Query(m) => self.query(&m),
            Request::Check(m) => self.check(&m),

            Request::CreateContext(m) => self.create_context(&m),
            Request::CreateSubDevices(m) => self.create_sub_devices(&m),
            Request::ImageFormats(m) => self.image_formats(&m),
            Request::DeviceTimers(m) => self.device_timers(&m),
            Request::CreateQueue(m) => self.create_queue(&m),
            Request::SetDefaultDeviceQueue(m) => self.set_default_device_queue(&m),
            Request::CreateBuffer(m) => {
                let content = self.content(m.staged, payload)?;
                self.create_buffer(&m, content.as_deref());
            }
            Request::CreateSubBuffer(m) => self.create_sub_buffer(&m),
            Request::CreateImage(m) => {
                let content = self.content(m.staged, payload)?;
                self.create_image(&m, content.as_deref());
            }
            Request::CreatePipe(m) => self.create_pipe(&m),
            Request::CreateSampler(m) => self.create_sampler(&m),
            Request::CreateUserEvent(m) => self.create_user_event(&m),
            Request::SetUserEventStatus(m) => self.set_user_event_status(&m),
            Request::WatchEvent(m) => self.watch_event(&m),

            Request::CreateProgramWithSource(m) => {
                let source = self.content(m.staged, payload)?.unwrap_or_default();
                self.create_program_with_source(&m, &source);
            }
            Request::CreateProgramWithIl(m) => {
                let il = self.content(m.staged, payload)?.unwrap_or_default();
                self.create_program_with_il(&m, &il);
            }
            Request::CreateProgramWithBinaries(m) => {
                let binaries = self.content(m.staged, payload)?.unwrap_or_default();
                self.create_program_with_binaries(&m, &binaries);
            }
            Request::CreateProgramWithBuiltInKernels(m) => self.create_program_with_built_in_kernels(&m),
            Request::SetSpecializationConstant(m) => self.set_specialization_constant(&m),
            Request::StoreFile(m) => {
                let content = self.content(m.staged, payload)?.unwrap_or_default();
                self.store_file(&m, &content);
            }
            Request::MakeTree(m) => self.make_tree(&m),
            Request::Build(m) => self.build(&m),
            Request::Compile(m) => self.compile(&m),
            Request::Link(m) => self.link(&m),
            Request::ProgramBinaries(m) => self.program_binaries(&m),
            Request::CreateKernel(m) => self.create_kernel(&m),
            Request::CloneKernel(m) => self.clone_kernel(&m),
            Request::SetArgs(m) => self.set_args(&m),

            Request::RunKernel(m) => self.run_kernel(&m),
            Request::ReadBuffer(m) => self.read_buffer(&m),
            Request::ReadRect(m) => self.read_rect(&m),
            Request::ReadImage(m) => self.read_image(&m),
            Request::WriteBuffer(m) => {
                let chunk = self.chunk(m.command.queue, payload)?;
                self.write_buffer(&m, chunk);
            }
            Request::WriteRect(m) => {
                let chunk = self.chunk(m.command.queue, payload)?;
                self.write_rect(&m, chunk);
            }
            Request::WriteImage(m) => {
                let chunk = self.chunk(m.command.queue, payload)?;
                self.write_image(&m, chunk);
            }
            Request::CopyBuffer(m) => self.copy_buffer(&m),
            Request::CopyRect(m) => self.copy_rect(&m),
            Request::CopyImage(m) => self.copy_image(&m),
            Request::CopyImageToBuffer(m) => self.copy_image_to_buffer(&m),
            Request::CopyBufferToImage(m) => self.copy_buffer_to_image(&m),
            Request::FillBuffer(m) => self.fill_buffer(&m),
            Request::FillImage(m) => self.fill_image(&m),
            Request::Migrate(m) => self.migrate(&m),
            Request::Marker(m) => self.marker(&m),
            Request::Barrier(m) => self.barrier(&m),
            Request::Finish(m) => self.finish(&m),
        }
        Ok(())
    }

    /// Keeps a piece of bulk data until a request names it. That request may never come, so there is a limit.
    fn stage(&mut self, id: u64, payload: Content<'_>) -> Result<(), ReceiveError> {
        let (len, host) = (payload.len(), self.link.host_memory());
        if !matches!(payload, Content::Here(_)) {
            host.check(len)?;
        }
        if self.staged.len() >= MOST_OBJECTS {
            return Err(too_far(&format!("{MOST_OBJECTS} pieces of staged data")));
        }
        let staged =
            self.staged.entry(id).or_insert_with(|| Staged { bytes: Vec::new(), lease: host.lease(STAGED_ENTRY) });
        staged.lease.grow(len);
        payload.append_to(&mut staged.bytes)
    }

    /// An error if the session has too much of something before this request.
    fn check_bounds(&self, opcode: u16) -> Result<(), ReceiveError> {
        let full = |what: &str, count: usize| {
            if count < MOST_OBJECTS { Ok(()) } else { Err(too_far(&format!("{MOST_OBJECTS} {what}"))) }
        };
        full("events", self.events.len())?;
        if self.open_parts >= MOST_OPEN_PARTS {
            return Err(too_far(&format!("{MOST_OPEN_PARTS} parts of writes that are not complete")));
        }
        if !creates(opcode) {
            return Ok(());
        }
        full("contexts", self.contexts.len())?;
        full("queues", self.queues.len())?;
        full("memory objects", self.memory.len())?;
        full("samplers", self.samplers.len())?;
        full("programs", self.programs.len())?;
        full("kernels", self.kernels.len())?;
        full("devices", self.devices.len())
    }

    /// What came with a request: staged before it, or as its payload. `None` if there is neither.
    fn content(&mut self, staged: u64, payload: Content<'_>) -> Result<Option<Vec<u8>>, ReceiveError> {
        if staged != 0 {
            return Ok(Some(self.staged.remove(&staged).map(|staged| staged.bytes).unwrap_or_default()));
        }
        let mut bytes = Vec::new();
        payload.append_to(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// The payload in memory that a device can read; `queue` will have it done.
    fn chunk(&self, queue: u64, payload: Content<'_>) -> Result<Chunk, ReceiveError> {
        let mut payload = match payload {
            Content::Follows(payload) => payload,
            Content::Here(chunk) => return Ok(chunk),
            Content::Nothing => return Ok(self.pool(queue).take(0)),
        };
        let (len, pool) = (payload.len(), self.pool(queue));
        if let Some(slot) = payload.take_slot() {
            return Ok(pool.incoming(slot, len));
        }
        self.link.host_memory().check(len)?;
        let mut chunk = pool.take(len);
        payload.read_into(chunk.bytes_mut())?;
        Ok(chunk)
    }

    /// Host memory for the transfers of a queue. Without such a queue nothing will come of them, but the stream goes on.
    fn pool(&self, queue: u64) -> Pool {
        self.queues.get(queue).map_or_else(|_| Pool::plain(&self.link), |entry| entry.pool.clone())
    }

    /// The vendor keeps an object until the commands that use it have ended.
    fn release(&mut self, request: &Release) {
        let id = request.id;
        match request.kind {
            Kind::Context => self.contexts.remove(id),
            Kind::Queue => self.release_queue(id),
            Kind::Memory => {
                self.memory.remove(id);
                self.account.give_back();
            }
            Kind::Sampler => self.samplers.remove(id),
            Kind::Program => self.programs.remove(id),
            Kind::Kernel => self.kernels.remove(id),
            Kind::Event => self.release_event(id),
            // Root devices are not the driver's to give back.
            Kind::Device if id >= telecl_wire::FIRST_DRIVER_ID => {
                self.devices.remove(id);
                self.roots.remove(&id);
            }
            Kind::Device => {}
            Kind::Tree => self.includes.remove_tree(id),
        }
    }
}

/// What the session may have on all of its devices.
fn device_memory(devices: &Table<Device>, limits: &[MemoryLimit]) -> u64 {
    let most = |(id, device): (u64, &Device)| {
        let all = device.info_number(CL_DEVICE_GLOBAL_MEM_SIZE).unwrap_or(0);
        limits.iter().find(|limit| limit.device == id).map_or(all, |limit| limit.most.min(all))
    };
    devices.iter().map(most).fold(0, u64::saturating_add)
}

/// Whether a request may add an object.
fn creates(opcode: u16) -> bool {
    matches!(
        opcode,
        request::CreateContext::OPCODE
            | request::CreateQueue::OPCODE
            | request::CreateBuffer::OPCODE
            | request::CreateSubBuffer::OPCODE
            | request::CreateImage::OPCODE
            | request::CreatePipe::OPCODE
            | request::CreateSampler::OPCODE
            | request::CreateSubDevices::OPCODE
            | request::CreateProgramWithSource::OPCODE
            | request::CreateProgramWithIl::OPCODE
            | request::CreateProgramWithBinaries::OPCODE
            | request::CreateProgramWithBuiltInKernels::OPCODE
            | request::Link::OPCODE
            | request::CreateKernel::OPCODE
            | request::CloneKernel::OPCODE
    )
}

/// Whether it is a command of the program, or the last part of one.
fn is_command(request: &Request<'_>) -> bool {
    match request {
        Request::WriteBuffer(m) => m.last,
        Request::WriteRect(m) => m.last,
        Request::WriteImage(m) => m.last,
        Request::RunKernel(_)
        | Request::ReadBuffer(_)
        | Request::ReadRect(_)
        | Request::ReadImage(_)
        | Request::CopyBuffer(_)
        | Request::CopyRect(_)
        | Request::CopyImage(_)
        | Request::CopyImageToBuffer(_)
        | Request::CopyBufferToImage(_)
        | Request::FillBuffer(_)
        | Request::FillImage(_)
        | Request::Migrate(_)
        | Request::Marker(_)
        | Request::Barrier(_) => true,
        _ => false,
    }
}
