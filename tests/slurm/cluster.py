"""A Slurm cluster on one machine: Debian's Slurm, a login node and four others, each in namespaces of its own.

The caller is the login node, in namespaces of its own already (see e2e.py): what is mounted here, and which network there is,
nobody else sees. Nodes have their own network (a cable to the login node's bridge), mounts, processes, host name and munged.
Users alice and bob exist only in here.
"""

import os
import pathlib
import shutil
import signal
import stat
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
NODES = {"cpu1": "10.77.0.11", "cpu2": "10.77.0.12", "gpu1": "10.77.0.21", "gpu2": "10.77.0.22"}
LOGIN = "10.77.0.1"
USERS = {"alice": 61001, "bob": 61002}

SLURM_CONF = """
ClusterName=e2e
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits for as long as its credential holds, which is two minutes by default.
AuthInfo=cred_expire=10
SlurmUser=slurm
SlurmctldHost=login({login})
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/jobcomp.txt
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=1000,sched_interval=2,bf_interval=2
DefMemPerCPU=200
KillWait=5
MinJobAge=3600
SlurmctldTimeout=30
SlurmdTimeout=10
GresTypes=gpu
Licenses=accel:4
JobSubmitPlugins=lua
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/spool/slurmd
StateSaveLocation={state}
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
Prolog=/etc/slurm/telecl/prolog.sh
Epilog=/etc/slurm/telecl/epilog.sh
PrologFlags=Alloc
TaskProlog=/etc/slurm/task_prolog.sh
{nodes}
PartitionName=cpu Nodes=cpu[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=gpu Nodes=gpu[1-2] MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=urgent Nodes=gpu[1-2] MaxTime=INFINITE State=UP PriorityTier=20
"""

# Devices of PoCL stand for GPUs: as many as Slurm gave the job.
TASK_PROLOG = """#!/bin/sh
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    echo "export POCL_DEVICES=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\\n' | sed 's/.*/basic/' | tr '\\n' ' ')"
fi
/etc/slurm/telecl/task_prolog.sh
"""

NODE = """
set -eu
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=1777 none /tmp
for directory in /var/spool/slurmd /var/lib/munge /var/log/munge; do mount -t tmpfs -o mode=755 none $directory; done
mkdir -m 755 /run/munge
chown munge: /run/munge /var/lib/munge /var/log/munge
hostname "$1"
ip link set lo up
until ip address show dev eth0 2>/dev/null | grep -q 'inet '; do sleep 0.05; done
setpriv --reuid=munge --regid=munge --init-groups munged
exec slurmd -D -N "$1"
"""


class Failed(Exception):
    """Something did not come out as it should."""


