#!/usr/bin/env python3
"""telecl on a real Slurm: what docs/hpc.md promises, seen to happen. `make e2e-slurm` runs it, as root.

Everything happens in namespaces of this test's own, and ends with it.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import traceback

from cluster import NODES, USERS, Cluster, Failed, sh, wait_for

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# For the whole test: whatever hangs is ended, with everything that it has started.
LIMIT = 1200


def check(condition, what, *shown):
    if not condition:
        raise Failed("\n".join([what, *map(str, shown)]))


def place(user, job):
    return pathlib.Path(f"/home/{user}/.telecl/jobs/{job}")


def start(c, user, *options, sbatch=""):
    """A service job that is ready."""
    done = c.as_user(user, f"telecl slurm start --partition gpu --wait 60s {' '.join(options)} -- --mem=800 --cpus-per-task=2 {sbatch}", timeout=90)
    return done.stdout.strip()


# Directories of a job on a node, and processes of telecl that were started in it.
LEFT = """
ls -d /tmp/telecl-*-{job}-* 2>/dev/null
for process in $(grep -lzx SLURM_JOB_ID={job} /proc/[0-9]*/environ 2>/dev/null); do
    tr '\\0' ' ' <"${{process%environ}}cmdline" 2>/dev/null | grep '^[^ ]*telecl '
done
"""


def gone(c, user, job, seconds, what):
    """Nothing of a service job is left: no directory, no process, no scratch."""
    wait_for(f"{what}: the directory is gone", lambda: not place(user, job).exists(), seconds)

    def left():
        found = []
        for node in c.nodes:
            listed = c.inside(node, "sh", "-c", LEFT.format(job=job)).stdout
            found += [f"{node}: {line}" for line in listed.splitlines()]
        return found

    wait_for(f"{what}: nothing is left ({left()})", lambda: not left(), seconds)


def devices(text):
    return len(re.findall(r"Device #", text))


def sessions(c, service):
    """What the service of a job says about its sessions, at its socket on its first node."""
    node = json.loads(sorted((place("alice", service) / "nodes").iterdir())[0].read_text())["node"]
    done = c.inside(node, "sh", "-c", f"/opt/telecl/bin/telecl sessions --json --on unix:$(ls -d /tmp/telecl-*-{service}-*)/service.sock")
    try:
        return [session for one in json.loads(done.stdout)["services"] for session in one["sessions"]]
    except (ValueError, KeyError, TypeError):
        raise Failed(f"telecl sessions says: {done.stdout}{done.stderr}") from None


def working(c, service):
    """The session of a program that has begun its work."""
    found = wait_for("a program works", lambda: [s for s in sessions(c, service) if s["commands"] > 10], 90)
    return found[0]


# Scenarios. Each has a sentence; what it needs it makes, and what it makes it ends.


def service_and_client(c):
    """a service job and a client job: the devices are those that Slurm gave the service"""
    service = start(c, "alice", "--nodes 2", "--gres gpu:2")
    mode = place("alice", service).stat().st_mode & 0o777
    check(mode == 0o700, f"the directory has mode {mode:o}")
    client = c.sbatch("alice", f"telecl slurm run --service {service} -- clinfo -l", "--partition=cpu")
    text = c.completed("alice", client)
    check(devices(text) == 4, "two nodes with two devices each", text)
    c.as_user("alice", f"telecl slurm stop {service}")
    c.completed("alice", service, 30)
    gone(c, "alice", service, 10, "after telecl slurm stop")


# As docs/hpc.md has it.
SCRIPT = """#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:1 --time=4:00:00 --signal=B:USR1@90
#SBATCH --partition=gpu --mem=800
exec telecl slurm service --drain 30s
"""


def stopped(c):
    """a batch script of one's own, and telecl slurm stop: who comes is turned away, the program that runs ends well, nothing is left"""
    service = c.sbatch("alice", SCRIPT)
    client = long_client(c, "alice", service, seconds=8)
    c.as_user("alice", f"telecl slurm stop {service}")
    wait_for("it is not ready any more", lambda: not (place("alice", service) / "telecl.toml").exists(), 10)
    done = c.as_user("alice", f"telecl slurm run --service {service} --wait 1s -- clinfo -l", check=False)
    check(done.returncode == 3 and devices(done.stdout) == 0, "turned away", done.stdout, done.stderr)
    check("ended 0" in c.completed("alice", client), "the program has ended well", c.output("alice", client), c.output("alice", service))
    c.completed("alice", service, 45)
    gone(c, "alice", service, 10, "after telecl slurm stop")
    check("takes no new sessions" in c.output("alice", service), "it says so", c.output("alice", service))


def accounting_has_jobs(c):
    """accounting has the job and the user of a program, and telecl sessions shows both"""
    service = start(c, "alice", "--gres gpu:1")
    client = long_client(c, "alice", service)
    session = working(c, service)
    check((session["job"], session["user"]) == (client, "alice"), "the job and the user", session)
    c.as_user("alice", f"scancel {client}")
    wait_for("the session ends with its job", lambda: not sessions(c, service), 45)
    c.as_user("alice", f"telecl slurm stop {service}")
    c.completed("alice", service, 30)
    files = pathlib.Path("/home/alice/.telecl/accounting").glob(f"{service}-*")
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    mine = [line for line in lines if line["job"] == client]
    check(mine and mine[0]["user"] == "alice" and mine[0]["program"] == "busy", "a line of the job", lines)
    used = mine[0]["devices"][0]
    check(used["peak_memory"] > 0 and mine[0]["bytes_in"] > 0, "what it used", mine[0])
    return f"{used['device_seconds']:.1f} device seconds, peak memory {used['peak_memory'] >> 20} MiB"


