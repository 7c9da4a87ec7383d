//! Who has used how much: the sessions there are, and what those that have ended came to, by tenant.
//!
//! A session's figures move from its board to its tenant's account under one lock, so that whoever looks sees each of
//! them once. Accounts live as long as the service. There are no more than [`MOST_TENANTS`] of tenants that are not here:
//! beyond that, those that left longest ago are put together.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use telecl_policy::Tenant;

use super::figures::Figures;
use super::peer::User;
use super::review::Pod;
use crate::board::SessionBoard;

/// How many accounts there are of tenants without a session.
const MOST_TENANTS: usize = 1000;

/// Who a session is.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) session: u64,
    pub(crate) tenant: Tenant,
    /// Known on a Unix socket.
    pub(crate) user: Option<User>,
    /// Known by a Kubernetes token.
    pub(crate) pod: Option<Pod>,
    /// Where it came from, as the listener names it.
    pub(crate) peer: String,
    /// What it says about itself.
    pub(crate) program: String,
    pub(crate) pid: u32,
    pub(crate) begun: SystemTime,
    pub(crate) since: Instant,
}

impl Who {
    /// The user, where the tenant is one: by the Unix socket, or by a credential that was made for a user.
    pub(crate) fn user_name(&self) -> Option<String> {
        self.user
            .as_ref()
            .map(ToString::to_string)
            .or_else(|| self.tenant.as_str().strip_prefix("user:").map(str::to_owned))
    }
}

/// A session, as it was when somebody looked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) who: Arc<Who>,
    /// Whether it has, or is about to get, a worker.
    pub(crate) works: bool,
    /// The devices that it counts for.
    pub(crate) devices: Vec<u64>,
    pub(crate) figures: Figures,
}

/// A tenant's account: of its sessions, those that have ended and those there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) figures: Figures,
    /// Sessions that are here, those that only look around included.
    pub(crate) present: u32,
    /// Sessions that have had a worker, ever.
    pub(crate) sessions: u64,
    /// … and whose end was not as it should be.
    pub(crate) ended_badly: u64,
    /// Sessions and contexts that found no room.
    pub(crate) refused: u64,
    /// How long they have waited for room, together.
    pub(crate) admission_wait: Duration,
}

impl Account {
    fn add(&mut self, other: &Account) {
        self.figures.add(&other.figures);
        self.sessions += other.sessions;
        self.ended_badly += other.ended_badly;
        self.refused += other.refused;
        self.admission_wait = self.admission_wait.saturating_add(other.admission_wait);
    }
}

/// Everything at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// In the order of their numbers.
    pub(crate) sessions: Vec<Seen>,
    pub(crate) tenants: BTreeMap<Tenant, Account>,
    /// What tenants came to who left long ago.
    pub(crate) others: Option<Account>,
}

/// The books. Its lock is held for a few lines, or while all boards are read; no other is taken meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<u64, Present>,
    tenants: HashMap<Tenant, (Account, Instant)>,
    others: Option<Account>,
}

/// A session that is here.
#[derive(Debug)]
struct Present {
    who: Arc<Who>,
    board: Option<Arc<SessionBoard>>,
    devices: Vec<u64>,
    /// As somebody saw it last.
    before: Figures,
}

impl Present {
    fn seen(&mut self) -> Seen {
        let mut figures =
            self.board.as_ref().map(|board| Figures::read(board, self.who.since.elapsed())).unwrap_or_default();
        figures.uses(&self.devices);
        figures.no_less_than(&self.before);
        self.before.clone_from(&figures);
        Seen { who: Arc::clone(&self.who), works: self.board.is_some(), devices: self.devices.clone(), figures }
    }
}

impl State {
    fn account(&mut self, tenant: &Tenant) -> &mut Account {
        let (account, touched) =
            self.tenants.entry(tenant.clone()).or_insert_with(|| (Account::default(), Instant::now()));
        *touched = Instant::now();
        account
    }

    /// Puts those together who left longest ago.
    fn fold(&mut self, most: usize) {
        if self.tenants.len() <= most {
            return;
        }
        let mut gone: Vec<(Instant, Tenant)> = self
            .tenants
            .iter()
            .filter(|(_, (account, _))| account.present == 0)
            .map(|(tenant, (_, touched))| (*touched, tenant.clone()))
            .collect();
        gone.sort();
        for (_, tenant) in gone.into_iter().take(self.tenants.len() - most) {
            if let Some((account, _)) = self.tenants.remove(&tenant) {
                self.others.get_or_insert_default().add(&account);
            }
        }
    }
}

impl Accounts {
    /// A session is here.
    pub(crate) fn open(&self, who: Who) {
        let mut state = self.lock();
        state.account(&who.tenant).present += 1;
        state.sessions.insert(
            who.session,
            Present { who: Arc::new(who), board: None, devices: Vec::new(), before: Figures::default() },
        );
        state.fold(MOST_TENANTS);
    }

    /// It is given to a worker, who counts on this board.
    pub(crate) fn work(&self, session: u64, board: &Arc<SessionBoard>) {
        if let Some(present) = self.lock().sessions.get_mut(&session) {
            present.board = Some(Arc::clone(board));
        }
    }