def wait_for(what, condition, seconds):
    """Waits until the condition is true, and returns what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise Failed(f"after {seconds} s: {what}")
        time.sleep(0.1)


def sh(*args, **kwargs):
    """A command of the system that has to work."""
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, **kwargs)
    if done.returncode:
        raise Failed(f"{' '.join(args)}: {done.stdout}{done.stderr}")
    return done.stdout


class Cluster:
    def __init__(self, work, telecl, driver, portable, spank, deploy):
        self.work = pathlib.Path(work)
        self.nodes = {}
        self.files(telecl, driver, portable, spank, deploy)
        self.network()

    # What is where

    def files(self, telecl, driver, portable, spank, deploy):
        w = self.work
        for name in ["log", "state", "home", "opt", "srv"]:
            (w / name).mkdir(exist_ok=True)
        # A copy, to be changed at will.
        sh("cp", "-a", "/etc", str(w / "etc"))
        for name in ["slurm", "munge", "telecl"]:
            shutil.rmtree(w / "etc" / name, ignore_errors=True)
            (w / "etc" / name).mkdir()
        self.users()
        self.programs(telecl, driver, portable, spank, deploy)
        conf = "\n".join(
            f"NodeName={name} NodeAddr={address} CPUs=8 RealMemory=4000 State=UNKNOWN"
            + (" Gres=gpu:fake:2" if name.startswith("gpu") else "")
            for name, address in NODES.items()
        )
        slurm = w / "etc/slurm"
        (slurm / "slurm.conf").write_text(SLURM_CONF.format(login=LOGIN, nodes=conf, state=w / "state"))
        (slurm / "gres.conf").write_text(
            "NodeName=gpu[1-2] Name=gpu Type=fake File=/srv/fakegpu[0-1] Flags=nvidia_gpu_env,amd_gpu_env,opencl_env\n"
        )
        (slurm / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (slurm / "task_prolog.sh").write_text(TASK_PROLOG)
        (slurm / "task_prolog.sh").chmod(0o755)
        for number in range(2):
            os.mknod(w / f"srv/fakegpu{number}", 0o666 | stat.S_IFCHR, os.makedev(240, number))
        (w / "etc/munge/munge.key").write_bytes(os.urandom(128))
        sh("chown", "-R", "munge:", str(w / "etc/munge"))
        (w / "etc/munge/munge.key").chmod(0o400)
        (w / "etc/munge").chmod(0o700)
        sh("chown", "slurm:", str(w / "log"), str(w / "state"))
        hosts = f"127.0.0.1 localhost\n{LOGIN} login\n" + "".join(f"{a} {n}\n" for n, a in NODES.items())
        (w / "etc/hosts").write_text(hosts)
        for name, where in [("etc", "/etc"), ("home", "/home"), ("opt", "/opt"), ("srv", "/srv")]:
            sh("mount", "--bind", str(w / name), where)
        # What the daemons write goes nowhere else.
        for where in ["/var/log", "/var/lib/munge", "/var/spool"]:
            sh("mount", "-t", "tmpfs", "-o", "mode=755", "none", where)
        for directory in ["/var/log/slurm", "/var/log/munge", "/var/spool/slurmd"]:
            os.mkdir(directory)
        sh("mount", "--bind", str(w / "log"), "/var/log/slurm")

    def users(self):
        passwd = pathlib.Path("/etc/passwd").read_text()
        group = pathlib.Path("/etc/group").read_text()
        for name, number in USERS.items():
            passwd += f"{name}:x:{number}:{number}:{name}:/home/{name}:/bin/sh\n"
            group += f"{name}:x:{number}:\n"
            home = self.work / "home" / name
            home.mkdir(mode=0o700)
            os.chown(home, number, number)
        for name in ["subuid", "subgid"]:
            # For containers with users of their own (fakeroot).
            ranges = "".join(f"{user}:{number * 100000}:65536\n" for number, user in enumerate(USERS, 1))
            (self.work / "etc" / name).write_text(ranges)
        (self.work / "etc/passwd").write_text(passwd)
        (self.work / "etc/group").write_text(group)

    def programs(self, telecl, driver, portable, spank, deploy):
        opt = self.work / "opt/telecl"
        (opt / "bin").mkdir(parents=True)
        (opt / "lib/telecl/portable").mkdir(parents=True)
        shutil.copy(telecl, opt / "bin/telecl")
        shutil.copy(driver, opt / "lib/telecl/libtelecl.so")
        shutil.copy(portable, opt / "lib/telecl/portable/libtelecl.so")
        shutil.copytree(deploy, self.work / "etc/slurm/telecl")
        if spank:
            shutil.copy(spank, opt / "lib/telecl/spank_telecl.so")
            (self.work / "etc/slurm/plugstack.conf").write_text("optional /opt/telecl/lib/telecl/spank_telecl.so\n")
        shutil.copy(pathlib.Path(deploy) / "job_submit.lua", self.work / "etc/slurm/job_submit.lua")

    # The network

    def network(self):
        sh("hostname", "login")
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "address", "add", f"{LOGIN}/24", "dev", "br0")
        sh("ip", "link", "set", "br0", "up")

    def plug(self, name):
        """Connects a node to the bridge."""
        pid = str(self.nodes[name].pid)
        sh("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        sh("ip", "link", "set", f"to-{name}", "master", "br0", "up")
        sh("nsenter", "--net", "-t", pid, "ip", "link", "set", "eth0", "up")
        sh("nsenter", "--net", "-t", pid, "ip", "address", "add", f"{NODES[name]}/24", "dev", "eth0")

    def cut(self, name):
        """Nobody hears the node any more, and it hears nobody."""
        sh("ip", "link", "set", f"to-{name}", "down")

    def mend(self, name):
        sh("ip", "link", "set", f"to-{name}", "up")

    # Daemons

    def start(self):
        (self.work / "daemons.log").touch()
        sh("mount", "-t", "tmpfs", "-o", "mode=755", "none", "/run")
        sh("mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/tmp")
        os.mkdir("/run/munge", 0o755)
        sh("chown", "munge:", "/run/munge", "/var/lib/munge", "/var/log/munge")
        sh("setpriv", "--reuid=munge", "--regid=munge", "--init-groups", "munged")
        log = open(self.work / "daemons.log", "a")
        self.controller = subprocess.Popen(
            ["setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", "slurmctld", "-D"],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )
        for name in NODES:
            self.boot(name)
        wait_for("all nodes are idle", lambda: self.idle() == len(NODES), 60)

    def idle(self):
        done = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %T"], capture_output=True, text=True, timeout=60)
        return len({line.split()[0] for line in done.stdout.splitlines() if line.endswith(" idle")})

    def boot(self, name):
        log = open(self.work / "daemons.log", "a")
        self.nodes[name] = subprocess.Popen(
            ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", NODE, "sh", name],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )
        own = os.readlink("/proc/self/ns/net")
        pid = self.nodes[name].pid
        wait_for(f"{name} has a network", lambda: os.readlink(f"/proc/{pid}/ns/net") != own, 10)
        self.plug(name)

    def crash(self, name):
        """The power fails: nobody gets a last word."""
        self.cut(name)
        node = self.nodes.pop(name)
        node.send_signal(signal.SIGKILL)
        node.wait(30)
        # It may have gone with the node's network, or will in a moment.
        subprocess.run(["ip", "link", "delete", f"to-{name}"], capture_output=True, timeout=60)

    def inside(self, name, *command, timeout=60):
        """Runs a command on a node, as root."""
        init = sh("pgrep", "-P", str(self.nodes[name].pid)).split()[0]
        return subprocess.run(["nsenter", "-a", "-t", init, *command], capture_output=True, text=True, timeout=timeout)

    def stop(self):
        for node in self.nodes.values():
            node.kill()
        self.controller.terminate()
        for process in [*self.nodes.values(), self.controller]:
            process.wait(30)

    # Users

    def as_user(self, user, command, timeout=60, check=True, env=()):
        """Runs a command of a user on the login node; what it printed, and with check also that it worked."""
        number = USERS[user]
        done = subprocess.run(
            ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "env", "-i", f"HOME=/home/{user}", f"USER={user}",
             f"LOGNAME={user}", "PATH=/opt/telecl/bin:/usr/bin:/bin:/usr/sbin", *env, "sh", "-c", f"cd && {command}"],
            capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            raise Failed(f"{user}: {command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def sbatch(self, user, body, *options):
        """Submits a script; its output goes to ~/out.JOBID."""
        script = self.work / "home" / user / f"script-{time.monotonic_ns()}.sh"
        lines = body if body.startswith("#!") else f"#!/bin/sh\n{body}\n"
        script.write_text(lines)
        done = self.as_user(user, f"sbatch --parsable --output=$HOME/out.%j {' '.join(options)} {script.name}")
        return done.stdout.strip().split(";")[0]

    def state(self, job):
        done = subprocess.run(["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"], capture_output=True, text=True, timeout=60)
        return done.stdout.split("\n")[0].strip()

    def reason(self, job):
        done = subprocess.run(["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%r"], capture_output=True, text=True, timeout=60)
        return done.stdout.split("\n")[0].strip()

    def output(self, user, job):
        path = self.work / "home" / user / f"out.{job}"
        return path.read_text() if path.exists() else ""

    def wait_state(self, job, states, seconds):
        states = states if isinstance(states, tuple) else (states,)
        return wait_for(f"job {job} is {'/'.join(states)} (it is {self.state(job)})", lambda: self.state(job) in states and self.state(job), seconds)

    def completed(self, user, job, seconds=60):
        """Waits for a job's good end; its output."""
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        state = self.wait_state(job, ends, seconds)
        output = self.output(user, job)
        if state != "COMPLETED":
            raise Failed(f"job {job} of {user} is {state}:\n{output}")
        return output