def heterogeneous(c):
    """a heterogeneous job: one script that telecl printed, accelerators and program together"""
    script = c.as_user(
        "alice", "telecl slurm het --gres gpu:2 --partition gpu --program-partition cpu -- clinfo -l"
    ).stdout
    job = c.sbatch("alice", script)
    text = c.completed("alice", job, 60)
    check(devices(text) == 2, "the program sees two devices", text)
    gone(c, "alice", job, 10, "after the program's end")
    job = c.sbatch("alice", script.replace("clinfo -l", "/opt/busy 90"))
    wait_for("the program runs", lambda: "begun" in c.output("alice", job), 60)
    c.as_user("alice", f"scancel {job}")
    gone(c, "alice", job, 20, "after scancel")


def two_services_four_clients(c):
    """two services on one node, and four clients, two of each"""
    services = [start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu2") for _ in range(2)]
    clients = [c.sbatch("alice", f"telecl slurm run --service {s} -- clinfo -l", "--partition=cpu") for s in services * 2]
    for client in clients:
        text = c.completed("alice", client)
        check(devices(text) == 1, "one device", text)
    addresses = {(place("alice", s) / "telecl.toml").read_text().split("services")[1].split("\n")[0] for s in services}
    check(len(addresses) == 2, "each has a port of its own", addresses)
    c.as_user("alice", f"scancel {' '.join(services)}")
    for service in services:
        gone(c, "alice", service, 15, "after scancel")


def killed(c):
    """the service is killed: its job and its workers end, its directory is stale, and the next service removes it"""
    service = start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu2 --no-requeue")
    client = long_client(c, "alice", service)
    working(c, service)
    c.inside("gpu2", "sh", "-c", "kill -KILL $(pgrep -o -u alice -f 'telecl slurm service')")
    c.wait_state(service, ("FAILED", "CANCELLED"), 30)
    done = c.as_user("alice", f"telecl slurm run --service {service} -- clinfo -l", check=False)
    check(done.returncode == 3 and "stale" in done.stderr and "rm -r" in done.stderr, "stale", done.stderr)
    c.as_user("alice", f"scancel {client}")
    service, before = start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu2"), service
    gone(c, "alice", before, 10, "after the next start")
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def users_apart(c):
    """bob cannot use alice's service: not by its number, not by its socket on its own node, not with a secret of his own"""
    service = start(c, "alice", "--gres gpu:1")
    done = c.as_user("bob", f"telecl slurm run --service {service} -- clinfo -l", check=False)
    check(done.returncode == 2 and "alice" in done.stderr and "own user" in done.stderr, "told whose it is", done.stderr)
    address = re.search(r'services = \["([^"]*)"', (place("alice", service) / "telecl.toml").read_text())[1]
    done = c.as_user("bob", f"cat {place('alice', service)}/secret", check=False)
    check(done.returncode != 0, "bob reads alice's secret")
    node = json.loads(next((place("alice", service) / "nodes").iterdir()).read_text())["node"]
    socket = c.inside(node, "sh", "-c", f"ls -d /tmp/telecl-*-{service}-*/service.sock").stdout.strip()
    job = c.sbatch("bob", f"telecl devices --on unix:{socket}; ls {pathlib.Path(socket).parent}", "--partition=gpu", f"--nodelist={node}")
    c.wait_state(job, ("COMPLETED", "FAILED"), 60)
    text = c.output("bob", job)
    check(socket and "No device can be reached" in text and "ermission denied" in text, "not by its socket, on its own node", text)
    c.as_user("bob", "rm -f s; telecl secret create s")
    job = c.sbatch("bob", f"telecl devices --on {address} --secret $HOME/s", "--partition=cpu")
    c.wait_state(job, ("COMPLETED", "FAILED"), 60)
    text = c.output("bob", job)
    check("No device can be reached" in text and "secret" in text, "refused", text)
    job = c.sbatch("alice", f"telecl devices --on {address} --secret {place('alice', service)}/secret", "--partition=cpu")
    check("basic" in c.completed("alice", job), "alice, with hers, sees it", c.output("alice", job))
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def long_client(c, user, service, seconds=90, environment=""):
    """A job whose program keeps a device busy for a minute and a half, if it is let."""
    job = c.sbatch(user, f"{environment} telecl slurm run --service {service} -- /opt/busy {seconds}; echo ended $?", "--partition=cpu")
    wait_for("the program runs", lambda: "begun" in c.output(user, job), 60)
    return job


def cancelled(c):
    """scancel: the service, its directory and its sessions are gone at once; the program is told"""
    service = start(c, "alice", "--gres gpu:1")
    client = long_client(c, "alice", service)
    working(c, service)
    began = time.monotonic()
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 20, "after scancel")
    took = time.monotonic() - began
    wait_for("the program ends", lambda: "ended" in c.output("alice", client), 60)
    text = c.output("alice", client)
    check("is lost" in text and "-2" in text, "the program is told", text)
    return f"gone after {took:.1f} s, the program after {time.monotonic() - began:.1f} s"


