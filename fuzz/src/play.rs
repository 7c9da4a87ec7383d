//! Sequences of requests, made of bytes: mostly ones that a driver could send, with ids that exist and sizes at the edges;
//! some that no driver sends; and some that are no requests at all.

use arbitrary::{Result, Unstructured};
use telecl_sys::*;
use telecl_wire::reply::Format;
use telecl_wire::request::*;
use telecl_wire::{FIRST_DRIVER_ID, Header, Ids, WireId, encode};
use zerocopy::IntoBytes;

/// The root devices of the fake OpenCL.
pub const DEVICES: [u64; 2] = [1, 2];

/// What is sent, and what is waited for before the next.
#[derive(Debug)]
pub enum Step {
    Frames(Vec<u8>),
    /// The answer to a call.
    Reply(u64),
}

/// So many requests follow the first ones, at most.
const MOST: usize = 96;

/// A session, and how many messages it has.
#[derive(Debug, Default)]
pub struct Script {
    pub steps: Vec<Step>,
    pub messages: usize,
    /// Whether a frame says that it is longer than it is: what follows may be taken for a part of it, and more waited for.
    pub unfinished: bool,
}

impl Script {
    fn put<'a, M: Message<'a>>(&mut self, message: &M, payload: &[u8]) {
        let body = encode(message);
        let frame = [Header::new(M::OPCODE, body.len(), payload.len()).as_bytes(), &body, payload].concat();
        self.bytes(&frame);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.messages += 1;
        match self.steps.last_mut() {
            Some(Step::Frames(frames)) => frames.extend_from_slice(bytes),
            _ => self.steps.push(Step::Frames(bytes.to_vec())),
        }
    }
}

/// What there is by now, as far as the one who sends knows.
struct Player<'u> {
    input: Unstructured<'u>,
    script: Script,
    next: u64,
    contexts: Vec<u64>,
    queues: Vec<u64>,
    buffers: Vec<u64>,
    images: Vec<u64>,
    samplers: Vec<u64>,
    programs: Vec<u64>,
    kernels: Vec<u64>,
    events: Vec<u64>,
    devices: Vec<u64>,
    trees: Vec<u64>,
    staged: Vec<u64>,
}

/// Makes a session of any bytes.
pub fn script(input: &[u8]) -> Script {
    let mut player = Player {
        input: Unstructured::new(input),
        script: Script::default(),
        next: FIRST_DRIVER_ID,
        contexts: Vec::new(),
        queues: Vec::new(),
        buffers: Vec::new(),
        images: Vec::new(),
        samplers: Vec::new(),
        programs: Vec::new(),
        kernels: Vec::new(),
        events: Vec::new(),
        devices: DEVICES.to_vec(),
        trees: Vec::new(),
        staged: Vec::new(),
    };
    player.begin();
    for _ in 0..MOST {
        // Bytes are used up.
        if player.input.is_empty() || player.go_on().is_err() {
            break;
        }
    }
    player.script
}

const NOTHING: Ids<'static> = Ids(&[]);

