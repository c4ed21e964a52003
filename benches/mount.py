#!/usr/bin/env python3
"""mount.py: the mount against sshfs (cold) and the local file system (warm), on this machine.

Each work is done by both sides in turn, in one run; the table shows medians and the ratio of medians. Cold means a fresh client without
any cache, the server's files in its page cache; warm means in the kernel's cache, on both sides.

    benches/mount.py --vouch target/release/vouch [--dir /tmp] [--rounds 5] [--large-gib 4] [work ...]

Works: small large huge compile list. Needs root or fusermount3; sshd, ssh-keygen and sshfs for the peer; gcc and make for compile; perf
for the share of verification. A private sshd with keys of its own listens on loopback; nothing outside --dir is changed.
"""

import argparse
import datetime
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
# Below the range from which the kernel takes ports of its own.
SSH_PORT, VOUCH_PORT = (int(os.environ.get(name, port)) for name, port in (("MOUNT_SSH_PORT", 22022), ("MOUNT_VOUCH_PORT", 24340)))


def run(*command, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "check": True} | options
    return subprocess.run([str(c) for c in command], **options).stdout


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(what, done, seconds=20):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            sys.exit(f"mount.py: {what} did not happen within {seconds} s")
        time.sleep(0.01)


class Bench:
    def __init__(self, options, work):
        self.options, self.work, self.processes = options, work, []
        self.source, self.point, self.peer = (os.path.join(work, name) for name in ("source", "vouch", "sshfs"))
        for path in (self.source, self.point, self.peer):
            os.mkdir(path)
        self.mount_process = None

    # -- servers ------------------------------------------------------------------------------------------------------------------

    def start_sshd(self):
        for key in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.work}/{key}.key")
        shutil.copy(f"{self.work}/user.key.pub", f"{self.work}/authorized")
        config = f"""Port {SSH_PORT}
ListenAddress 127.0.0.1
HostKey {self.work}/host.key
AuthorizedKeysFile {self.work}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""
        open(f"{self.work}/sshd_config", "w").write(config)
        os.makedirs("/run/sshd", exist_ok=True)
        self.start("/usr/sbin/sshd", "-D", "-f", f"{self.work}/sshd_config")
        time.sleep(0.5)

    def start_vouch(self):
        v = self.options.vouch
        run(v, "keygen", "--out", f"{self.work}/keys")
        run(v, "publish", self.source, "--db", f"{self.work}/db", "--keys", f"{self.work}/keys", "--location", f"127.0.0.1:{VOUCH_PORT}")
        keys = f"{self.work}/keys"
        self.name = next(w for w in run(v, "name", keys, "--location", f"127.0.0.1:{VOUCH_PORT}").split() if w.startswith("@"))
        self.start(v, "serve", "--db", f"{self.work}/db", "--listen", f"127.0.0.1:{VOUCH_PORT}")
        wait_for("serving", lambda: "serving on" in open(f"{self.work}/servers.log").read())

    def start(self, *command):
        log = open(f"{self.work}/servers.log", "a")
        process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    # -- mounts: each is a fresh client -------------------------------------------------------------------------------------------

    def mount_vouch(self):
        cache = ["--no-cache"]
        if self.options.passthrough:
            shutil.rmtree(f"{self.work}/cache", ignore_errors=True)
            cache = [f"--passthrough={self.options.passthrough}", "--cache", f"{self.work}/cache", "--cache-quota", "40G"]
        command = [self.options.vouch, "mount", self.name, self.point, *cache, "--state", f"{self.work}/state"]
        self.mount_process = self.start(*command, *self.options.mount_option)
        wait_for("mounting", lambda: os.path.ismount(self.point))
        return self.point

    def wait_for_copy(self):
        """Waits until the client has the file as a whole, which it writes behind the reader's back."""
        if self.options.passthrough in ("auto", "always"):
            names = lambda: [n for n in os.listdir(f"{self.work}/cache") if n.startswith("whole-") and not n.endswith(".new")]
            wait_for("a whole copy", names, 120)

    def unmount_vouch(self):
        # Not by a signal: what is timed next should not compete with an unmounting before.
        run(*(("umount",) if os.geteuid() == 0 else ("fusermount3", "-u")), self.point)
        self.mount_process.wait(20)
        self.processes.remove(self.mount_process)

    def mount_sshfs(self):
        options = f"ro,port={SSH_PORT},IdentityFile={self.work}/user.key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null"
        run("sshfs", "-o", options, f"127.0.0.1:{self.source}", self.peer)
        return self.peer

    def unmount_sshfs(self):
        run("fusermount3", "-u", self.peer)

    def fresh(self, side, work):
        """Seconds of `work` on a fresh mount of a side."""
        mount, unmount = (self.mount_vouch, self.unmount_vouch) if side == "vouch" else (self.mount_sshfs, self.unmount_sshfs)
        root = mount()
        # The root itself is looked at, so that the peer's connection is set up as ours is.
        os.stat(root)
        began = time.perf_counter()
        work(root)
        took = time.perf_counter() - began
        unmount()
        return took

    def paired(self, what, work, sides, rounds, unit_bytes=None, wanted=None, measure=None):
        """Runs `work` on each side in turn; prints medians and the peer's time over ours."""
        measure = measure or self.fresh
        times = {side: [] for side in sides}
        for round_number in range(rounds):
            for side in sides if round_number % 2 == 0 else reversed(sides):
                times[side].append(measure(side, work))
        medians = {side: statistics.median(values) for side, values in times.items()}
        rate = lambda s: f" ({unit_bytes / MIB / s:8.0f} MiB/s)" if unit_bytes else ""
        row = ", ".join(f"{side} {s:8.4f} s{rate(s)}" for side, s in medians.items())
        ratio = medians[sides[1]] / medians[sides[0]]
        goal = f"  goal {wanted}" if wanted else ""
        print(f"{what:44} {row}  {sides[1]}/{sides[0]} {ratio:6.2f}{goal}", flush=True)

    def stop(self):
        for path in (self.point, self.peer):
            if os.path.ismount(path):
                subprocess.run(["umount", "-l", path])
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(20)


