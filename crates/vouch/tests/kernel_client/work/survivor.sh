# Runs operations while the server restarts or the network is down. There must be no error and no
# lost data.
set -eu
attach "$VERSION" /export /mnt/export hard
exec python3 - <<'P'
import fcntl, os, time
os.chdir("/mnt/export")
# Sessions are not persistent: a call that the server executed but did not answer before its death
# is sent again, and fails with ENOENT.
def once(act, *names, done):
    try: act(*names)
    except FileNotFoundError:
        if not done(): raise
held = open("held", "w+b"); held.write(b"x" * 100); held.flush(); os.fsync(held.fileno()); fcntl.lockf(held, fcntl.LOCK_EX, 50, 0)
unlinked = open("unlinked", "w+b"); unlinked.write(b"kept"); unlinked.flush(); os.fsync(unlinked.fileno()); os.unlink("unlinked")
log = open("acknowledged", "ab", 0)
open("begun", "w").close()
end = time.time() + float(os.environ["SECONDS_OF_LOAD"])
i = 0
while time.time() < end or not os.path.exists("enough"):
    name = "f%05d" % i
    with open(name, "wb") as f:
        f.write(name.encode() * 1000); f.flush(); os.fsync(f.fileno())
    if i % 3 == 0: once(os.rename, name, "r%05d" % i, done=lambda: os.path.exists("r%05d" % i))
    if i % 7 == 0 and i % 3: once(os.unlink, name, done=lambda: not os.path.exists(name))
    log.write(b"%d\n" % i); os.fsync(log.fileno())
    i += 1
held.seek(50); held.write(b"y" * 50); held.flush(); os.fsync(held.fileno()); fcntl.lockf(held, fcntl.LOCK_UN)
unlinked.seek(0); assert unlinked.read() == b"kept"
for j in range(i):
    name = ("r%05d" if j % 3 == 0 else "f%05d") % j
    if j % 7 == 0 and j % 3: assert not os.path.exists(name), name
    else: assert open(name, "rb").read() == (b"f%05d" % j) * 1000, name
assert len(open("acknowledged").read().split()) == i
print("ok: survivor,", i, "files")
P
