//! Built programs, kept for all sessions of the node: in memory, and in a directory that outlives the service.
//!
//! Workers ask for a program by a key that stands for everything its binary depends on. The first to ask is told to
//! build it; others who ask meanwhile wait for the result, so that the compiler runs once. What a worker hands in is
//! native code, made in a process that runs its tenant's code: it is given to sessions of the same *trust domain* only,
//! which is part of the name under which it is kept, and which the broker, not the worker, decides.

mod disk;
mod memory;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tracing::debug;

use self::disk::Disk;
use self::memory::Memory;
use super::mailbox::Mailbox;
use crate::channel::Key;

/// What is kept in memory, so that sessions which start together need no file.
const MOST_MEMORY: usize = 64 << 20;

/// How many programs may be under way, and how many workers may wait for one: no tenant takes more memory than that.
/// Beyond it everybody builds for themselves.
const MOST_UNDERWAY: usize = 4096;

/// An answer to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Here it is.
    Hit(u64, Arc<[u8]>),
    /// It is yours to build.
    Build(u64),
}

/// All programs that are kept. Its lock is held for a few lines; that of a [`Mailbox`] may be taken meanwhile, and files
/// are read and written without it.
#[derive(Debug)]
pub(crate) struct Cache {
    state: Mutex<State>,
    disk: Option<Disk>,
    next_client: AtomicU64,
}

#[derive(Debug)]
struct State {
    memory: Memory,
    /// What is being looked for in the directory, or built.
    underway: HashMap<Key, Underway>,
}

#[derive(Debug)]
struct Underway {
    /// Who builds it; `None` if all who want it hope for somebody else.
    by: Option<Party>,
    waiting: VecDeque<(Party, u64)>,
}

/// A worker as the cache sees it.
#[derive(Clone, Debug)]
struct Party {
    id: u64,
    mailbox: Arc<Mailbox<Answer>>,
}

/// Where a program that is looked for stands.
enum Seek {
    Found,
    /// Somebody else looks for it, or builds it.
    Waits,
    /// This worker is the first to ask.
    Mine,
    Crowded,
}

impl Underway {
    fn is_by(&self, party: &Party) -> bool {
        self.by.as_ref().is_some_and(|by| by.id == party.id)
    }
}

impl State {
    fn is_by(&self, name: &Key, party: &Party) -> bool {
        self.underway.get(name).is_some_and(|underway| underway.is_by(party))
    }

    /// Whoever was to bring a program has given up: the next one who waits builds it.
    fn pass_on(&mut self, name: &Key) {
        let Some(underway) = self.underway.get_mut(name) else { return };
        match underway.waiting.pop_front() {
            Some((party, number)) => {
                party.mailbox.put(Answer::Build(number));
                underway.by = Some(party);
            }
            None => drop(self.underway.remove(name)),
        }
    }
}

impl Cache {
    /// With a directory, or in memory only.
    pub(crate) fn new(directory: Option<&Path>, most_bytes: u64) -> Cache {
        let state = State { memory: Memory::new(MOST_MEMORY), underway: HashMap::new() };
        let disk = directory.map(|directory| Disk::new(directory, most_bytes));
        Cache { state: Mutex::new(state), disk, next_client: AtomicU64::new(0) }
    }

    /// For a worker whose session belongs to `domain`; answers come to the mailbox.
    pub(crate) fn client<'c>(&'c self, session: u64, domain: &'c str, mailbox: Arc<Mailbox<Answer>>) -> Client<'c> {
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        Client { cache: self, session, domain, party: Party { id, mailbox } }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One worker's use of the cache. When it is dropped, whoever waits for what it has not built builds it instead.
#[derive(Debug)]
pub(crate) struct Client<'c> {
    cache: &'c Cache,
    session: u64,
    domain: &'c str,
    party: Party,
}

impl Client<'_> {
    /// Answers with `Hit` or `Build`: at once, or when whoever builds it has ended.
    pub(crate) fn lookup(&self, number: u64, key: Key) {
        let name = self.name(key);
        match self.seek(number, name, Some(&self.party)) {
            Seek::Found => self.log("program found", &name),
            Seek::Waits => self.log("program is being built by another session", &name),
            Seek::Crowded => self.party.mailbox.put(Answer::Build(number)),
            Seek::Mine => match self.cache.disk.as_ref().and_then(|disk| disk.read(&name)) {
                Some(content) => {
                    self.log("program found on disk", &name);
                    let content = Arc::from(content);
                    self.party.mailbox.put(Answer::Hit(number, Arc::clone(&content)));
                    self.resolve(&name, &content);
                }
                None => {
                    self.log("program will be built", &name);
                    self.party.mailbox.put(Answer::Build(number));
                }
            },
        }
    }

