#!/usr/bin/env python3
"""telecl on a real Slurm: what docs/hpc.md promises, seen to happen. `make e2e-slurm` runs it, as root.

Everything happens in namespaces of this test's own, and ends with it.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import traceback

from cluster import LOGIN, NODES, USERS, Cluster, Failed, sh, wait_for

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# For the whole test: whatever hangs is ended, with everything that it has started.
LIMIT = 900


def check(condition, what, *shown):
    if not condition:
        raise Failed("\n".join([what, *map(str, shown)]))


def place(user, job):
    return pathlib.Path(f"/home/{user}/.telecl/jobs/{job}")


def start(c, user, *options, sbatch=""):
    """A service job that is ready."""
    done = c.as_user(user, f"telecl slurm start --partition gpu --wait 60s {' '.join(options)} -- --mem=800 --cpus-per-task=2 {sbatch}", timeout=90)
    return done.stdout.strip()


def gone(c, user, job, seconds, what):
    """Nothing of a service job is left: no directory, no process, no scratch."""
    wait_for(f"{what}: the directory is gone", lambda: not place(user, job).exists(), seconds)

    def left():
        # Slurm's own daemons may name the job.
        found = []
        for node in c.nodes:
            listed = c.inside(node, "sh", "-c", f"ls -d /tmp/telecl-*-{job}-* 2>/dev/null; pgrep -u {user} -af 'telecl (slurm|worker)' | grep -- {job}").stdout
            found += listed.split("\n") if listed.strip() else []
        return found

    wait_for(f"{what}: nothing is left ({left()})", lambda: not left(), seconds)


def devices(text):
    return len(re.findall(r"Device #", text))


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
    lines = [json.loads(line) for path in pathlib.Path("/home/alice/.telecl/accounting").glob(f"{service}-*") for line in path.read_text().splitlines()]
    return f"devices seen: 4; lines of accounting: {len(lines)}"


def accounting_has_jobs(c):
    """accounting has the job and the user of the program, and telecl top shows them"""
    service = start(c, "alice", "--gres gpu:1")
    client = c.sbatch("alice", f"telecl slurm run --service {service} -- hashcat {HASHCAT_BENCH} & sleep 1; wait", "--partition=cpu")
    c.wait_state(client, "RUNNING", 30)
    node = json.loads(next((place("alice", service) / "nodes").iterdir()).read_text())

    def shown():
        done = c.inside(node["node"], "sh", "-c", f"/opt/telecl/bin/telecl sessions --json --on unix:$(ls -d /tmp/telecl-*-{service}-*)/service.sock")
        return done.stdout if f'"{client}"' in done.stdout else None

    wait_for("telecl sessions shows the job", shown, 60)
    c.wait_state(client, ("COMPLETED", "FAILED"), 120)
    c.as_user("alice", f"telecl slurm stop {service}")
    c.completed("alice", service, 30)
    lines = [json.loads(line) for path in pathlib.Path("/home/alice/.telecl/accounting").glob(f"{service}-*") for line in path.read_text().splitlines()]
    mine = [line for line in lines if line.get("job") == client]
    check(mine, "a line of the job", lines)
    check(mine[0]["user"] == "alice", "the user", mine[0])
    return f"device seconds of job {client}: {sum(d['device_seconds'] for d in mine[0]['devices']):.1f}"


def heterogeneous(c):
    """a heterogeneous job: one script that telecl printed, accelerators and program together"""
    script = c.as_user(
        "alice", "telecl slurm het --gres gpu:2 --partition gpu --program-partition cpu -- clinfo -l"
    ).stdout
    job = c.sbatch("alice", script)
    text = c.completed("alice", job, 60)
    check(devices(text) == 2, "the program sees two devices", text)
    gone(c, "alice", job, 10, "after the program's end")


def two_services_four_clients(c):
    """two services on one node, and four clients, two of each"""
    services = [start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu1") for _ in range(2)]
    clients = [c.sbatch("alice", f"telecl slurm run --service {s} -- clinfo -l", "--partition=cpu") for s in services * 2]
    for client in clients:
        text = c.completed("alice", client)
        check(devices(text) == 1, "one device", text)
    addresses = {(place("alice", s) / "telecl.toml").read_text().split("services")[1].split("\n")[0] for s in services}
    check(len(addresses) == 2, "each has a port of its own", addresses)
    c.as_user("alice", f"scancel {' '.join(services)}")
    for service in services:
        gone(c, "alice", service, 15, "after scancel")


def users_apart(c):
    """bob cannot use alice's service: not by its number, not with a secret of his own"""
    service = start(c, "alice", "--gres gpu:1")
    done = c.as_user("bob", f"telecl slurm run --service {service} -- clinfo -l", check=False)
    check(done.returncode == 2 and "alice" in done.stderr and "own user" in done.stderr, "told whose it is", done.stderr)
    address = re.search(r'services = \["([^"]*)"', (place("alice", service) / "telecl.toml").read_text())[1]
    done = c.as_user("bob", f"cat {place('alice', service)}/secret", check=False)
    check(done.returncode != 0, "bob reads alice's secret")
    c.as_user("bob", "rm -f s; telecl secret create s")
    job = c.sbatch("bob", f"telecl devices --on {address} --secret $HOME/s", "--partition=cpu")
    c.wait_state(job, ("COMPLETED", "FAILED"), 60)
    text = c.output("bob", job)
    check("No device can be reached" in text and "secret" in text, "refused", text)
    job = c.sbatch("alice", f"telecl devices --on {address} --secret {place('alice', service)}/secret", "--partition=cpu")
    check("basic" in c.completed("alice", job), "alice, with hers, sees it", c.output("alice", job))
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


