//! Which system calls a process may make: all but these.
//!
//! A list of what is denied, not of what is allowed, because nobody knows what the vendors' libraries need; and they get
//! an error, not a signal, because some try and go on without. The kernel decides once, when the filter is loaded, for all
//! calls that are allowed whatever their arguments, so that only the few whose arguments matter run through it.

use std::collections::BTreeMap;

use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter, apply_filter_all_threads, sock_filter,
};

use crate::report::{Level, Part};

const NAME: &str = "calls";

/// Never, whatever the arguments.
const DENIED: &[libc::c_long] = &[
    // The network, and sockets of other processes. The session's sockets are there already, and a connected one must not
    // be connected to somebody else.
    libc::SYS_connect,
    libc::SYS_socketpair,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_tkill,
    libc::SYS_migrate_pages,
    // Whoever leaves the worker's process group would outlive the worker.
    libc::SYS_setpgid,
    libc::SYS_setsid,
    // Memory and messages that all processes of a user share.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // What Landlock does not know of files: whose they are, and who may use them.
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    // Another view of the system.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    // Parts of the kernel in which most of its faults have been found, and that no vendor's library needs.
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // The machine as a whole.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// Older ways to do the same, and what only this processor has.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[libc::c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[libc::c_long] = &[];

/// Names that libc does not have.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// A call that makes namespaces, unlike one that makes threads, has one of these flags.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// For all threads.
pub(crate) fn confine() -> Part {
    part(program().and_then(|program| apply_filter_all_threads(&program).map_err(|error| error.to_string())))
}

/// For this thread only.
pub(crate) fn confine_thread() -> Part {
    part(program().and_then(|program| apply_filter(&program).map_err(|error| error.to_string())))
}

fn part(applied: Result<(), String>) -> Part {
    match applied {
        Ok(()) => Part::new(NAME, Level::Enforced, "seccomp"),
        Err(error) => Part::new(NAME, Level::Missing, format!("no seccomp filter: {error}")),
    }
}

fn program() -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|error| format!("{error}"))?;
    let rules = rules().map_err(|error| error.to_string())?;
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).map_err(|error| error.to_string())?;
    let filter: BpfProgram = filter.try_into().map_err(|error: BackendError| error.to_string())?;
    Ok(prelude().into_iter().chain(filter).collect())
}

/// Calls that do not exist here: those of the x32 interface, whose numbers are others and which nobody uses, and
/// `clone3`, whose flags no filter can see; C libraries then use `clone`.
fn prelude() -> [sock_filter; 4] {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ERROR: u32 = 0x0005_0000;
    const X32: u32 = 0x4000_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    [
        instruction(LOAD_NUMBER, 0, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 1, 0, X32),
        instruction(JUMP_IF_EQUAL, 0, 1, libc::SYS_clone3 as u32),
        instruction(RETURN, 0, 0, ERROR | libc::ENOSYS.unsigned_abs()),
    ]
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rules = Rules(DENIED.iter().chain(DENIED_HERE).map(|call| (*call, Vec::new())).collect());
    let bits = |flag: libc::c_int| u64::from(flag.cast_unsigned());
    // Signals only to this process. Also where Landlock sees to it: this is one answer on all kernels.
    let own = bits(getpid().as_raw_nonzero().get());
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
        rules.deny(call, &[(0, Ne, own)])?;
    }
    // Limits of others: whoever is past a limit gets a signal. 0 is the caller.
    rules.deny(libc::SYS_prlimit64, &[(0, Ne, own), (0, Ne, 0)])?;
    // Signals to whoever is named as the owner of a file.
    for command in [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX] {
        rules.deny(libc::SYS_fcntl, &[(1, Eq, bits(command))])?;
    }
    // The same by other means, and keystrokes for whoever uses the terminal that the log goes to.
    for request in [FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX] {
        rules.deny(libc::SYS_ioctl, &[(1, Eq, request)])?;
    }
    // CUDA listens at a Unix socket of its own, for programs that share its memory. Those of the other kinds can send to
    // anybody without connecting.
    rules.deny(libc::SYS_socket, &[(0, Ne, bits(libc::AF_UNIX))])?;
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW].map(bits) {
        rules.deny(libc::SYS_socket, &[(1, MaskedEq(0xf), kind)])?;
    }
    // Connections that are opened by sending.
    let fast_open = bits(libc::MSG_FASTOPEN);
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.deny(call, &[(flags, MaskedEq(fast_open), fast_open)])?;
    }
    for namespace in NAMESPACES.map(bits) {
        rules.deny(libc::SYS_clone, &[(0, MaskedEq(namespace), namespace)])?;
    }
    // Only 0 and the question what it is: others make addresses predictable.
    rules.deny(libc::SYS_personality, &[(0, Ne, 0), (0, Ne, 0xffff_ffff)])?;
    Ok(rules.0)
}

/// By the number of the call; one rule of several denies it, and no rule means always.
struct Rules(BTreeMap<i64, Vec<SeccompRule>>);

impl Rules {
    /// Denies a call if all of these hold: of the argument, in its lower half.
    fn deny(&mut self, call: libc::c_long, when: &[(u8, SeccompCmpOp, u64)]) -> Result<(), BackendError> {
        let condition = |(argument, how, value): &(u8, SeccompCmpOp, u64)| {
            SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, how.clone(), *value)
        };
        let conditions = when.iter().map(condition).collect::<Result<_, _>>()?;
        self.0.entry(call).or_default().push(SeccompRule::new(conditions)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::process::Command;
    use std::thread;

    use rustix::process::{Pid, Signal, getppid, kill_process, test_kill_process};

    use super::*;

    #[test]
    fn a_confined_thread_has_no_network_and_no_one_to_signal_and_still_starts_programs() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let tried = thread::spawn(move || {
            assert!(UnixStream::connect(&socket).is_ok());
            let parent = getppid().unwrap();
            assert!(test_kill_process(parent).is_ok() && UdpSocket::bind("127.0.0.1:0").is_ok());
            assert_eq!(confine_thread().level, Level::Enforced);
            for denied in [
                UdpSocket::bind("127.0.0.1:0").err(),
                TcpListener::bind("127.0.0.1:0").err(),
                UnixStream::pair().err(),
                UnixDatagram::unbound().err(),
                UnixStream::connect(&socket).err(),
                kill_process(parent, Signal::CONT).err().map(Into::into),
                test_kill_process(Pid::INIT).err().map(Into::into),
            ] {
                assert_eq!(denied.and_then(|error| error.raw_os_error()), Some(libc::EPERM));
            }
            assert!(test_kill_process(getpid()).is_ok());
            assert!(UnixListener::bind(place.path().join("own")).is_ok());
            // Threads and processes: what `clone3` does where it may.
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            assert!(Command::new("/bin/true").status().unwrap().success());
        });
        tried.join().unwrap();
    }
}
