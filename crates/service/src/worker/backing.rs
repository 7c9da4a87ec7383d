//! What stands behind a memory object of the driver: an object of the vendor, or, while the session is moved out, its
//! content in host memory and what it takes to make it again.
//!
//! An object that is made of another keeps that one, also if the program has released it: so it can be made again after
//! it. Only the executor has these, so they need no lock.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::rc::{Rc, Weak};

use telecl_opencl::{ClError, ClResult, Context, Device, ImageRegion, Mem, Order, Queue};
use telecl_sys::*;

use super::account::Held;
use super::staging::{Chunk, Pool};
use super::vendor;

/// The context of some objects, which the program may have released, and how to get at their content.
#[derive(Debug)]
pub(crate) struct Home {
    pub(super) context: Context,
    /// One of its devices.
    device: Device,
    pool: Pool,
    /// A queue of our own.
    queue: OnceCell<Queue>,
}

impl Home {
    pub(crate) fn new(context: Context, device: Device, pool: Pool) -> Rc<Home> {
        Rc::new(Home { context, device, pool, queue: OnceCell::new() })
    }

    fn queue(&self) -> ClResult<&Queue> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue);
        }
        let queue = self.context.create_queue(&self.device, 0)?;
        Ok(self.queue.get_or_init(|| queue))
    }
}

/// How an object is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recipe {
    Buffer {
        flags: u64,
        size: usize,
    },
    /// Of a part of another buffer.
    SubBuffer {
        flags: u64,
        origin: usize,
        size: usize,
    },
    Image {
        flags: u64,
        format: cl_image_format,
        desc: cl_image_desc,
        extent: [usize; 3],
        element: usize,
    },
    /// Of a buffer, or of an image.
    ImageOf {
        flags: u64,
        format: cl_image_format,
        desc: cl_image_desc,
    },
    /// Once only: a pipe, whose content nobody can read, or a buffer whose address the program knows.
    Unique,
}

#[derive(Debug)]
pub(crate) struct Backing {
    /// The vendor's; none while it is moved out.
    mem: RefCell<Option<Mem>>,
    /// What new memory had in it when it was moved out.
    content: RefCell<Option<Chunk>>,
    /// How often it was made again: whoever gave the vendor a handle before has to give it another.
    generation: Cell<u64>,
    recipe: Recipe,
    home: Rc<Home>,
    /// What it is made of. After its own object, so that the vendor's objects go in this order.
    parent: Option<Rc<Backing>>,
    /// What new memory takes; of what is made of another, that one has it.
    held: Option<Held>,
}

impl Backing {
    /// Of new memory.
    pub(crate) fn new(mem: Mem, recipe: Recipe, home: &Rc<Home>, held: Held) -> Rc<Backing> {
        held.stays_with(&mem);
        Backing::with(mem, recipe, home, None, Some(held))
    }

    /// Made of another object.
    pub(crate) fn of(parent: &Rc<Backing>, mem: Mem, recipe: Recipe, home: &Rc<Home>) -> Rc<Backing> {
        Backing::with(mem, recipe, home, Some(Rc::clone(parent)), None)
    }

    fn with(mem: Mem, recipe: Recipe, home: &Rc<Home>, parent: Option<Rc<Backing>>, held: Option<Held>) -> Rc<Backing> {
        let (mem, content, generation) = (RefCell::new(Some(mem)), RefCell::default(), Cell::new(0));
        Rc::new(Backing { mem, content, generation, recipe, home: Rc::clone(home), parent, held })
    }