# -- works ------------------------------------------------------------------------------------------------------------------------

def small_names():
    return [f"small/d{d}/f{n:03}" for d in range(10) for n in range(100)]


def make_small(source):
    for name in small_names():
        path = os.path.join(source, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "wb").write(os.urandom(1024))


def read_small(root):
    for name in small_names():
        fd = os.open(os.path.join(root, name), os.O_RDONLY)
        assert len(os.read(fd, 4096)) == 1024
        os.close(fd)


def make_file(path, size):
    with open(path, "wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))


def read_whole(path):
    fd, buffer = os.open(path, os.O_RDONLY), bytearray(MIB)
    while os.readv(fd, [buffer]):
        pass
    os.close(fd)


def read_random(path, count, seed=1):
    size, chooser = os.stat(path).st_size, random.Random(seed)
    offsets = [chooser.randrange(size // 8192) * 8192 for _ in range(count)]
    fd, buffer = os.open(path, os.O_RDONLY), bytearray(8192)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for offset in offsets:
        assert os.preadv(fd, [buffer], offset) == 8192
    os.close(fd)




def bench_small(bench):
    bench.paired("cold read of 1,000 x 1 KiB in 10 directories", read_small, ("vouch", "sshfs"), bench.options.rounds, wanted=">= 5")
    bench.mount_vouch()
    pid, before = bench.mount_process.pid, 0
    before = cpu_seconds(pid)
    read_small(bench.point)
    print(f"{'  CPU of the vouch client for it':44} {cpu_seconds(pid) - before:.3f} s", flush=True)
    bench.unmount_vouch()
    if shutil.which("perf"):
        data = f"{bench.work}/perf.data"
        shares = []
        for _ in range(bench.options.rounds):
            bench.mount_vouch()
            perf = subprocess.Popen(["perf", "record", "-q", "-F", "9999", "-o", data, "-p", str(bench.mount_process.pid)], stderr=subprocess.DEVNULL)
            time.sleep(0.5)
            read_small(bench.point)
            perf.send_signal(signal.SIGINT)
            perf.wait()
            report = run("perf", "report", "-i", data, "--stdio", "--sort", "symbol")
            lines = [l.split("%") for l in report.splitlines() if "%" in l and not l.startswith("#")]
            shares.append(sum(float(share) for share, symbol in lines if "blake3" in symbol))
            bench.unmount_vouch()
        print(f"{'  of it verification (BLAKE3), by perf':44} {statistics.median(shares):.1f} %  goal <= 10 %", flush=True)


def bench_file(bench, name, size, rounds):
    label = f"{size >> 20} MiB"
    cold = lambda work: lambda root: work(os.path.join(root, name))
    bench.paired(f"cold sequential read, {label}", cold(read_whole), ("vouch", "sshfs"), rounds, size, ">= 2")
    bench.paired(f"cold random 8 KiB x 2,000, {label}", cold(lambda p: read_random(p, 2000)), ("vouch", "sshfs"), rounds, 2000 * 8192)
    roots = {"vouch": bench.mount_vouch(), "local": bench.source}
    for root in roots.values():
        read_whole(os.path.join(root, name))
    bench.wait_for_copy()
    for root in roots.values():
        read_whole(os.path.join(root, name))

    def measure(side, work):
        began = time.perf_counter()
        work(os.path.join(roots[side], name))
        return time.perf_counter() - began

    bench.paired(f"warm sequential read, {label}", read_whole, ("vouch", "local"), 2 * rounds + 1, size, ">= 0.95", measure)
    bench.paired(f"warm random 8 KiB x 50,000, {label}", lambda p: read_random(p, 50_000), ("vouch", "local"), 2 * rounds + 1, 50_000 * 8192, ">= 0.95", measure)
    bench.unmount_vouch()


def make_project(source):
    """A C project of 60 files, each of which includes many of 120 headers and some of the system's."""
    project = os.path.join(source, "project")
    os.makedirs(f"{project}/include/sub")
    chooser = random.Random(7)
    for n in range(120):
        body = "".join(f"static inline int h{n}_{k}(int x) {{ return x * {k} + {n}; }}\n" for k in range(40))
        struct = "".join(f"  int field{k};\n" for k in range(30))
        deeper = f'#include "h{n // 2}.h"\n' if n else ""
        open(f"{project}/include/sub/h{n}.h", "w").write(f"#ifndef H{n}\n#define H{n}\n{deeper}struct s{n} {{\n{struct}}};\n{body}#endif\n")
    objects = []
    for n in range(60):
        includes = "".join(f'#include "h{chooser.randrange(120)}.h"\n' for _ in range(25))
        system = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
        body = "".join(f"int f{n}_{k}(int *a, int c) {{ int s = 0; for (int i = 0; i < c; i++) s += a[i] * {k + 1}; return s; }}\n" for k in range(30))
        open(f"{project}/c{n}.c", "w").write(system + includes + body)
        objects.append(f"c{n}.o")
    # Two directories that lack the headers come first, as in real projects.
    flags = "-O1 -I$(SRC)/none -I$(SRC)/include -I$(SRC)/include/sub"
    make = f"OBJECTS = {' '.join(objects)}\nall: $(OBJECTS)\n%.o: $(SRC)/%.c\n\t@gcc {flags} -c -o $@ $<\n"
    open(f"{project}/Makefile", "w").write(make)
    os.mkdir(f"{project}/none")


def bench_compile(bench):
    roots = {"vouch": bench.mount_vouch(), "local": bench.source}
    jobs = os.cpu_count() or 2

    def measure(side, _):
        objects = tempfile.mkdtemp(dir=bench.work)
        source = os.path.join(roots[side], "project")
        began = time.perf_counter()
        run("make", "-s", f"-j{jobs}", "-C", objects, "-f", f"{source}/Makefile", f"SRC={source}")
        took = time.perf_counter() - began
        shutil.rmtree(objects)
        return took

    for side in roots:
        measure(side, None)
    bench.paired("compile of 60 C files, warm", None, ("local", "vouch"), bench.options.rounds, wanted="<= 1.02", measure=measure)
    bench.unmount_vouch()


def make_big(source):
    os.mkdir(f"{source}/big")
    for n in range(200_000):
        os.close(os.open(f"{source}/big/file-{n:06}.dat", os.O_CREAT | os.O_WRONLY, 0o644))


def bench_list(bench):
    def ls(root):
        with open(os.devnull, "w") as null:
            subprocess.run(["ls", "-l", os.path.join(root, "big")], stdout=null, check=True)

    def measure(side, work):
        if side == "vouch":
            return bench.fresh("vouch", work)
        began = time.perf_counter()
        work(bench.source)
        return time.perf_counter() - began

    bench.paired("ls -l of 200,000 entries, cold", ls, ("vouch", "local"), bench.options.rounds, wanted="<= 1.5 s for vouch", measure=measure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vouch", default="target/release/vouch", type=os.path.abspath)
    parser.add_argument("--dir", default="/tmp")
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--large-gib", default=4, type=int)
    parser.add_argument("--passthrough", nargs="?", const="always", choices=("never", "auto", "always"), help="with a disk cache, fresh for each mount; passthrough needs root")
    parser.add_argument("--mount-option", default=[], action="append", help="passed on to vouch mount")
    parser.add_argument("works", nargs="*", default=[])
    options = parser.parse_args()
    works = options.works or ["small", "large", "huge", "compile", "list"]
    cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "?")
    memory = next(int(l.split()[1]) >> 20 for l in open("/proc/meminfo") if l.startswith("MemTotal"))
    print(f"# {datetime.date.today()}  {os.cpu_count()} x {cpu}, {memory} GiB, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}; loopback; medians of {options.rounds} rounds")
    print(f"# {run('sshfs', '--version', stderr=subprocess.STDOUT).splitlines()[0]}; {run(options.vouch, '--version').strip()}", flush=True)
    work = tempfile.mkdtemp(prefix="vouch-bench-", dir=options.dir)
    bench = Bench(options, work)
    try:
        if "small" in works:
            make_small(bench.source)
        if "large" in works:
            make_file(f"{bench.source}/large", 40 * MIB)
        if "huge" in works:
            make_file(f"{bench.source}/huge", options.large_gib << 30)
        if "compile" in works:
            make_project(bench.source)
        if "list" in works:
            make_big(bench.source)
        bench.start_sshd()
        bench.start_vouch()
        if "small" in works:
            bench_small(bench)
        if "large" in works:
            bench_file(bench, "large", 40 * MIB, options.rounds)
        if "huge" in works:
            bench_file(bench, "huge", options.large_gib << 30, max(1, options.rounds // 2))
        if "compile" in works:
            bench_compile(bench)
        if "list" in works:
            bench_list(bench)
    except BaseException:
        print(open(f"{work}/servers.log").read()[-4000:], file=sys.stderr)
        raise
    finally:
        bench.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