    /// It counts for these devices from now on.
    pub(crate) fn admit(&self, session: u64, devices: &[u64]) {
        if let Some(present) = self.lock().sessions.get_mut(&session) {
            present.devices.extend_from_slice(devices);
        }
    }

    /// It has waited for room, and may have been refused.
    pub(crate) fn waited(&self, tenant: &Tenant, time: Duration, admitted: bool) {
        let mut state = self.lock();
        let account = state.account(tenant);
        account.admission_wait = account.admission_wait.saturating_add(time);
        account.refused += u64::from(!admitted);
    }

    /// It has ended, and its worker with it. What it came to, unless it had no worker.
    pub(crate) fn close(&self, session: u64, well: bool) -> Option<Seen> {
        let mut state = self.lock();
        let seen = state.sessions.remove(&session)?.seen();
        let account = state.account(&seen.who.tenant);
        account.present = account.present.saturating_sub(1);
        if !seen.works {
            return None;
        }
        account.figures.add(&seen.figures.clone().ended());
        account.sessions += 1;
        account.ended_badly += u64::from(!well);
        Some(seen)
    }

    /// Whose session it is, and its board.
    pub(crate) fn find(&self, session: u64) -> Option<(Arc<Who>, Option<Arc<SessionBoard>>)> {
        self.lock().sessions.get(&session).map(|present| (Arc::clone(&present.who), present.board.clone()))
    }

    /// Everything, of one moment.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut state = self.lock();
        let sessions: Vec<Seen> = state.sessions.values_mut().map(Present::seen).collect();
        let mut tenants: BTreeMap<Tenant, Account> =
            state.tenants.iter().map(|(tenant, (account, _))| (tenant.clone(), account.clone())).collect();
        let others = state.others.clone();
        drop(state);
        for seen in &sessions {
            let account = tenants.entry(seen.who.tenant.clone()).or_default();
            account.figures.add(&seen.figures);
            account.sessions += u64::from(seen.works);
        }
        Snapshot { sessions, tenants, others }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::{Count, DeviceCount};
    use std::sync::atomic::Ordering;

    fn who(session: u64, tenant: &str) -> Who {
        Who {
            session,
            tenant: Tenant::parse(tenant).unwrap(),
            user: None,
            pod: None,
            peer: "10.0.0.1:5".to_owned(),
            program: "test".to_owned(),
            pid: 7,
            begun: SystemTime::now(),
            since: Instant::now(),
        }
    }

    #[test]
    fn figures_are_seen_once_before_and_after_the_end() {
        let accounts = Accounts::default();
        let (board, _memfd) = SessionBoard::create(&[1, 2]).unwrap();
        let board = Arc::new(board);
        accounts.open(who(3, "a"));
        accounts.work(3, &board);
        accounts.admit(3, &[2]);
        board.add(Count::Commands, 5);
        board.device(1, DeviceCount::Memory).store(100, Ordering::Relaxed);
        let tenant = Tenant::parse("a").unwrap();
        let commands = |snapshot: &Snapshot| snapshot.tenants[&tenant].figures.get(Count::Commands);
        let memory = |snapshot: &Snapshot| snapshot.tenants[&tenant].figures.device(2).get(DeviceCount::Memory);
        let before = accounts.snapshot();
        assert_eq!((commands(&before), memory(&before), before.tenants[&tenant].sessions), (5, 100, 1));
        assert_eq!((before.sessions.len(), before.sessions[0].devices.as_slice()), (1, &[2][..]));
        let closed = accounts.close(3, false).unwrap();
        assert_eq!(closed.figures.get(Count::Commands), 5);
        let after = accounts.snapshot();
        assert_eq!((commands(&after), memory(&after), after.tenants[&tenant].sessions), (5, 0, 1));
        assert_eq!((after.tenants[&tenant].ended_badly, after.sessions.len()), (1, 0));
        assert!(accounts.close(3, true).is_none());
    }

    #[test]
    fn who_only_looks_around_is_seen_and_not_accounted_for() {
        let accounts = Accounts::default();
        accounts.open(who(1, "a"));
        assert_eq!(accounts.snapshot().sessions.len(), 1);
        assert!(accounts.close(1, true).is_none());
        let tenant = &accounts.snapshot().tenants[&Tenant::parse("a").unwrap()];
        assert_eq!((tenant.sessions, tenant.present), (0, 0));
        assert!(accounts.find(1).is_none());
    }

    #[test]
    fn tenants_who_left_long_ago_are_put_together_and_nothing_is_lost() {
        let accounts = Accounts::default();
        for session in 0..6 {
            accounts.open(who(session, &format!("t{session}")));
            let (board, _memfd) = SessionBoard::create(&[]).unwrap();
            board.add(Count::Commands, 1);
            accounts.work(session, &Arc::new(board));
            if session != 0 {
                accounts.close(session, true);
            }
        }
        accounts.lock().fold(3);
        let snapshot = accounts.snapshot();
        let names: Vec<&str> = snapshot.tenants.keys().map(Tenant::as_str).collect();
        assert_eq!(names, ["t0", "t4", "t5"], "who is here stays");
        assert_eq!(snapshot.others.unwrap().figures.get(Count::Commands), 3);
    }
}