# Runs for a long time, and says so when it has begun.
LONG = "telecl slurm run --service {} -- sh -c 'echo begun; hashcat " + "{}" + "'; echo ended $?"
HASHCAT_BENCH = "--potfile-disable --force -D 1,2,3 --runtime=40 -m 1400 -a 3 ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff ?a?a?a?a?a?a?a?a"


def long_client(c, user, service):
    job = c.sbatch(user, LONG.format(service, HASHCAT_BENCH), "--partition=cpu")
    wait_for("the program runs", lambda: "begun" in c.output(user, job), 60)
    return job


def cancelled(c):
    """scancel: the service, its directory and its sessions are gone within KillWait; the program is told"""
    service = start(c, "alice", "--gres gpu:1")
    client = long_client(c, "alice", service)
    time.sleep(3)
    began = time.monotonic()
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 20, "after scancel")
    took = time.monotonic() - began
    wait_for("the program ends", lambda: "ended" in c.output("alice", client), 60)
    return f"gone after {took:.1f} s"


def preempted(c):
    """preemption with requeue: the same job comes back, with a new secret and new ports, and serves"""
    service = start(c, "alice", "--gres gpu:2", sbatch="--nodelist=gpu2 --requeue")
    secret = (place("alice", service) / "secret").read_text()
    urgent = c.sbatch("bob", "sleep 3", "--partition=urgent", "--nodelist=gpu2", "--gres=gpu:2")
    wait_for("the service makes way", lambda: not place("alice", service).exists(), 30)
    c.completed("bob", urgent, 60)
    client = c.sbatch("alice", f"telecl slurm run --service {service} -- clinfo -l", "--partition=cpu")
    text = c.completed("alice", client, 90)
    check(devices(text) == 2, "two devices again", text)
    check((place("alice", service) / "secret").read_text() != secret, "the secret is new")
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def time_limit(c, begun=None):
    """the time limit: no new sessions, the present ones have their time, and the job completes"""
    if begun is None:
        return start(c, "alice", "--gres gpu:1", "--time 1", "--drain 10s", sbatch="--nodelist=gpu1")
    c.completed("alice", begun, 90)
    gone(c, "alice", begun, 10, "after the time limit")
    log = pathlib.Path(f"/home/alice/.telecl/log/{begun}.log").read_text()
    check("takes no new sessions" in log, "it was drained", log)
    return None