def preempted(c):
    """preemption with requeue: the same job comes back, with a new secret and new ports, and serves"""
    service = start(c, "alice", "--gres gpu:2", sbatch="--nodelist=gpu2 --requeue")
    secret = (place("alice", service) / "secret").read_text()
    urgent = c.sbatch("bob", "sleep 3", "--partition=urgent", "--nodelist=gpu2", "--gres=gpu:2")
    gone(c, "alice", service, 30, "after preemption")
    c.completed("bob", urgent, 60)
    client = c.sbatch("alice", f"telecl slurm run --service {service} -- clinfo -l", "--partition=cpu")
    text = c.completed("alice", client, 90)
    check(devices(text) == 2, "two devices again", text)
    check((place("alice", service) / "secret").read_text() != secret, "the secret is new")
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def time_limit_begins(c):
    """the time limit: a service of a minute, the shortest limit that Slurm knows, which passes while others run"""
    c.limited = start(c, "alice", "--gres gpu:1", "--time 1", "--drain 10s", sbatch="--nodelist=gpu1")
    c.limited_client = c.sbatch("alice", f"telecl slurm run --service {c.limited} -- /opt/busy 5", "--partition=cpu")


def time_limit(c):
    """the time limit: no new sessions, the present ones have their time, and the job completes"""
    c.completed("alice", c.limited, 90)
    gone(c, "alice", c.limited, 10, "after the time limit")
    log = pathlib.Path(f"/home/alice/.telecl/log/{c.limited}.log").read_text()
    check("takes no new sessions" in log, "it was drained", log)
    check("done" in c.completed("alice", c.limited_client), "its program has ended well", c.output("alice", c.limited_client))


def network_cut(c):
    """a network cut shorter than the grace: the session of a running program goes on"""
    service = start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu2")
    client = long_client(c, "alice", service)
    before = working(c, service)
    c.cut("gpu2")
    time.sleep(4)
    c.mend("gpu2")
    time.sleep(4)
    commands = sessions(c, service)[0]["commands"]
    wait_for("it goes on", lambda: sessions(c, service)[0]["commands"] > commands, 40)
    check(sessions(c, service)[0]["session"] == before["session"], "it is the same session", sessions(c, service), before)
    check("is lost" not in c.output("alice", client), "the program was told nothing", c.output("alice", client))
    c.as_user("alice", f"scancel {client} {service}")
    gone(c, "alice", service, 15, "after scancel")


def node_crash(c):
    """a node without power: whoever comes is told so in bounded time, and the requeued job serves again"""
    service = start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu2 --requeue")
    client = long_client(c, "alice", service)
    hasty = long_client(c, "alice", service, environment="TELECL_HEARTBEAT=3s TELECL_GRACE=5s")
    wait_for("both work", lambda: [s["commands"] > 10 for s in sessions(c, service)] == [True, True], 90)
    c.crash("gpu2")
    began = time.monotonic()
    done = c.as_user("alice", f"telecl slurm run --service {service} --wait 4s -- clinfo -l", timeout=60, check=False)
    check(done.returncode == 3 and str(service) in done.stderr, "not ready", done.stderr)
    told = time.monotonic() - began
    # Heartbeat and grace, as the program wants them, and as they are by default.
    wait_for("the hasty program ends", lambda: "ended" in c.output("alice", hasty), 30)
    soon = time.monotonic() - began
    wait_for("Slurm notices", lambda: c.state(service) in ("PENDING", "NODE_FAIL", "COMPLETING"), 60)
    c.boot("gpu2")
    wait_for("the program ends", lambda: "ended" in c.output("alice", client), began + 60 - time.monotonic())
    ended = time.monotonic() - began
    for job in [client, hasty]:
        check("is lost" in c.output("alice", job), "the program is told", c.output("alice", job)[-2000:])
    wait_for("the node is back", lambda: c.idle() >= len(NODES) - 1, 60)
    done = c.as_user("alice", f"telecl slurm run --service {service} --wait 60s -- clinfo -l", timeout=90)
    check(devices(done.stdout) == 1, "one device", done.stdout, done.stderr)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")
    return f"who comes is told after {told:.1f} s, the program that ran after {ended:.1f} s, one that asked for less after {soon:.1f} s"


def wrong_input(c):
    """errors name the file or the job, and the next step"""

    def refused(command, code, *words):
        done = c.as_user("alice", command, check=False, timeout=60)
        check(done.returncode == code, f"{command}: exit {done.returncode}, not {code}", done.stderr)
        for word in words:
            check(word in done.stderr, f"{command}: no {word!r} in its message", done.stderr)

    refused("telecl slurm run --service 999999 -- clinfo", 2, "999999", "squeue --me")
    refused("telecl slurm run --service ../x -- clinfo", 2, "squeue --me")
    refused("telecl slurm service", 2, "SLURM_JOB_ID", "telecl slurm start")
    refused("telecl slurm start --gres 'gpu:1 --x'", 2, "--gres")
    refused("telecl slurm pod-snippet 999999", 3, "telecl.toml", "999999")
    refused("telecl container-args podman --service 999999", 3, "telecl.toml", "999999", "telecl slurm run")
    refused("telecl container-args docker --service 1", 2, "docker", "podman")
    refused("telecl slurm stop 999999", 2, "999999", "squeue --me")
    refused("telecl slurm het --program-partition 'a b' -- ./program", 2, "--program-partition")
    refused("PATH=/opt/telecl/bin telecl slurm start --gres gpu:1", 1, "sbatch", "telecl slurm start --print")
    refused("HOME=nowhere telecl slurm run --service 1 -- /bin/true", 2, "HOME")
    service = start(c, "alice", "--gres gpu:1")
    where = place("alice", service)
    refused(f"telecl container-args podman --service {service} --driver nowhere.so", 2, "nowhere.so", "libtelecl.so")
    c.as_user("alice", f"chmod 755 {where}")
    refused(f"telecl slurm run --service {service} -- clinfo", 2, "chmod 700", str(where))
    c.as_user("alice", f"chmod 700 {where}; chmod 644 {where}/secret")
    refused(f"telecl slurm run --service {service} -- clinfo", 2, "chmod 600", "secret")
    c.as_user("alice", f"chmod 600 {where}/secret; cp -a {where} kept; scancel {service}")
    gone(c, "alice", service, 15, "after scancel")
    c.as_user("alice", f"mv kept {where}")
    refused(f"telecl slurm run --service {service} -- clinfo", 3, "stale", str(where), "rm -r")
    held = c.sbatch("alice", "exec telecl slurm service", "--partition=gpu", "--hold")
    refused(f"telecl slurm run --service {held} --wait 1s -- clinfo", 3, "not ready", "PENDING", held, f"waiting for job {held}")
    done = c.as_user("bob", f"telecl slurm stop {held}", check=False)
    check(done.returncode == 1 and "squeue --me" in done.stderr and c.state(held) == "PENDING", "bob cannot stop it", done.stderr)
    c.as_user("alice", f"scancel {held}")
    # The next service cleans up after those that could not.
    service = start(c, "alice", "--gres gpu:1")
    check(not where.exists(), "the stale directory is gone")
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