    /// Answers with `Hit` when there is one, without building it; with `Build` if somebody who did gives up.
    pub(crate) fn wait(&self, number: u64, key: Key) {
        let name = self.name(key);
        match self.seek(number, name, None) {
            Seek::Found => self.log("program found", &name),
            Seek::Mine => match self.cache.disk.as_ref().and_then(|disk| disk.read(&name)) {
                Some(content) => {
                    self.log("program found on disk", &name);
                    self.resolve_as(None, &name, &Arc::from(content));
                }
                None => self.log("program is hoped for", &name),
            },
            Seek::Waits | Seek::Crowded => {}
        }
    }

    /// Notes that this worker wants the program, and by whom it is built if it is nowhere.
    fn seek(&self, number: u64, name: Key, by: Option<&Party>) -> Seek {
        let mut state = self.cache.lock();
        if let Some(content) = state.memory.get(&name) {
            self.party.mailbox.put(Answer::Hit(number, content));
            return Seek::Found;
        }
        let crowded = state.underway.len() >= MOST_UNDERWAY;
        match state.underway.entry(name) {
            Entry::Occupied(underway) if underway.get().waiting.len() >= MOST_UNDERWAY => Seek::Crowded,
            Entry::Occupied(mut underway) if by.is_some() && underway.get().by.is_none() => {
                underway.get_mut().by = by.cloned();
                Seek::Mine
            }
            Entry::Occupied(mut underway) => {
                underway.get_mut().waiting.push_back((self.party.clone(), number));
                Seek::Waits
            }
            Entry::Vacant(_) if crowded => Seek::Crowded,
            Entry::Vacant(vacant) => {
                let waiting =
                    if by.is_none() { VecDeque::from([(self.party.clone(), number)]) } else { VecDeque::new() };
                vacant.insert(Underway { by: by.cloned(), waiting });
                Seek::Mine
            }
        }
    }

    /// Keeps what the worker has built, unless there is something already, or somebody else is at it.
    pub(crate) fn store(&self, key: Key, content: Vec<u8>) {
        let name = self.name(key);
        let content = Arc::from(content);
        if self.resolve(&name, &content) {
            debug!(session = self.session, program = %short(&name), bytes = content.len(), "program stored");
            if let Some(disk) = &self.cache.disk {
                disk.write(&name, &content);
            }
        }
    }

    /// The worker could not build it; the next one who waits tries.
    pub(crate) fn failed(&self, key: Key) {
        let name = self.name(key);
        let mut state = self.cache.lock();
        if state.is_by(&name, &self.party) {
            state.pass_on(&name);
        }
    }

    /// The worker has built it and has nothing to keep, or not soon. Nor would the others: each builds it.
    pub(crate) fn unkept(&self, key: Key) {
        let name = self.name(key);
        let mut state = self.cache.lock();
        if !state.is_by(&name, &self.party) {
            return;
        }
        let waiting = state.underway.remove(&name).map(|underway| underway.waiting).unwrap_or_default();
        drop(state);
        self.log("program built, but not kept", &name);
        for (party, number) in waiting {
            party.mailbox.put(Answer::Build(number));
        }
    }

    /// What is kept is of no use: a vendor has refused it.
    pub(crate) fn forget(&self, key: Key) {
        let name = self.name(key);
        self.log("program dropped", &name);
        self.cache.lock().memory.remove(&name);
        if let Some(disk) = &self.cache.disk {
            disk.remove(&name);
        }
    }

    /// Gives the program to all who wait for it; `false` if it is not this worker's to give.
    fn resolve(&self, name: &Key, content: &Arc<[u8]>) -> bool {
        self.resolve_as(Some(&self.party), name, content)
    }

    fn resolve_as(&self, by: Option<&Party>, name: &Key, content: &Arc<[u8]>) -> bool {
        let mut state = self.cache.lock();
        let known = state.memory.get(name).is_some();
        let is_by = |underway: &Underway| match (&underway.by, by) {
            (Some(builder), Some(by)) => builder.id == by.id,
            // Nobody builds it: whoever has it is welcome.
            (builder, _) => builder.is_none(),
        };
        match state.underway.entry(*name) {
            Entry::Occupied(underway) if is_by(underway.get()) => {
                for (party, number) in underway.remove().waiting {
                    party.mailbox.put(Answer::Hit(number, Arc::clone(content)));
                }
            }
            Entry::Vacant(_) if !known => {}
            _ => return false,
        }
        state.memory.put(*name, Arc::clone(content));
        true
    }