    /// The vendor's object; an error while it is moved out.
    pub(crate) fn mem(&self) -> ClResult<Ref<'_, Mem>> {
        // There is none, because there is no memory for it.
        Ref::filter_map(self.mem.borrow(), Option::as_ref).map_err(|_| ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE))
    }

    pub(crate) fn home(&self) -> &Rc<Home> {
        &self.home
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Reads the content; nothing of what is made of another object.
    fn read(&self) -> ClResult<Option<Chunk>> {
        let (queue, mem, order) = (self.home.queue()?, self.mem()?, Order::new());
        let in_flight = match self.recipe {
            Recipe::Buffer { size, .. } => vendor::read_buffer(queue, &mem, 0, self.home.pool.take_more(size), &order)?,
            Recipe::Image { extent, element, .. } => {
                let size = extent.iter().try_fold(element, |size, side| size.checked_mul(*side));
                let chunk = self.home.pool.take_more(size.ok_or(ClError(CL_INVALID_IMAGE_SIZE))?);
                let all = ImageRegion { origin: [0; 3], region: extent };
                vendor::read_image(queue, &mem, &all, element, chunk, &order)?
            }
            Recipe::SubBuffer { .. } | Recipe::ImageOf { .. } => return Ok(None),
            Recipe::Unique => return Err(ClError(CL_INVALID_OPERATION)),
        };
        queue.flush()?;
        in_flight.wait().map(Some)
    }

    /// Makes the vendor's object again, with its content; what it is made of is there already.
    fn made_again(&self) -> ClResult<Mem> {
        let (content, context) = (self.content.borrow(), &self.home.context);
        let content = content.as_ref().map(Chunk::bytes);
        match self.recipe {
            Recipe::Buffer { flags, size } => context.create_buffer(flags, size, content, &[]),
            Recipe::Image { flags, format, desc, .. } => {
                // The content has no gaps, whatever pitches the program's memory had.
                let desc = cl_image_desc { image_row_pitch: 0, image_slice_pitch: 0, ..desc };
                context.create_image(flags, &format, &desc, None, content, &[])
            }
            Recipe::SubBuffer { flags, origin, size } => self.parent()?.create_sub_buffer(flags, origin, size),
            Recipe::ImageOf { flags, format, desc } => {
                context.create_image(flags, &format, &desc, Some(&*self.parent()?), None, &[])
            }
            Recipe::Unique => Err(ClError(CL_INVALID_OPERATION)),
        }
    }

    fn parent(&self) -> ClResult<Ref<'_, Mem>> {
        self.parent.as_ref().ok_or(ClError(CL_INVALID_MEM_OBJECT))?.mem()
    }

    /// Leaves the devices. Their memory is free when the vendor has let go of it, and not before.
    fn leave(&self, content: Option<Chunk>) {
        let gone = self.mem.take();
        if let (Some(held), Some(mem)) = (&self.held, &gone) {
            held.leave(mem);
        }
        self.content.replace(content);
    }

    /// It and all others are on their devices again.
    fn settle(&self) {
        if let (Some(held), Ok(mem)) = (&self.held, self.mem()) {
            held.stays_with(&mem);
            held.arrive();
        }
        self.content.take();
        self.generation.set(self.generation.get() + 1);
    }
}

/// All that there are, in the order in which they came to be: nothing before what it is made of.
#[derive(Debug, Default)]
pub(crate) struct Backings {
    all: Vec<Weak<Backing>>,
    /// Length at which those are removed next that are gone.
    full: usize,
}

impl Backings {
    pub(crate) fn add(&mut self, backing: &Rc<Backing>) {
        if self.all.len() >= self.full {
            self.all.retain(|backing| backing.strong_count() > 0);
            self.full = 2 * self.all.len() + 64;
        }
        self.all.push(Rc::downgrade(backing));
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = Rc<Backing>> {
        self.all.iter().filter_map(Weak::upgrade)
    }

    /// Whether all of them can be made again.
    pub(crate) fn can_leave(&self) -> bool {
        !self.iter().any(|backing| matches!(backing.recipe, Recipe::Unique))
    }

    /// What takes memory.
    pub(crate) fn for_each_held(&self, visit: impl FnMut(&Held)) {
        let backings: Vec<_> = self.iter().collect();
        backings.iter().filter_map(|backing| backing.held.as_ref()).for_each(visit);
    }

    /// All to host memory, or none. Nothing of the session may be under way.
    pub(crate) fn leave(&self) -> ClResult<()> {
        let backings: Vec<_> = self.iter().collect();
        let contents: ClResult<Vec<_>> = backings.iter().map(|backing| backing.read()).collect();
        // What is made of others goes first.
        for (backing, content) in backings.iter().zip(contents?).rev() {
            backing.leave(content);
        }
        Ok(())
    }

    /// All to their devices, or none.
    pub(crate) fn come_back(&self) -> ClResult<()> {
        let backings: Vec<_> = self.iter().collect();
        for (done, backing) in backings.iter().enumerate() {
            match backing.made_again() {
                Ok(mem) => _ = backing.mem.replace(Some(mem)),
                Err(error) => {
                    backings[..done].iter().rev().for_each(|backing| _ = backing.mem.take());
                    return Err(error);
                }
            }
        }
        backings.iter().for_each(|backing| backing.settle());
        Ok(())
    }
}
