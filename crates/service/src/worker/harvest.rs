//! Takes the binaries of programs that were built, for the cache; never in the way of the session.
//!
//! Most vendors have the binary at hand. PoCL makes it when it is asked: it compiles every kernel once more, which takes
//! as long as a good part of the build (hashcat's six kernels: 3 s after a build of 10 s), and holds a lock that the
//! first run of a kernel needs. There a program's binary is taken a while after its build, when no other build is under
//! way; at once if another session waits for it, or if the program has just asked for it itself.

use std::collections::HashSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use telecl_opencl::{Device, Program};
use telecl_sys::CL_DEVICE_VERSION;

use super::build::builds_under_way;
use super::cache::Permit;
use super::entry;
use super::link::Link;
use super::program::ProgramSlot;
use super::start::guarded;
use crate::channel::Key;

/// How long a program is left alone after its build where its binary is dear.
const LEISURE: Duration = Duration::from_secs(1);

/// Compilers recurse deeply, and some run when they are asked for a binary.
const STACK: usize = 16 << 20;

/// A program whose binary is to be taken.
#[derive(Debug)]
pub(crate) struct Crop {
    pub(crate) permit: Permit,
    pub(crate) program: Program,
    /// Tells whether the program was built anew meanwhile.
    pub(crate) slot: Arc<ProgramSlot>,
    pub(crate) generation: u64,
    /// What its build reported, without what belongs to this session.
    pub(crate) general: Vec<u8>,
    /// Whether the vendor works for the binary, so that it is not taken at once.
    pub(crate) dear: bool,
}

impl Crop {
    fn take(self) {
        let unchanged = || self.slot.generation() == self.generation;
        if !unchanged() {
            return;
        }
        let entry = entry::executable(&self.general, &self.program);
        // A build that began meanwhile may have changed the binary.
        if let Some(entry) = entry
            && unchanged()
        {
            self.permit.store(&entry);
        }
    }
}

/// Whether a device's driver makes a program's binary when it is asked for it.
pub(crate) fn is_dear_on(device: &Device) -> bool {
    device.info_string(CL_DEVICE_VERSION).is_ok_and(|version| version.contains("PoCL"))
}

enum Note {
    Crop(Box<Crop>),
    Hurry(Key),
}

/// Hands programs to the harvesting thread, which starts with the first.
#[derive(Debug)]
pub(crate) struct Harvester {
    notes: OnceLock<Option<Sender<Note>>>,
    link: Arc<Link>,
}

impl Harvester {
    pub(crate) fn new(link: Arc<Link>) -> Harvester {
        Harvester { notes: OnceLock::new(), link }
    }

    pub(crate) fn add(&self, crop: Crop) {
        self.note(Note::Crop(Box::new(crop)));
    }

    /// The program under this key need not be left alone any longer.
    pub(crate) fn hurry(&self, key: Key) {
        self.note(Note::Hurry(key));
    }

    fn note(&self, note: Note) {
        let notes = self.notes.get_or_init(|| {
            let (notes, read) = mpsc::channel();
            let link = Arc::clone(&self.link);
            let thread = thread::Builder::new().name("telecl-harvest".into()).stack_size(STACK);
            let started = thread.spawn(move || guarded(&link, "harvest", || harvest(&read)));
            started.ok().map(|_| notes)
        });
        if let Some(notes) = notes {
            // The thread ends with the process.
            let _ = notes.send(note);
        }
    }
}

/// What is on the field, and from when on it may be taken.
#[derive(Default)]
struct Field {
    crops: Vec<(Instant, Box<Crop>)>,
    /// What others wait for, and is not here yet.
    wanted: HashSet<Key>,
}

fn harvest(notes: &Receiver<Note>) {
    let mut field = Field::default();
    loop {
        let note = match field.crops.iter().map(|(ripe, _)| *ripe).min() {
            Some(ripe) => notes.recv_timeout(ripe.saturating_duration_since(Instant::now())),
            None => notes.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match note {
            Ok(note) => field.note(note),
            Err(RecvTimeoutError::Timeout) => field.take_one(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Field {
    fn note(&mut self, note: Note) {
        match note {
            Note::Crop(mut crop) => {
                crop.dear &= !self.wanted.remove(&crop.permit.key());
                let leisure = if crop.dear { LEISURE } else { Duration::ZERO };
                self.crops.push((Instant::now() + leisure, crop));
            }
            Note::Hurry(key) => match self.crops.iter_mut().find(|(_, crop)| crop.permit.key() == key) {
                Some((ripe, crop)) => (*ripe, crop.dear) = (Instant::now(), false),
                // Its build is not done yet.
                None => drop(self.wanted.insert(key)),
            },
        }
    }

    fn take_one(&mut self) {
        let now = Instant::now();
        let Some(index) = self.crops.iter().position(|(ripe, _)| *ripe <= now) else { return };
        if self.crops[index].1.dear && builds_under_way() > 0 {
            self.crops[index].0 = now + LEISURE;
        } else {
            self.crops.swap_remove(index).1.take();
        }
    }
}
