//! A worker: one session's OpenCL objects, in a process of their own.
//!
//! Threads: the *executor* (the main thread) reads requests and makes the vendor's calls, none of which waits for a
//! device; the *completion* thread tells the driver what has ended; *builds* have a thread each, and what they make is
//! kept by the broker for other sessions; further *streams* have two each, for payloads; the *output* thread passes on what kernels print; the *watcher* ends the process when the driver is gone, or at
//! SIGTERM, whatever the others are doing; the thread that listens to the *broker* waits for another one when it is gone. Nothing is cleaned up at the end: the process's memory and devices go back with it.
//!
//! Everything in a request may be hostile. Ids are looked up in tables, lengths are checked before host memory is lent
//! to the vendor, and what a vendor's driver makes of the rest hurts only this process.

mod account;
mod backing;
mod bounds;
mod broker;
mod build;
mod clear;
mod command;
mod compiler;
mod completion;
mod confine;
mod context;
mod device;
mod ends;
mod entry;
mod event;
mod gate;
mod includes;
mod inventory;
mod kernel;
mod link;
mod memory;
mod moving;
mod numa;
mod output;
mod pace;
mod params;
mod patience;
mod program;
mod query;
mod queue;
mod recipe;
mod report;
mod sampler;
mod sensors;
mod session;
mod staging;
mod start;
mod streams;
mod table;
mod transfer;
mod turns;
mod vendor;
mod watch;

pub use self::clear::Clearing;
pub use self::sensors::sensors_main;
pub use self::start::{inventory_main, worker_main};