def network_cut(c):
    """a network cut: shorter than the grace, programs go on; the service is found again"""
    service = start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu2")
    client = c.sbatch("alice", f"telecl slurm run --service {service} -- sh -c 'sleep 4; clinfo -l'", "--partition=cpu")
    c.wait_state(client, "RUNNING", 30)
    c.cut("gpu2")
    time.sleep(3)
    c.mend("gpu2")
    done = c.as_user("alice", f"telecl slurm run --service {service} -- clinfo -l", timeout=60)
    check(devices(done.stdout) == 1, "one device", done.stdout, done.stderr)
    c.wait_state(client, ("COMPLETED", "FAILED"), 60)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def node_crash(c):
    """a node without power: whoever comes is told so in bounded time, and the requeued job serves again"""
    service = start(c, "alice", "--gres gpu:1", sbatch="--nodelist=gpu2 --requeue")
    c.crash("gpu2")
    began = time.monotonic()
    done = c.as_user("alice", f"telecl slurm run --service {service} --wait 4s -- clinfo -l", timeout=60, check=False)
    check(done.returncode == 3 and str(service) in done.stderr, "not ready", done.stderr)
    told = time.monotonic() - began
    wait_for("Slurm notices", lambda: c.state(service) in ("PENDING", "NODE_FAIL", "COMPLETING"), 60)
    c.boot("gpu2")
    wait_for("the node is back", lambda: c.idle() >= len(NODES) - 1, 60)
    done = c.as_user("alice", f"telecl slurm run --service {service} --wait 60s -- clinfo -l", timeout=90)
    check(devices(done.stdout) == 1, "one device", done.stdout, done.stderr)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")
    return f"told after {told:.1f} s"


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
    refused("telecl slurm pod-snippet 999999", 3, "telecl.toml")
    service = start(c, "alice", "--gres gpu:1")
    where = place("alice", service)
    c.as_user("alice", f"chmod 755 {where}")
    refused(f"telecl slurm run --service {service} -- clinfo", 2, "chmod 700", str(where))
    c.as_user("alice", f"chmod 700 {where}; chmod 644 {where}/secret")
    refused(f"telecl slurm run --service {service} -- clinfo", 2, "chmod 600", "secret")
    c.as_user("alice", f"chmod 600 {where}/secret; cp -a {where} kept; scancel {service}")
    gone(c, "alice", service, 15, "after scancel")
    c.as_user("alice", f"mv kept {where}")
    refused(f"telecl slurm run --service {service} -- clinfo", 3, "stale", str(where), "rm -r")
    held = c.sbatch("alice", "exec telecl slurm service", "--partition=gpu", "--hold")
    refused(f"telecl slurm run --service {held} --wait 1s -- clinfo", 3, "not ready", "PENDING", held)
    c.as_user("alice", f"scancel {held}")
    # The next service cleans up after those that could not.
    service = start(c, "alice", "--gres gpu:1")
    check(not where.exists(), "the stale directory is gone")
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


# Programs with their libraries and data, of this machine's Debian: an image that was never told of telecl.
IMAGE = ["/bin/sh", "/bin/true", "/bin/ls", "/bin/cat", "/usr/bin/env", "/usr/bin/clinfo", "/usr/bin/hashcat"]


