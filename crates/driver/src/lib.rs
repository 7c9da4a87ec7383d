//! `libtelecl.so`: an OpenCL driver (ICD) whose devices are on other machines.
//!
//! A loader finds it through `telecl.icd` and calls the entry points in [`abi`], the only place that
//! sees pointers of the program. They check arguments against the objects in [`api`], which mirror
//! what the program has created, and put messages on the ordered stream of a [`session`]. Nothing
//! waits unless the program can see the result.
//!
//! The library is a guest in somebody else's process: it prints nothing on stdout but what kernels
//! print, never unwinds into C, starts no thread before it has work for one, and survives fork and
//! exit (see [`process`]).

pub mod abi;
mod api;
mod arrival;
mod host;
mod includes;
mod log;
mod options;
mod process;
mod registry;
mod session;
