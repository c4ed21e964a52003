# Second of two guests: its locks are denied, then it waits, and gets them when the first guest
# unlocks.
set -eu
attach "$VERSION" /export /mnt/export
exec python3 - <<'P'
import errno, fcntl, os, time
os.chdir("/mnt/export")
def wait(name, limit=60):
    end = time.time() + limit
    while not os.path.exists(name):
        os.listdir("."); time.sleep(0.05)
        assert time.time() < end, name + " did not appear"
def mark(name): os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644))
def refused(call, *a):
    try: call(*a)
    except OSError as e: assert e.errno in (errno.EAGAIN, errno.EACCES), e
    else: raise AssertionError("the lock was granted")
wait("held")
f = open("locked", "r+b"); g = open("flocked", "r+b")
refused(fcntl.lockf, f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50); refused(fcntl.lockf, f, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 99)
fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 150); refused(fcntl.lockf, f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 150)
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 300); refused(fcntl.flock, g, fcntl.LOCK_EX | fcntl.LOCK_NB)
mark("tried")
begun = time.time(); fcntl.lockf(f, fcntl.LOCK_EX, 200, 0); fcntl.flock(g, fcntl.LOCK_EX)
assert os.path.exists("released") or time.time() - begun > 0.2
fcntl.lockf(f, fcntl.LOCK_UN); fcntl.flock(g, fcntl.LOCK_UN); mark("got")
for i in range(40):
    with open("turns", "a") as t:
        fcntl.lockf(t, fcntl.LOCK_EX); t.write("second %d\n" % i); t.flush(); os.fsync(t.fileno()); fcntl.lockf(t, fcntl.LOCK_UN)
mark("second-done")
for i in range(10):
    wait("tick-%d" % i); assert open("tick").read() == "tick %d" % i
    open("tock", "w").write("tock %d" % i); mark("tock-%d" % i)
print("ok: waiter")
P