def make_image(c):
    image = c.work / "srv/image"
    for directory in ["etc", "proc", "sys", "dev", "tmp", "home", "mnt", "opt", "run", "usr/share"]:
        (image / directory).mkdir(parents=True)
    files = set(IMAGE) | {"/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"}
    for program in list(files):
        text = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60).stdout
        files |= set(re.findall(r"(/\S+)", text))
    for path in sorted(files):
        # Where the loader looks for it, whatever it is a link to.
        target = image / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        sh("cp", "-L", path, str(target))
    for path in ["/usr/share/hashcat", "/usr/lib/x86_64-linux-gnu/hashcat", "/usr/lib/hashcat"]:
        if os.path.exists(path):
            (image / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            sh("cp", "-rL", path, str(image / path.lstrip("/")))
    for name in ["etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf"]:
        (image / name).write_text("")
    sh("chmod", "-R", "a+rX", str(image))
    return "/srv/image"


HASHES = "hashcat --potfile-disable --force --quiet --self-test-disable -D 1,2,3 -m 0 -a 3 {} '?d?d?d'"


def in_charliecloud(c):
    """clinfo and hashcat in a Charliecloud image that knows nothing of telecl"""
    import hashlib

    image = make_image(c)
    service = start(c, "alice", "--gres gpu:1")
    wanted = hashlib.md5(b"427").hexdigest()
    (c.work / "home/alice/in-image.sh").write_text(
        "cd /tmp && clinfo -l && HOME=/tmp " + HASHES.format(wanted) + "\n"
    )
    body = f"ch-run --no-passwd --write-fake=no 2>/dev/null; cp in-image.sh /tmp/; exec ch-run $(telecl container-args charliecloud --service {service}) {image} -- sh /tmp/in-image.sh"
    job = c.sbatch("alice", body.split("; ", 1)[1], "--partition=cpu")
    text = c.completed("alice", job, 180)
    check(devices(text) == 1 and f"{wanted}:427" in text, "a device, and a found word", text)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


def pod_by_specification(c):
    """HPK, by pod specification: what telecl printed is enough, with only the pod's volumes and environment"""
    service = start(c, "alice", "--gres gpu:1")
    snippet = c.as_user("alice", f"telecl slurm pod-snippet {service}").stdout
    host = re.search(r"hostPath: {path: (\S+)}", snippet)[1]
    mount = re.search(r"mountPath: (\S+),", snippet)[1]
    env = re.findall(r"{name: (\w+), value: (\S+)}", snippet)
    check(host.startswith("/home/alice/"), "HPK takes hostPath below $HOME only", snippet)
    # As HPK does with a volume and an environment file, in a container that is given nothing else.
    (c.work / "srv/image/opt/telecl").mkdir(exist_ok=True)
    check(mount == "/opt/telecl", "the mount point", snippet)
    sets = " ".join(f"--set-env={name}={value}" for name, value in env)
    job = c.sbatch("alice", f"exec env -i PATH=/usr/bin:/bin USER=alice ch-run --unset-env='*' {sets} --bind {host}:{mount} /srv/image -- /usr/bin/clinfo -l", "--partition=cpu")
    text = c.completed("alice", job, 60)
    check(devices(text) == 1, "one device", text)
    c.as_user("alice", f"scancel {service}")
    gone(c, "alice", service, 15, "after scancel")


SCENARIOS = [
    service_and_client, heterogeneous, two_services_four_clients, users_apart, wrong_input, accounting_has_jobs, cancelled,
    network_cut, preempted, node_crash, in_charliecloud, pod_by_specification,
]


def run_scenarios(c, names):
    failed = []
    chosen = [s for s in SCENARIOS if not names or s.__name__ in names]
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
    work = tempfile.mkdtemp(prefix="telecl-e2e-slurm-")
    os.chmod(work, 0o755)
    spank = built / "release/libspank_telecl.so"
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
            sh("cp", "-r", f"{work}/log", f"{work}/daemons.log", options.logs)
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
    parser.add_argument("--logs", help="copy Slurm's logs there if something fails")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("only", nargs="*", help="names of scenarios")
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    if os.geteuid() != 0:
        print("error: namespaces with users of their own need root. Try: sudo make e2e-slurm", file=sys.stderr)
        return 1
    # With its first process everything ends that it has started.
    command = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
               "timeout", "--kill-after=10", str(LIMIT), sys.executable, *sys.argv, "--inside"]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