impl Player<'_> {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Two contexts, three queues, memory, and kernels: so that there is something to play with.
    fn begin(&mut self) {
        let mut first = 0;
        for device in DEVICES {
            let (context, devices) = (self.id(), [WireId::new(device)]);
            self.script.put(&CreateContext { id: context, platform: 0, devices: Ids(&devices) }, &[]);
            self.contexts.push(context);
            first = if first == 0 { context } else { first };
        }
        let bits = [
            (1, 0),
            (1, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE),
            (2, CL_QUEUE_PROFILING_ENABLE),
        ];
        for (device, bits) in bits {
            let properties = [u64::from(CL_QUEUE_PROPERTIES), bits].map(WireId::new);
            let (id, context) = (self.id(), self.contexts[device as usize - 1]);
            self.script.put(&CreateQueue { id, context, device, properties: Ids(&properties) }, &[]);
            self.queues.push(id);
        }
        for (context, size) in [(0, 64), (0, 4096), (1, 200_000)] {
            let (id, context) = (self.id(), self.contexts[context]);
            self.script.put(
                &CreateBuffer { id, context, flags: CL_MEM_READ_WRITE, size, staged: 0, properties: NOTHING },
                &[],
            );
            self.buffers.push(id);
        }
        let image = self.id();
        self.script.put(&self.image(image, first, CL_MEM_OBJECT_IMAGE2D, [8, 4, 0]), &[]);
        self.images.push(image);
        let (program, call) = (self.id(), self.id());
        self.script.put(&CreateProgramWithSource { id: program, context: first, staged: 0 }, b"kernel void f() {}");
        self.script.put(&Build { call, program, devices: NOTHING, options: b"" }, &[]);
        self.script.steps.push(Step::Reply(call));
        self.programs.push(program);
        for name in [&b"f"[..], b"u"] {
            let id = self.id();
            self.script.put(&CreateKernel { id, program, name }, &[]);
            self.kernels.push(id);
        }
        let id = self.id();
        self.script.put(&CreateUserEvent { id, context: first }, &[]);
        self.events.push(id);
    }

    fn image(&self, id: u64, context: u64, kind: u32, [width, height, depth]: [u64; 3]) -> CreateImage<'static> {
        let format = Format { order: CL_RGBA, data_type: CL_UNSIGNED_INT8 };
        let desc = ImageDesc {
            kind,
            width,
            height,
            depth,
            array_size: depth,
            row_pitch: 0,
            slice_pitch: 0,
            mip_levels: 0,
            samples: 0,
            parent: 0,
        };
        CreateImage { id, context, flags: CL_MEM_READ_WRITE, format, desc, staged: 0, properties: NOTHING }
    }

    /// One of several, seldom something else.
    fn pick(input: &mut Unstructured<'_>, from: &[u64]) -> Result<u64> {
        let choice: u8 = input.arbitrary()?;
        if from.is_empty() || choice >= 248 {
            return Ok([0, 1, 2, 3, FIRST_DRIVER_ID, FIRST_DRIVER_ID + 1, FIRST_DRIVER_ID + 5, u64::MAX]
                [usize::from(choice % 8)]);
        }
        Ok(from[usize::from(choice) % from.len()])
    }

    /// Sizes and offsets: small, at the edges, and absurd.
    fn number(&mut self) -> Result<u64> {
        const EDGES: [u64; 16] =
            [0, 1, 2, 3, 4, 8, 16, 63, 64, 65, 4096, 65_536, 200_000, 1 << 32, u64::MAX / 2, u64::MAX];
        let choice: u8 = self.input.arbitrary()?;
        match choice {
            0..160 => Ok(EDGES[usize::from(choice) % 10]),
            160..240 => Ok(EDGES[usize::from(choice) % EDGES.len()]),
            _ => self.input.arbitrary(),
        }
    }

    fn triple(&mut self) -> Result<[u64; 3]> {
        Ok([self.number()?, self.number()?, self.number()?])
    }

    /// A place and a size that are often within what is there.
    fn part(&mut self) -> Result<([u64; 3], [u64; 3])> {
        let choice: u8 = self.input.arbitrary()?;
        if choice < 200 {
            let small = |shift: u8, most: u64| u64::from(choice >> shift) % most;
            return Ok(([small(0, 4), small(2, 2), 0], [1 + small(3, 4), 1 + small(5, 2), 1]));
        }
        Ok((self.triple()?, self.triple()?))
    }

    /// Mostly short; sometimes such as goes another way.
    fn payload(&mut self) -> Result<Vec<u8>> {
        let choice: u8 = self.input.arbitrary()?;
        let len = match choice {
            0..120 => usize::from(choice),
            120..200 => [0, 4, 16, 32, 64, 128, 256, 4096][usize::from(choice % 8)],
            200..250 => [4095, 4097, 8192, 65_535, 65_536, 70_000][usize::from(choice % 6)],
            _ => [(1 << 20) - 1, 1 << 20, (1 << 20) + 1][usize::from(choice % 3)],
        };
        Ok(vec![choice; len])
    }

    fn waits(&mut self) -> Result<Vec<WireId>> {
        let count: u8 = self.input.arbitrary()?;
        let count = if count < 160 { 0 } else { usize::from(count % 4) };
        (0..count).map(|_| Self::pick(&mut self.input, &self.events).map(WireId::new)).collect()
    }

    /// A queue, an event that is new, old or none, and whether the program sees it.
    fn command(&mut self) -> Result<(u64, u64, bool)> {
        let queue = Self::pick(&mut self.input, &self.queues)?;
        let choice: u8 = self.input.arbitrary()?;
        let event = match choice {
            0..80 => 0,
            80..240 => {
                let id = self.id();
                self.events.push(id);
                id
            }
            _ => Self::pick(&mut self.input, &self.events)?,
        };
        Ok((queue, event, choice % 2 == 0))
    }

    fn arg<'a>(&mut self, value: &'a [u8]) -> Result<Arg<'a>> {
        let (form, index): (u8, u8) = (self.input.arbitrary()?, self.input.arbitrary()?);
        let form = ArgForm::ALL[usize::from(form) % ArgForm::ALL.len()];
        let objects = match form {
            ArgForm::Sampler | ArgForm::GuessSampler => &self.samplers,
            ArgForm::Queue | ArgForm::GuessQueue => &self.queues,
            _ => &self.buffers,
        };
        let object = Self::pick(&mut self.input, objects)?;
        let index = if index < 240 { u32::from(index % 4) } else { u32::MAX >> (index % 24) };
        let size = match self.input.arbitrary::<u8>()? {
            0..100 => 8,
            100..200 => value.len() as u64,
            _ => self.number()?,
        };
        Ok(Arg { index, form, size, object, value })
    }

    /// Good arguments, mostly.
    fn args<'a>(&mut self, value: &'a [u8]) -> Result<Vec<Arg<'a>>> {
        let choice: u8 = self.input.arbitrary()?;
        if choice < 150 {
            let object = Self::pick(&mut self.input, &self.buffers)?;
            return Ok(vec![
                Arg { index: 0, form: ArgForm::Memory, size: 8, object, value: &[] },
                Arg { index: 1, form: ArgForm::Bytes, size: 4, object: 0, value: &[0; 4] },
                Arg { index: 2, form: ArgForm::Local, size: 64, object: 0, value: &[] },
            ]);
        }
        (0..choice % 5).map(|_| self.arg(value)).collect()
    }

    /// The next request.
    fn go_on(&mut self) -> Result<()> {
        let choice: u8 = self.input.arbitrary()?;
        match choice % 64 {
            0..24 => self.transfer(choice % 24),
            24..34 => self.compute(choice % 64 - 24),
            34..46 => self.create(choice % 64 - 34),
            46..52 => self.release(),
            52..56 => self.user_event(),
            56..60 => self.ask(),
            60..62 => self.include(),
            62 => self.stage(),
            _ => self.nonsense(),
        }
    }

    fn transfer(&mut self, which: u8) -> Result<()> {
        let ((queue, event, seen), waits) = (self.command()?, self.waits()?);
        let command = || Command { queue, event, seen, waits: Ids(&waits) };
        let buffer = Self::pick(&mut self.input, &self.buffers)?;
        match which {
            0..4 => {
                let (offset, size) = (self.number()?, self.number()?);
                self.script.put(&ReadBuffer { command: command(), buffer, offset, size }, &[]);
            }
            4..8 => {
                let (offset, payload) = (self.number()?, self.payload()?);
                let last = self.input.arbitrary::<u8>()? > 40;
                self.script.put(&WriteBuffer { command: command(), buffer, offset, last }, &payload);
            }
            8 | 9 => {
                let ((origin, region), row_pitch, slice_pitch) = (self.part()?, self.number()?, self.number()?);
                self.script.put(&ReadRect { command: command(), buffer, origin, region, row_pitch, slice_pitch }, &[]);
            }
            10 | 11 => {
                let ((origin, region), row_pitch, slice_pitch) = (self.part()?, self.number()?, self.number()?);
                let payload = self.pixels(region, 1)?;
                let last = self.input.arbitrary::<u8>()? > 40;
                self.script.put(
                    &WriteRect { command: command(), buffer, origin, region, row_pitch, slice_pitch, last },
                    &payload,
                );
            }
            12 | 13 => {
                let ((origin, region), image) = (self.part()?, Self::pick(&mut self.input, &self.images)?);
                self.script.put(&ReadImage { command: command(), image, origin, region }, &[]);
            }
            14 | 15 => {
                let ((origin, region), image) = (self.part()?, Self::pick(&mut self.input, &self.images)?);
                let payload = self.pixels(region, 4)?;
                let last = self.input.arbitrary::<u8>()? > 40;
                self.script.put(&WriteImage { command: command(), image, origin, region, last }, &payload);
            }
            16 | 17 => {
                let to = Self::pick(&mut self.input, &self.buffers)?;
                let [from_offset, to_offset, size] = self.triple()?;
                self.script
                    .put(&CopyBuffer { command: command(), from: buffer, to, from_offset, to_offset, size }, &[]);
            }
            18 => {
                let to = Self::pick(&mut self.input, &self.buffers)?;
                let ((from_origin, region), to_origin) = (self.part()?, self.part()?.0);
                let [from_row_pitch, from_slice_pitch, to_row_pitch] = self.triple()?;
                let copy = CopyRect {
                    command: command(),
                    from: buffer,
                    to,
                    from_origin,
                    to_origin,
                    region,
                    from_row_pitch,
                    from_slice_pitch,
                    to_row_pitch,
                    to_slice_pitch: 0,
                };
                self.script.put(&copy, &[]);
            }
            19 => {
                let (from, to) =
                    (Self::pick(&mut self.input, &self.images)?, Self::pick(&mut self.input, &self.images)?);
                let ((from_origin, region), to_origin) = (self.part()?, self.part()?.0);
                self.script.put(&CopyImage { command: command(), from, to, from_origin, to_origin, region }, &[]);
            }
            20 => {
                let image = Self::pick(&mut self.input, &self.images)?;
                let ((origin, region), offset) = (self.part()?, self.number()?);
                if seen {
                    self.script.put(
                        &CopyImageToBuffer {
                            command: command(),
                            from: image,
                            to: buffer,
                            origin,
                            region,
                            to_offset: offset,
                        },
                        &[],
                    );
                } else {
                    self.script.put(
                        &CopyBufferToImage {
                            command: command(),
                            from: buffer,
                            to: image,
                            from_offset: offset,
                            origin,
                            region,
                        },
                        &[],
                    );
                }
            }
            21 | 22 => {
                let (offset, size, length) = (self.number()?, self.number()?, self.number()?);
                let pattern = vec![5; usize::try_from(length % 300).unwrap_or(0)];
                self.script.put(&FillBuffer { command: command(), buffer, pattern: &pattern, offset, size }, &[]);
            }
            _ => {
                let ((origin, region), image) = (self.part()?, Self::pick(&mut self.input, &self.images)?);
                self.script.put(&FillImage { command: command(), image, color: [1; 16], origin, region }, &[]);
            }
        }
        Ok(())
    }

    /// As many bytes as a box has, or others.
    fn pixels(&mut self, region: [u64; 3], element: u64) -> Result<Vec<u8>> {
        let volume = region.iter().try_fold(element, |volume, side| volume.checked_mul(*side));
        match volume {
            Some(volume) if volume <= 4096 && self.input.arbitrary::<u8>()? > 20 => Ok(vec![9; volume as usize]),
            _ => self.payload(),
        }
    }

    fn compute(&mut self, which: u8) -> Result<()> {
        let ((queue, event, seen), waits) = (self.command()?, self.waits()?);
        let command = || Command { queue, event, seen, waits: Ids(&waits) };
        let kernel = Self::pick(&mut self.input, &self.kernels)?;
        let value = [3; 8];
        match which {
            0..4 => {
                let (args, global) = (self.args(&value)?, self.part()?.1);
                let dimensions = match self.input.arbitrary::<u8>()? {
                    choice @ 0..230 => u32::from(choice % 3 + 1),
                    choice => u32::from(choice) << (choice % 25),
                };
                let run = RunKernel { command: command(), kernel, args, dimensions, offset: None, global, local: None };
                self.script.put(&run, &[]);
            }
            4 => {
                let args = self.args(&value)?;
                self.script.put(&SetArgs { kernel, args }, &[]);
            }
            5 => self.script.put(&Marker { command: command() }, &[]),
            6 => self.script.put(&Barrier { command: command() }, &[]),
            7 => {
                let objects = [Self::pick(&mut self.input, &self.buffers)?, Self::pick(&mut self.input, &self.images)?]
                    .map(WireId::new);
                let flags = self.number()? % 8;
                self.script.put(&Migrate { command: command(), objects: Ids(&objects), flags }, &[]);
            }
            _ => {
                let call = self.id();
                self.script.put(&Finish { call, queue }, &[]);
            }
        }
        Ok(())
    }

    fn create(&mut self, which: u8) -> Result<()> {
        // An id that is used again is the driver's own fault, and nobody else's.
        let used = self.input.arbitrary::<u8>()?;
        let mut id = self.id();
        let context = Self::pick(&mut self.input, &self.contexts)?;
        let device = Self::pick(&mut self.input, &self.devices)?;
        let devices = [WireId::new(device)];
        if used > 244 {
            let any = [&self.contexts, &self.queues, &self.buffers, &self.images, &self.programs, &self.kernels];
            id = any[usize::from(used % 6)].last().copied().unwrap_or(id);
        }
        match which {
            0 => {
                let platform = u32::from(used == 0);
                self.script.put(&CreateContext { id, platform, devices: Ids(&devices) }, &[]);
                self.contexts.push(id);
            }
            1 => {
                let bits = self.number()?;
                let list = [u64::from(CL_QUEUE_PROPERTIES), bits, bits, 0].map(WireId::new);
                let count = usize::from(used % 5);
                self.script.put(&CreateQueue { id, context, device, properties: Ids(&list[..count]) }, &[]);
                self.queues.push(id);
            }
            2 | 3 => {
                let (size, payload) = (self.number()?, self.payload()?);
                let (staged, content) = match used % 4 {
                    0 => (Self::pick(&mut self.input, &self.staged)?, &[][..]),
                    1 => (0, &payload[..]),
                    _ => (0, &[][..]),
                };
                let size = if used % 4 == 1 { content.len() as u64 } else { size };
                let flags = if used % 8 == 7 { self.number()? } else { CL_MEM_READ_WRITE };
                self.script.put(&CreateBuffer { id, context, flags, size, staged, properties: NOTHING }, content);
                self.buffers.push(id);
            }
            4 => {
                let parent = Self::pick(&mut self.input, &self.buffers)?;
                let (origin, size) = (self.number()?, self.number()?);
                self.script.put(&CreateSubBuffer { id, parent, flags: 0, origin, size }, &[]);
                self.buffers.push(id);
            }
            5 => {
                let kinds = [
                    CL_MEM_OBJECT_IMAGE1D,
                    CL_MEM_OBJECT_IMAGE2D,
                    CL_MEM_OBJECT_IMAGE3D,
                    CL_MEM_OBJECT_IMAGE1D_ARRAY,
                    CL_MEM_OBJECT_IMAGE2D_ARRAY,
                    CL_MEM_OBJECT_IMAGE1D_BUFFER,
                    0,
                ];
                let (size, payload) = (self.triple()?, self.payload()?);
                let mut image = self.image(id, context, kinds[usize::from(used) % kinds.len()], size);
                if used % 16 == 3 {
                    image.desc.parent = Self::pick(&mut self.input, &self.buffers)?;
                }
                self.script.put(&image, if used % 2 == 0 { &payload } else { &[] });
                self.images.push(id);
            }
            6 => {
                let properties = [0x1152, 1, 0x1153, 0x1130].map(WireId::new);
                let count = usize::from(used % 5);
                let sampler = CreateSampler {
                    id,
                    context,
                    normalized: false,
                    addressing: 0,
                    filter: 0,
                    properties: Ids(&properties[..count]),
                };
                self.script.put(&sampler, &[]);
                self.samplers.push(id);
            }
            7 => {
                let source = [&b"kernel void f() {}"[..], b"error", b"printf", b"", b"\0"][usize::from(used % 5)];
                self.script.put(&CreateProgramWithSource { id, context, staged: 0 }, source);
                self.programs.push(id);
            }
            8 => self.build(used)?,
            9 => {
                let program = Self::pick(&mut self.input, &self.programs)?;
                let name = [&b"f"[..], b"g", b"u", b"", b"f\0", b"nothing"][usize::from(used % 6)];
                self.script.put(&CreateKernel { id, program, name }, &[]);
                self.kernels.push(id);
            }
            10 => {
                let source = Self::pick(&mut self.input, &self.kernels)?;
                self.script.put(&CloneKernel { id, source }, &[]);
                self.kernels.push(id);
            }
            _ => {
                let (call, first_id, room) = (self.id(), self.id(), u32::from(used % 4));
                self.next += 4;
                let properties = [CL_DEVICE_PARTITION_EQUALLY as u64, 1, 0].map(WireId::new);
                let count = usize::from(used % 4);
                self.script.put(
                    &CreateSubDevices { call, device, properties: Ids(&properties[..count]), first_id, room },
                    &[],
                );
                self.devices.extend([first_id, first_id + 1]);
            }
        }
        Ok(())
    }

    fn build(&mut self, used: u8) -> Result<()> {
        let program = Self::pick(&mut self.input, &self.programs)?;
        let (call, id) = (self.id(), self.id());
        let options: &[u8] =
            [&b""[..], b"-DX=1", b"-I \x011\x01", b"\x01", b"a\0b", b"-I \x0199999999999999999999\x01"]
                [usize::from(used % 6)];
        let device = [WireId::new(Self::pick(&mut self.input, &self.devices)?)];
        let devices = if used % 3 == 0 { Ids(&device) } else { NOTHING };
        match used % 5 {
            0 | 1 => self.script.put(&Build { call, program, devices, options }, &[]),
            2 => {
                let header = Self::pick(&mut self.input, &self.programs)?;
                let headers = vec![EmbeddedHeader { program: header, name: b"a.h" }];
                self.script.put(&Compile { call, program, devices, options, headers }, &[]);
            }
            3 => {
                let (context, inputs) = (Self::pick(&mut self.input, &self.contexts)?, [WireId::new(program)]);
                self.script.put(&Link { call, id, context, devices, options, inputs: Ids(&inputs) }, &[]);
                self.programs.push(id);
            }
            _ => self.script.put(&ProgramBinaries { call, program }, &[]),
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let choice: u8 = self.input.arbitrary()?;
        let (kind, ids) = match choice % 12 {
            0 => (Kind::Context, &self.contexts),
            1 => (Kind::Queue, &self.queues),
            2..5 => (Kind::Memory, &self.buffers),
            5 => (Kind::Memory, &self.images),
            6 => (Kind::Sampler, &self.samplers),
            7 => (Kind::Program, &self.programs),
            8 => (Kind::Kernel, &self.kernels),
            9 => (Kind::Event, &self.events),
            10 => (Kind::Device, &self.devices),
            _ => (Kind::Tree, &self.trees),
        };
        let id = Self::pick(&mut self.input, ids)?;
        self.script.put(&Release { kind, id }, &[]);
        Ok(())
    }

    fn user_event(&mut self) -> Result<()> {
        let choice: u8 = self.input.arbitrary()?;
        let event = Self::pick(&mut self.input, &self.events)?;
        match choice % 4 {
            0 => {
                let (id, context) = (self.id(), Self::pick(&mut self.input, &self.contexts)?);
                self.script.put(&CreateUserEvent { id, context }, &[]);
                self.events.push(id);
            }
            1 | 2 => {
                let status = [0, 0, 0, -1, 1, 3, i32::MIN, i32::MAX][usize::from(choice / 4) % 8];
                self.script.put(&SetUserEventStatus { event, status }, &[]);
            }
            _ => {
                let status = [1, 2, 0, 3, -1, i32::MAX][usize::from(choice / 4) % 6];
                self.script.put(&WatchEvent { event, status }, &[]);
            }
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<()> {
        let (choice, call) = (self.input.arbitrary::<u8>()?, self.id());
        let any = [
            &self.contexts,
            &self.queues,
            &self.buffers,
            &self.images,
            &self.samplers,
            &self.programs,
            &self.kernels,
            &self.events,
            &self.devices,
        ];
        let object = Self::pick(&mut self.input, any[usize::from(choice) % any.len()])?;
        let device = Self::pick(&mut self.input, &self.devices)?;
        match choice % 8 {
            0..5 => {
                let target = Target::ALL[usize::from(self.input.arbitrary::<u8>()?) % Target::ALL.len()];
                let param = [
                    0x1030, 0x1080, 0x1093, 0x1100, 0x1101, 0x1102, 0x1111, 0x1160, 0x1167, 0x1181, 0x1190, 0x11B0,
                    0x11D2, 0x11D3,
                ][usize::from(self.input.arbitrary::<u8>()? % 14)];
                let input = vec![1; usize::from(choice % 32)];
                self.script.put(
                    &Query { call, target, object, device, index: u32::from(choice % 5), param, input: &input },
                    &[],
                );
            }
            5 => {
                let kind = Kind::ALL[usize::from(choice) % Kind::ALL.len()];
                self.script.put(&Check { call, kind, id: object }, &[]);
            }
            6 => self.script.put(&ImageFormats { call, context: object, flags: 1, kind: CL_MEM_OBJECT_IMAGE2D }, &[]),
            _ => self.script.put(&DeviceTimers { call, device }, &[]),
        }
        Ok(())
    }

    fn include(&mut self) -> Result<()> {
        let choice: u8 = self.input.arbitrary()?;
        // SHA-256 of "x".
        const X: [u8; 32] = [
            0x2d, 0x71, 0x16, 0x42, 0xb7, 0x26, 0xb0, 0x44, 0x01, 0x62, 0x7c, 0xa9, 0xfb, 0xac, 0x32, 0xf5, 0xc8, 0x53,
            0x0f, 0xb1, 0x90, 0x3c, 0xc4, 0xdb, 0x02, 0x25, 0x87, 0x17, 0x92, 0x1a, 0x48, 0x81,
        ];
        match choice % 3 {
            0 => self.script.put(&StoreFile { hash: X, staged: 0 }, if choice > 30 { b"x" } else { b"y" }),
            _ => {
                let tree = 1 + u64::from(choice % 4);
                let path = ["a.h", "deep/er/b.h", "../up.h", "/etc/passwd", "", "a//b", "a\0b", "."]
                    [usize::from(choice / 4) % 8];
                let files = (0..choice % 4).map(|_| TreeFile { path, hash: X }).collect();
                self.script.put(&MakeTree { tree, files }, &[]);
                self.trees.push(tree);
            }
        }
        Ok(())
    }

    fn stage(&mut self) -> Result<()> {
        let id = if self.input.arbitrary::<bool>()? { self.id() } else { Self::pick(&mut self.input, &self.staged)? };
        let payload = self.payload()?;
        self.script.put(&Stage { id }, &payload);
        self.staged.push(id);
        Ok(())
    }

    /// Something that is no request, or not all of one.
    fn nonsense(&mut self) -> Result<()> {
        let choice: u8 = self.input.arbitrary()?;
        if choice < 192 {
            // Most sessions go on.
            return self.ask();
        }
        let opcode = Request::OPCODES[usize::from(self.input.arbitrary::<u8>()?) % Request::OPCODES.len()];
        let body = self.input.bytes(usize::from(choice % 32).min(self.input.len()))?.to_vec();
        let mut header = Header::new(opcode, body.len(), usize::from(choice % 3));
        if choice % 7 == 0 {
            header.flags.set(u16::from(choice % 8));
        }
        if choice % 11 == 0 {
            header.body_len.set(u32::MAX >> (choice % 32));
            self.script.unfinished |= header.body_len() > body.len();
        }
        self.script.bytes(&[header.as_bytes(), &body, &[0; 2][..usize::from(choice % 3)]].concat());
        Ok(())
    }
}