# Programs with their libraries and data, of this machine's Debian: an image that was never told of telecl.
IMAGE = ["/bin/sh", "/bin/bash", "/bin/mkdir", "/bin/true", "/bin/ls", "/bin/cat", "/usr/bin/env", "/usr/bin/clinfo", "/usr/bin/hashcat"]


def make_image(c):
    """A directory with programs in it, as container runtimes take it, in alice's home. Once for all scenarios."""
    image = c.work / "home/alice/.hpk/image"
    if image.exists():
        return
    for directory in ["etc", "proc", "sys", "dev", "tmp", "var/tmp", "home/alice", "root", "mnt", "opt", "run", "usr/share", "usr/sbin", "scratch"]:
        (image / directory).mkdir(parents=True)
    files = set(IMAGE) | {"/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"}
    # All of the C library: what old programs need of it is in parts of its own.
    listed = sh("dpkg", "--listfiles", "libc6", "libgcc-s1").split("\n")
    files |= {path for path in listed if re.search(r"/lib/x86_64-linux-gnu/[^/]*\.so[^/]*$", path)}
    with_libraries = [*files, "/opt/apptainer/usr/bin/apptainer", "/opt/apptainer/usr/lib/x86_64-linux-gnu/apptainer/bin/starter"]
    for program in with_libraries:
        if os.path.exists(program):
            text = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60).stdout
            files |= set(re.findall(r"(/\S+)", text))
    for path in sorted(files):
        # Where the loader looks for it, whatever it is a link to.
        target = image / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        sh("cp", "-L", path, str(target))
    for path in ["/usr/share/hashcat", "/usr/lib/x86_64-linux-gnu/hashcat", "/usr/lib/hashcat", "/opt/apptainer"]:
        if os.path.exists(path):
            (image / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            sh("cp", "-r", path, str(image / path.lstrip("/")))
    for name in ["etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf"]:
        (image / name).write_text("")
    (image / "etc/group").write_text(f"root:x:0:\nalice:x:{USERS['alice']}:\n")
    (image / "etc/passwd").write_text(f"root:x:0:0::/root:/bin/sh\nalice:x:{USERS['alice']}:{USERS['alice']}::/home/alice:/bin/sh\n")
    sh("chown", "-R", "alice:", str(c.work / "home/alice/.hpk"))


# Charliecloud's user has no home, in which case hashcat does not find a place by itself.
HASHES = "HOME=/tmp XDG_DATA_HOME=/tmp XDG_CACHE_HOME=/tmp hashcat --potfile-disable --force --quiet --self-test-disable -D 1,2,3 -m 0 -a 3 {} '?d?d?d'"


def in_container(c, run):
    """clinfo and hashcat, which finds a word, in a container of a client job."""
    make_image(c)
    service = start(c, "alice", "--gres gpu:1")
    wanted = hashlib.md5(b"427").hexdigest()
    (c.work / "home/alice/in-image.sh").write_text("cd /tmp && clinfo -l && " + HASHES.format(wanted) + "\n")
    job = c.sbatch("alice", f"cp in-image.sh /tmp && exec {run.format(service)} /tmp/in-image.sh", "--partition=cpu")
    # hashcat has its kernels compiled, which takes a minute or more on a busy machine the first time.
    text = c.completed("alice", job, 400)
    check(devices(text) == 1 and f"{wanted}:427" in text, "a device, and a found word", text)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def in_charliecloud(c):
    """clinfo and hashcat in a Charliecloud image that knows nothing of telecl"""
    in_container(c, "ch-run $(telecl container-args charliecloud --service {}) $HOME/.hpk/image -- sh")


def in_apptainer(c):
    """clinfo and hashcat in an Apptainer image that knows nothing of telecl"""
    in_container(c, "/opt/apptainer/usr/bin/apptainer exec --containall --bind=/tmp $(telecl container-args apptainer --service {}) $HOME/.hpk/image sh")


# Rootless, with storage in the home, as Podman has it by default; runc, as crun 1.8 refuses machines with both kinds of control groups.
PODMAN = "podman --cgroup-manager=cgroupfs --runtime=runc --log-level=error run --rm --volume=/tmp:/tmp $(telecl container-args podman --service {}) --rootfs $HOME/.hpk/image sh"


def in_podman(c):
    """clinfo and hashcat in a Podman container of a plain user, whose image knows nothing of telecl"""
    in_container(c, PODMAN)


def other_image(c, name, files):
    """An image that is little more than another C library, of files or directories that go to the root or to a path in it."""
    image = c.work / "home/alice" / name
    for directory in ["proc", "sys", "dev", "tmp", "etc", "home", "mnt", "bin", "lib"]:
        (image / directory).mkdir(parents=True, exist_ok=True)
    for name in ["passwd", "group", "hosts", "resolv.conf"]:
        (image / "etc" / name).touch()
    for source, target in files:
        sh("cp", "-a" if os.path.isdir(source) else "-L", str(source), str(image / target))
    sh("chown", "-R", "alice:", str(image))


def in_other_image(c, name, command):
    service = start(c, "alice", "--gres gpu:1")
    own = "--driver /opt/telecl/lib/telecl/libtelecl.so"
    for option, works in [("", True), (own, False)]:
        run = f"ch-run $(telecl container-args charliecloud --service {service} {option}) $HOME/{name} -- {command}"
        job = c.sbatch("alice", run, "--partition=cpu")
        c.wait_state(job, ("COMPLETED", "FAILED"), 60)
        text = c.output("alice", job)
        if works:
            good = text
            check(devices(text) == 1, "one device", text)
        else:
            # This is what the other one is for.
            check(devices(text) == 0 and "needs glibc 2." in text, "this system's own driver does not load, and that is said", text)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")
    return good


def with_old_glibc(c):
    """an image with Debian 11's C library and clinfo: the driver for containers loads there"""
    other_image(c, "debian11", [(f"{c.work}/opt/debian11/.", ".")])
    in_other_image(c, "debian11", "/usr/bin/clinfo -l")


def with_musl(c):
    """an image with musl and no other C library: the same driver loads there, and a kernel runs"""
    other_image(c, "musl", [("/lib/ld-musl-x86_64.so.1", "lib"), (f"{c.work}/opt/with-musl", "bin")])
    text = in_other_image(c, "musl", "/bin/with-musl")
    check("computes" in text, "the kernel has run", text)


# A pod's container as others start it in their batch scripts: KNoC with the job's environment, interLink's plugin for Slurm with whatever
# options its site has, here the strictest.
KNOC = "apptainer exec --env A=1 --bind $HOME/.hpk-master:/data $HOME/.hpk/image clinfo -l"
INTERLINK = "apptainer exec --containall --cleanenv --no-home {mounts} --env-file $HOME/main_envfile.properties $HOME/.hpk/image clinfo -l"


def other_pods(c):
    """pods as KNoC and interLink start them: by the flags of an annotation, and by the options that telecl container-args printed"""
    site_service(c)
    make_image(c)
    home = c.work / "home/alice"
    (home / "main_envfile.properties").write_text("A=1\n")
    (home / ".hpk-master").mkdir(exist_ok=True)
    service = start(c, "alice", "--gres gpu:1")
    printed = c.as_user("alice", f"telecl container-args apptainer --service {service}").stdout.strip()
    flags = "#SBATCH --remote-accel=1"
    for flag, run in [(flags, KNOC), (flags, INTERLINK.format(mounts="")), ("", INTERLINK.format(mounts=printed))]:
        script = f"#!/bin/bash\n#SBATCH --job-name=pod\n{flag}\n#SBATCH --cpus-per-task=1\n/opt/apptainer/usr/bin/{run}\n"
        text = c.completed("alice", c.sbatch("alice", script, "--partition=cpu"), 60)
        check(devices(text) == 1, f"one device: {run}", text)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


# A pod as HPK 6346bd5 (May 2025) writes it for sbatch: a container for the pod, and in it, by hpk-pause, one for each of its containers.
# Left out is --net, for which Debian's Apptainer has no privileges. hpk-pause itself, which asks the API server for the pod, is a shell
# script here that does the same with the environment, the files and the options.
POD = """#!/bin/bash
#SBATCH --job-name=pod
#SBATCH --output={output}
#SBATCH --error={output}
{flags}

#SBATCH --signal=B:TERM@60 # tells the controller
#SBATCH --ntasks-per-node=1

set -u
export workdir=/tmp/default_pod
mkdir -p ${{workdir}}
trap 'rm -rf ${{workdir}}' EXIT
export APPTAINERENV_KUBEDNS_IP=10.77.0.1

exec /opt/apptainer/usr/bin/apptainer exec --containall --fakeroot --scratch /scratch --workdir ${{workdir}} \\
--env PARENT=${{PPID}} \\
--bind $HOME/.hpk-master/kubernetes:/k8s-data \\
--bind /etc/apptainer/apptainer.conf \\
--bind $HOME,/tmp \\
--hostname pod \\
$HOME/.hpk/image /usr/local/bin/hpk-pause -namespace default -pod pod ||
echo "[HOST] **SYSTEMERROR** hpk-pause exited with code $?"
"""
PAUSE = """#!/bin/sh
set -eu
mkdir -p /scratch/etc
echo "nameserver $KUBEDNS_IP" >/scratch/etc/resolv.conf
echo "127.0.0.1 localhost" >/scratch/etc/hosts
unset LD_LIBRARY_PATH SINGULARITY_COMMAND SINGULARITY_CONTAINER SINGULARITY_ENVIRONMENT SINGULARITY_NAME APPTAINER_APPNAME \\
    APPTAINER_COMMAND APPTAINER_CONTAINER APPTAINER_ENVIRONMENT APPTAINER_NAME APPTAINER_BIND SINGULARITY_BIND
pod=/home/alice/.hpk/default/pod
sh -c $pod/main.env.sh >/scratch/default_pod_main.env
exec /opt/apptainer/usr/bin/apptainer --quiet exec --cleanenv --writable-tmpfs --no-mount home --unsquash \\
    --bind "/scratch/etc/resolv.conf:/etc/resolv.conf,/scratch/etc/hosts:/etc/hosts$(cat $pod/binds)" \\
    --env-file /scratch/default_pod_main.env /home/alice/.hpk/image clinfo -l
"""


def pod(c, flags, volumes, environment):
    """Runs a pod with hostPath volumes (what, where) and variables, as HPK would, and looks for one device."""
    make_image(c)
    home = c.work / "home/alice"
    directory = home / ".hpk/default/pod"
    pause = home / ".hpk/image/usr/local/bin/hpk-pause"
    for path in [pause.parent, directory / "volumes", home / ".hpk-master/kubernetes", c.work / "etc/apptainer"]:
        path.mkdir(parents=True, exist_ok=True)
    (c.work / "etc/apptainer/apptainer.conf").touch()
    pause.write_text(PAUSE)
    binds = ""
    for number, (what, where) in enumerate(volumes):
        # A hostPath becomes a link in the pod's own directory.
        link = directory / f"volumes/v{number}"
        link.unlink(missing_ok=True)
        link.symlink_to(what)
        binds += f",/home/alice/.hpk/default/pod/volumes/v{number}:{where}:ro"
    (directory / "binds").write_text(binds)
    variables = "".join(f"echo {name}=\\''{value}'\\'\n" for name, value in environment)
    (directory / "main.env.sh").write_text(f"#!/bin/bash\n{variables}")
    for path in [pause, directory / "main.env.sh"]:
        path.chmod(0o755)
    sh("chown", "-R", "alice:", str(home / ".hpk/default"), str(home / ".hpk-master"))
    job = c.sbatch("alice", POD.format(flags=flags, output="/home/alice/out.%j"), "--partition=cpu", "--exclude=", "--get-user-env=10L")
    text = c.completed("alice", job, 60)
    check(devices(text) == 1, "one device", text)


def pod_by_specification(c):
    """HPK's script, (a): a pod with the volume and the environment that telecl slurm pod-snippet printed"""
    service = start(c, "alice", "--gres gpu:1")
    snippet = c.as_user("alice", f"telecl slurm pod-snippet {service}").stdout
    host = re.search(r"hostPath: {path: (\S+)}", snippet)[1]
    mount = re.search(r"mountPath: (\S+),", snippet)[1]
    check(host.startswith("/home/alice/"), "HPK takes a hostPath below $HOME only", snippet)
    pod(c, "", [(host, mount)], re.findall(r"{name: (\w+), value: (\S+)}", snippet))
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def pod_by_annotation(c):
    """HPK's script, (b): a pod that has nothing but the annotation slurm.hpk.io/flags: --remote-accel=1"""
    site_service(c)
    pod(c, "#SBATCH --remote-accel=1", [], [])


SITE = {name: NODES[name] for name in ["gpu1", "gpu2"]}


def site_service(c):
    """The site's own services, by root, with tokens and two devices each; and the settings for prolog and epilog. Once for all scenarios."""
    if hasattr(c, "site"):
        return
    etc = pathlib.Path("/etc/telecl")
    sh("/opt/telecl/bin/telecl", "pki", "init", "--dir", str(etc / "pki"), "--name", ",".join([*SITE, *SITE.values()]))
    (etc / "revoked").touch()
    settings = (ROOT / "deploy/slurm/slurm.env").read_text()
    addresses = " ".join(f"{name}={address}:7701" for name, address in SITE.items())
    (etc / "slurm.env").write_text(re.sub(r"SERVICES=.*", f'SERVICES="{addresses}"', settings))
    c.site = [site_service_on(c, name) for name in SITE]
    for name in SITE:
        wait_for(f"the site's service on {name} listens", lambda: "listening on" in (c.work / f"site-{name}.log").read_text(), 30)


def site_service_on(c, name):
    log = open(c.work / f"site-{name}.log", "a")
    init = sh("pgrep", "-P", str(c.nodes[name].pid)).split()[0]
    return subprocess.Popen(
        ["nsenter", "-a", "-t", init, "env", "POCL_DEVICES=basic basic", "HOME=/root", f"TELECL_ACCOUNTING=/etc/telecl/accounting-{name}.jsonl",
         "/opt/telecl/bin/telecl", "serve", "--listen", f"{SITE[name]}:7701",
         "--certificate", "/etc/telecl/pki/service.pem", "--key", "/etc/telecl/pki/service.key",
         "--token-keys", "/etc/telecl/pki/token.pub", "--revoked", "/etc/telecl/revoked"],
        stdout=log, stderr=log, stdin=subprocess.DEVNULL,
    )


ON_SITE = ",".join(f"{address}:7701" for address in SITE.values())
# What the prolog has noted of the job's accelerators: gpu1=number:2.
CHOSEN = "grep -o at=[a-z0-9]*=number:[0-9]* $TELECL_SESSION_DIR/telecl.toml | cut -d= -f2-"


def another_release(c):
    """A plugin that was built for another release of Slurm is refused, and jobs run: it is registered as optional."""
    plugin = bytearray(pathlib.Path("/opt/telecl/lib/telecl/spank_telecl.so").read_bytes())
    listed = sh("nm", "--dynamic", "/opt/telecl/lib/telecl/spank_telecl.so")
    # It is a constant, at the same place in the file as in memory.
    at = int(re.search(r"^([0-9a-f]+) R plugin_version$", listed, re.MULTILINE)[1], 16)
    version = int.from_bytes(plugin[at : at + 4], "little")
    check(version >> 16 in range(20, 100), "that is the release", hex(version))
    plugin[at : at + 4] = (version + 0x010000).to_bytes(4, "little")
    (c.work / "opt/telecl/lib/telecl/another.so").write_bytes(plugin)
    stack = pathlib.Path("/etc/slurm/plugstack.conf")
    before = stack.read_text()
    stack.write_text("optional /opt/telecl/lib/telecl/another.so\n")
    try:
        done = c.as_user("alice", "srun echo it runs; srun --remote-accel=1 true", check=False)
        check("it runs" in done.stdout and "remote-accel" in done.stderr, "a job runs, without the option", done.stdout, done.stderr)
    finally:
        stack.write_text(before)


def as_many_as_asked(c):
    """--remote-accel=N: a job has N of the site's devices, on all of its nodes the same, and the services let it use no other"""
    site_service(c)
    for count in [1, 3, 4]:
        done = c.as_user("alice", f"srun --remote-accel={count} clinfo -l", timeout=60)
        check(devices(done.stdout) == count and "telecl" not in done.stderr, f"{count} of four devices, and no word of others", done.stdout, done.stderr)
    # With everything that the job was given, and both services by their addresses.
    tried = f"telecl devices --json --on {ON_SITE} --ca $TELECL_SESSION_DIR/ca.pem --token $TELECL_SESSION_DIR/token"
    done = c.as_user("alice", f"srun --remote-accel=1 sh -c '{CHOSEN}; {tried}'", timeout=60, check=False)
    chosen, answer = done.stdout.split("\n", 1)
    node = chosen.split("=")[0]
    check([device["node"] for device in json.loads(answer)["devices"]] == [node], f"one device of one service, {chosen}", done.stdout)
    check("the token is for the services " + node in done.stdout, "the other service says why not", done.stdout)
    # What a user could say in the plugin's place changes nothing: licenses are counted by slurmctld.
    done = c.as_user("alice", "SPANK_REMOTE_ACCEL=4 srun --remote-accel=1 --export=ALL,SPANK_REMOTE_ACCEL=4 clinfo -l", timeout=60)
    check(devices(done.stdout) == 1, "one device", done.stdout)
    done = c.as_user("alice", f"srun --nodes=2 --remote-accel=2 sh -c '{CHOSEN}'", timeout=60)
    both = sorted(done.stdout.split())
    check(len(both) == 4 and both[0::2] == both[1::2] and both[0] != both[2], "two devices, on both nodes the same", done.stdout)
    others = {c.as_user("alice", f"srun --remote-accel=1 sh -c '{CHOSEN}'", timeout=60).stdout.strip() for _ in range(4)}
    check(len(others) == 4, "jobs one after the other begin with another device each", others)


def site_accounting(c):
    """the site's accounting has the job of the token, not the one that a program claims; telecl top shows it"""
    site_service(c)
    job = c.sbatch("bob", "SLURM_JOB_ID=999999 /opt/busy 8", "--remote-accel=1", "--partition=cpu")

    def shown():
        # Root sees all sessions, on the service's own node.
        texts = [c.inside(name, "/opt/telecl/bin/telecl", "top", "--once", "--on", "unix:/run/telecl/7701.sock").stdout for name in SITE]
        return next((text for text in texts if "busy" in text), None)

    top = wait_for("telecl top shows the program", shown, 60)
    line = next(line for line in top.splitlines() if "busy" in line)
    check("JOB" in top and job in line.split() and "bob" in line, "its job and its user", top)
    c.completed("bob", job, 60)
    lines = [json.loads(line) for path in pathlib.Path("/etc/telecl").glob("accounting-*.jsonl") for line in path.read_text().splitlines()]
    mine = [line for line in lines if line["job"] == job]
    check(len(mine) == 1 and mine[0]["user"] == "bob" and not [line for line in lines if line["job"] == "999999"], "one line, of this job and bob", lines)
    used = mine[0]["devices"][0]
    check(used["device_seconds"] > 0 and used["peak_memory"] >= 1 << 20 and mine[0]["bytes_in"] >= 1 << 20, "what it used", mine[0])


def spank_option(c):
    """--remote-accel on the command line and in #SBATCH: a job without a device has one, with the memory it asked for"""
    site_service(c)
    check("remote-accel" in c.as_user("alice", "srun --help").stdout, "srun knows the option")
    done = c.as_user("alice", "srun --remote-accel=1,mem=64M sh -c 'clinfo -l; clinfo | grep -m1 Global.memory.size; ls -ld $TELECL_SESSION_DIR; cp -r $TELECL_SESSION_DIR kept-token'", timeout=60)
    check(devices(done.stdout) == 1 and "67108864" in done.stdout, "one device with 64 MiB", done.stdout, done.stderr)
    check("drwx------" in done.stdout, "for alice alone", done.stdout)
    job = c.sbatch("alice", "#!/bin/sh\n#SBATCH --remote-accel=1\nclinfo -l\n")
    text = c.completed("alice", job)
    check(devices(text) == 1, "one device", text)
    text = c.as_user("alice", "srun clinfo -l 2>&1", check=False).stdout
    check("telecl" not in text and ":7701" not in text, "a job that asks for none has none of the site's", text)
    for wrong in ["0", "x", "1,mem=4", "1,cpu=1"]:
        done = c.as_user("alice", f"srun --remote-accel={wrong} true", check=False)
        check(done.returncode != 0 and "--remote-accel" in done.stderr, f"{wrong} is refused", done.stderr)
    another_release(c)
    wait_for("tokens are revoked", lambda: len(pathlib.Path("/etc/telecl/revoked").read_text().split("\n")) >= 3, 15)
    kept = f"telecl devices --on {ON_SITE} --ca kept-token/ca.pem --token kept-token/token"
    wait_for("a token that was kept is worth nothing", lambda: "revoked" in c.as_user("alice", kept, check=False).stdout, 15)
    wait_for("the directories are gone", lambda: not c.inside("cpu1", "ls", "/run/telecl/jobs").stdout.strip(), 15)


def licenses(c):
    """accelerators are licenses: a job waits until there are enough, and gets them also without the plugin's option"""
    site_service(c)
    first = c.sbatch("alice", "sleep 60", "--remote-accel=3", "--partition=cpu")
    c.wait_state(first, "RUNNING", 30)
    second = c.sbatch("bob", "clinfo -l", "--remote-accel=2", "--partition=cpu")
    wait_for("the second waits for licenses", lambda: c.reason(second) == "Licenses", 30)
    c.as_user("alice", f"scancel {first}")
    check(devices(c.completed("bob", second)) == 2, "it runs, with its devices", c.output("bob", second))
    third = c.sbatch("bob", "clinfo -l", "--licenses=accel:1", "--partition=cpu")
    check(devices(c.completed("bob", third)) == 1, "a license alone is enough", c.output("bob", third))


SCENARIOS = [
    service_and_client, time_limit_begins, stopped, heterogeneous, two_services_four_clients, users_apart, wrong_input, killed, accounting_has_jobs, cancelled,
    network_cut, preempted, node_crash, time_limit, in_charliecloud, in_podman, with_musl, spank_option, as_many_as_asked, site_accounting, licenses,
]
# These need Apptainer, which Debian 12 does not have (apptainer.py), or what Debian 11 had (debian11.py).
WITH_APPTAINER = [in_apptainer, pod_by_specification, pod_by_annotation, other_pods]
WITH_DEBIAN_11 = [with_old_glibc]


def run_scenarios(c, names):
    failed = []
    known = SCENARIOS + (WITH_APPTAINER if os.path.exists("/opt/apptainer") else []) + (WITH_DEBIAN_11 if os.path.exists("/opt/debian11") else [])
    chosen = [s for s in known if not names or s.__name__ in names]
    for scenario in chosen:
        began = time.monotonic()
        try:
            note = scenario(c)
            print(f"ok    {time.monotonic() - began:5.1f} s  {scenario.__doc__}" + (f" ({note})" if note else ""), flush=True)
        except Exception as error:  # each scenario stands for itself
            failed.append(scenario.__name__)
            print(f"FAIL  {time.monotonic() - began:5.1f} s  {scenario.__doc__} [{scenario.__name__}]", flush=True)
            trace = "" if isinstance(error, Failed) else traceback.format_exc()
            print("      " + f"{error}\n{trace}".replace("\n", "\n      "), flush=True)
            for user in USERS:
                c.as_user(user, "scancel --me", check=False)
            time.sleep(7)
    return failed


def inside(options):
    built = pathlib.Path(options.built).resolve()
    # /tmp will be another.
    work = "/mnt"
    sh("mount", "--bind", options.inside, work)
    spank = built / "release/libspank_telecl.so"
    os.makedirs(f"{work}/opt", exist_ok=True)
    if options.apptainer and os.path.exists(f"{options.apptainer}/usr/bin/apptainer"):
        sh("cp", "-r", options.apptainer, f"{work}/opt/apptainer")
    if options.debian11 and os.path.exists(f"{options.debian11}/mnt"):
        sh("cp", "-a", options.debian11, f"{work}/opt/debian11")
    sh("gcc", "-O2", "-o", f"{work}/opt/busy", str(HERE / "busy.c"), "-lOpenCL")
    # musl's compiler does not look where glibc's headers are.
    os.makedirs(f"{work}/include")
    os.symlink("/usr/include/CL", f"{work}/include/CL")
    sh("musl-gcc", "-O2", "-I", f"{work}/include", "-o", f"{work}/opt/with-musl", str(HERE / "musl.c"))
    cluster = Cluster(
        work, built / "release/telecl", built / "release/libtelecl.so", built / "portable/libtelecl.so",
        spank if spank.exists() else None, ROOT / "deploy/slurm",
    )
    began = time.monotonic()
    cluster.start()
    print(f"Slurm with {len(NODES)} nodes is up after {time.monotonic() - began:.1f} s", flush=True)
    try:
        failed = run_scenarios(cluster, options.only)
        if failed and options.logs:
            sh("cp", "-r", f"{work}/log", f"{work}/daemons.log", f"{work}/home", options.logs)
    finally:
        cluster.stop()
    if failed:
        print(f"{len(failed)} of these failed: {', '.join(failed)}")
        return 1
    print(f"Everything on Slurm works; {time.monotonic() - began:.0f} s.")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--built", required=True, help="the target directory")
    parser.add_argument("--apptainer", help="where apptainer.py has put it; without it, scenarios that need it are left out")
    parser.add_argument("--debian11", help="where debian11.py has put it; the same")
    parser.add_argument("--logs", help="copy Slurm's logs there if something fails")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("only", nargs="*", help="names of scenarios")
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    if os.geteuid() != 0:
        print("error: namespaces with users of their own need root. Try: sudo make e2e-slurm", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="telecl-e2e-slurm-") as work:
        os.chmod(work, 0o755)
        return in_namespaces(work)


def in_namespaces(work):
    """With its first process everything ends that it has started."""
    command = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
               "timeout", "--kill-after=10", str(LIMIT), sys.executable, *sys.argv, "--inside", work]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
