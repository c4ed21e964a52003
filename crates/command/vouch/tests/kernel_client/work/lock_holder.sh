# First of two guests: takes locks, synchronizes with the second guest by files, and checks the
# writes of the second.
set -eu
attach "$VERSION" /export /mnt/export
exec python3 - <<'P'
import fcntl, os, time
os.chdir("/mnt/export")
def wait(name, limit=60):
    end = time.time() + limit
    while not os.path.exists(name):
        os.listdir("."); time.sleep(0.05)
        assert time.time() < end, name + " did not appear"
def mark(name): os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644))
f = open("locked", "w+b"); fcntl.lockf(f, fcntl.LOCK_EX, 100, 0); fcntl.lockf(f, fcntl.LOCK_SH, 100, 100)
g = open("flocked", "w+b"); fcntl.flock(g, fcntl.LOCK_EX)
mark("held"); wait("tried")
time.sleep(0.5); fcntl.lockf(f, fcntl.LOCK_UN); fcntl.flock(g, fcntl.LOCK_UN); mark("released")
wait("got")
# Both guests append under a lock; no line may be lost.
for i in range(40):
    with open("turns", "a") as t:
        fcntl.lockf(t, fcntl.LOCK_EX); t.write("first %d\n" % i); t.flush(); os.fsync(t.fileno()); fcntl.lockf(t, fcntl.LOCK_UN)
mark("first-done"); wait("second-done")
lines = open("turns").read().splitlines()
assert sorted(lines) == sorted(["first %d" % i for i in range(40)] + ["second %d" % i for i in range(40)]), lines
# An open sees the other guest's writes (close-to-open consistency), even if this guest had a
# delegation.
for i in range(10):
    open("tick", "w").write("tick %d" % i); mark("tick-%d" % i); wait("tock-%d" % i)
    assert open("tock").read() == "tock %d" % i
print("ok: holder")
P