    /// What the program is kept under: the worker's key, in the session's trust domain.
    fn name(&self, key: Key) -> Key {
        let mut hash = Sha256::new();
        hash.update((self.domain.len() as u64).to_le_bytes());
        hash.update(self.domain);
        hash.update(key);
        hash.finalize().into()
    }

    fn log(&self, what: &str, name: &Key) {
        debug!(session = self.session, program = %short(name), "{what}");
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        for underway in state.underway.values_mut() {
            underway.waiting.retain(|(party, _)| party.id != self.party.id);
        }
        state.underway.retain(|_, underway| underway.by.is_some() || !underway.waiting.is_empty());
        let unfinished = state.underway.iter().filter(|(_, underway)| underway.is_by(&self.party));
        let unfinished: Vec<Key> = unfinished.map(|(name, _)| *name).collect();
        for name in unfinished {
            state.pass_on(&name);
        }
    }
}

/// Enough of a name to tell programs apart in a log.
fn short(name: &Key) -> String {
    hex(&name[..6])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client<'c>(cache: &'c Cache, domain: &'c str) -> (Client<'c>, Arc<Mailbox<Answer>>) {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        (cache.client(1, domain, Arc::clone(&mailbox)), mailbox)
    }

    fn hit(number: u64, content: &[u8]) -> Answer {
        Answer::Hit(number, Arc::from(content))
    }

    #[test]
    fn the_first_builds_and_the_others_wait_for_it() {
        let cache = Cache::new(None, 0);
        let (first, to_first) = client(&cache, "a");
        let (second, to_second) = client(&cache, "a");
        let (third, to_third) = client(&cache, "a");
        let key = [1; 32];
        first.lookup(10, key);
        assert_eq!(to_first.take(), [Answer::Build(10)]);
        second.lookup(20, key);
        third.lookup(30, key);
        // Also a second time in the same session.
        first.lookup(11, key);
        assert_eq!((to_first.take().len(), to_second.take().len()), (0, 0));
        first.store(key, b"program".to_vec());
        assert_eq!(to_first.take(), [hit(11, b"program")]);
        assert_eq!(to_second.take(), [hit(20, b"program")]);
        assert_eq!(to_third.take(), [hit(30, b"program")]);
        second.lookup(21, key);
        assert_eq!(to_second.take(), [hit(21, b"program")]);
        second.lookup(22, [2; 32]);
        assert_eq!(to_second.take(), [Answer::Build(22)]);
    }

    #[test]
    fn a_builder_that_fails_or_dies_is_followed_by_the_next() {
        let cache = Cache::new(None, 0);
        let key = [1; 32];
        let (first, to_first) = client(&cache, "a");
        let (second, to_second) = client(&cache, "a");
        let (third, to_third) = client(&cache, "a");
        let (fourth, to_fourth) = client(&cache, "a");
        first.lookup(1, key);
        for (client, number) in [(&second, 2), (&third, 3), (&fourth, 4)] {
            client.lookup(number, key);
        }
        first.failed(key);
        assert_eq!(to_first.take().front(), Some(&Answer::Build(1)));
        assert_eq!(to_second.take(), [Answer::Build(2)]);
        // Somebody who waits may die as well.
        drop(third);
        drop(second);
        assert_eq!(to_third.take(), []);
        assert_eq!(to_fourth.take(), [Answer::Build(4)]);
        drop(fourth);
        first.lookup(5, key);
        assert_eq!(to_first.take(), [Answer::Build(5)]);
    }

    #[test]
    fn whoever_would_rather_not_build_waits_for_one_who_does() {
        let cache = Cache::new(None, 0);
        let key = [1; 32];
        let (hoping, to_hoping) = client(&cache, "a");
        let (other, to_other) = client(&cache, "a");
        let (builder, to_builder) = client(&cache, "a");
        hoping.wait(1, key);
        other.wait(2, key);
        assert_eq!((to_hoping.take().len(), to_other.take().len()), (0, 0));
        builder.lookup(3, key);
        assert_eq!(to_builder.take(), [Answer::Build(3)]);
        // Out of patience, but now there is somebody.
        hoping.lookup(1, key);
        assert_eq!(to_hoping.take(), []);
        builder.store(key, b"program".to_vec());
        assert_eq!(to_hoping.take(), [hit(1, b"program"), hit(1, b"program")]);
        assert_eq!(to_other.take(), [hit(2, b"program")]);
        other.wait(4, key);
        assert_eq!(to_other.take(), [hit(4, b"program")]);
        // Nobody comes.
        hoping.wait(5, [2; 32]);
        other.wait(6, [2; 32]);
        hoping.lookup(5, [2; 32]);
        assert_eq!(to_hoping.take(), [Answer::Build(5)]);
        drop(hoping);
        assert_eq!(to_other.take(), [Answer::Build(6)]);
        drop(other);
        builder.wait(7, [3; 32]);
        drop(builder);
        assert!(cache.lock().underway.is_empty());
    }

    #[test]
    fn what_cannot_be_kept_is_built_by_all_who_wait() {
        let cache = Cache::new(None, 0);
        let key = [1; 32];
        let (first, to_first) = client(&cache, "a");
        let (second, to_second) = client(&cache, "a");
        let (third, to_third) = client(&cache, "a");
        for (client, number) in [(&first, 1), (&second, 2), (&third, 3)] {
            client.lookup(number, key);
        }
        // Not theirs to say.
        second.unkept(key);
        third.failed(key);
        assert_eq!((to_first.take(), to_second.take().len()), ([Answer::Build(1)].into(), 0));
        first.unkept(key);
        assert_eq!(to_second.take(), [Answer::Build(2)]);
        assert_eq!(to_third.take(), [Answer::Build(3)]);
        // Whoever has it after all is welcome, once.
        third.store(key, b"program".to_vec());
        second.store(key, b"another".to_vec());
        first.lookup(4, key);
        assert_eq!(to_first.take(), [hit(4, b"program")]);
    }

    #[test]
    fn no_worker_makes_the_broker_remember_without_end() {
        let cache = Cache::new(None, 0);
        let (hostile, to_hostile) = client(&cache, "a");
        for number in 0..2 * MOST_UNDERWAY as u64 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            hostile.lookup(number, key);
            hostile.lookup(number, [7; 32]);
        }
        assert_eq!(cache.lock().underway.len(), MOST_UNDERWAY);
        assert!(cache.lock().underway.values().all(|underway| underway.waiting.len() <= MOST_UNDERWAY));
        assert!(to_hostile.take().len() >= 2 * MOST_UNDERWAY);
        drop(hostile);
        assert!(cache.lock().underway.is_empty());
    }

    #[test]
    fn nobody_stores_what_another_builds() {
        let cache = Cache::new(None, 0);
        let (builder, to_builder) = client(&cache, "a");
        let (other, to_other) = client(&cache, "a");
        builder.lookup(1, [1; 32]);
        assert_eq!(to_builder.take(), [Answer::Build(1)]);
        other.store([1; 32], b"poison".to_vec());
        other.failed([1; 32]);
        builder.store([1; 32], b"program".to_vec());
        other.store([1; 32], b"poison".to_vec());
        other.lookup(2, [1; 32]);
        assert_eq!(to_other.take(), [hit(2, b"program")]);
    }

    #[test]
    fn trust_domains_share_nothing() {
        let cache = Cache::new(None, 0);
        let (ours, to_us) = client(&cache, "ours");
        let (theirs, to_them) = client(&cache, "theirs");
        theirs.lookup(1, [1; 32]);
        theirs.store([1; 32], b"poison".to_vec());
        ours.lookup(2, [1; 32]);
        assert_eq!(to_us.take(), [Answer::Build(2)]);
        theirs.forget([1; 32]);
        theirs.lookup(3, [1; 32]);
        assert_eq!(to_them.take(), [Answer::Build(1), Answer::Build(3)]);
    }

    #[test]
    fn what_is_of_no_use_is_forgotten_everywhere() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(place.path()), 1 << 20);
        let (one, to_one) = client(&cache, "a");
        one.lookup(1, [1; 32]);
        one.store([1; 32], b"program".to_vec());
        let next = Cache::new(Some(place.path()), 1 << 20);
        let (two, to_two) = client(&next, "a");
        two.lookup(2, [1; 32]);
        assert_eq!(to_two.take(), [hit(2, b"program")], "found by the next service");
        two.forget([1; 32]);
        two.lookup(3, [1; 32]);
        assert_eq!(to_two.take(), [Answer::Build(3)]);
        drop((to_one, two));
    }
}
