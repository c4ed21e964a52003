# One of several clients of a pair of heads that fail over. The client makes changes, holds opens
# and locks from start to end, and contends with all clients for one lock. It reports each
# acknowledged change, and the contended lock while it holds it, to the observer at $OBSERVER.
set -eu
[ -z "${SECOND_ADDRESS:-}" ] || ip addr add "$SECOND_ADDRESS/24" dev vec0
as_user() { "$@"; }
fail() {
    echo "failed: $*"
    exit 1
}
if [ "$FLAVOUR" != sys ]; then
    service=$SERVER
    . ./gss.bash
    echo "$service $SERVICE_NAME" >>/etc/hosts
    SERVER=$SERVICE_NAME
    gssd_up
    ticket "$USER_ID" "$PRINCIPAL"
    as_user() { as "$USER_ID" "$@"; }
fi
attach "$VERSION" /export /mnt/export "hard,sec=$FLAVOUR"
as_user python3 - <<'P' || fail "operations failed"
import fcntl, os, socket, struct, time
os.chdir("/mnt/export")
os.umask(0)
number = int(os.environ["NUMBER"])
host, port = os.environ["OBSERVER"].split(":")
stream = socket.create_connection((host, int(port)))
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
answers = stream.makefile()
def tell(line):
    stream.sendall((line + "\n").encode())
    answer = answers.readline().strip()
    assert answer, "the observer is gone"
    return answer
def try_lock(file, length):
    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, 0)
    except BlockingIOError: return False
    return True
def opened(name): return os.open(name, os.O_RDWR | os.O_CREAT, 0o666)

held, unlinked, own, shared = opened("held-%d" % number), opened("unlinked-%d" % number), opened("own-%d" % number), opened("shared")
fcntl.lockf(held, fcntl.LOCK_EX, 50, 0); os.write(held, b"x" * 100); os.fsync(held)
os.write(unlinked, b"kept"); os.fsync(unlinked); os.unlink("unlinked-%d" % number)
tell(str(number))
# Files whose beginning another client has locked until the end.
locked = [opened("held-%d" % other) for other in (1, 2) if other != number] + [opened("own-0")]
deadline = time.time() + 600
while not all(os.stat(name).st_size for name in ["held-1", "held-2", "own-0"]):
    time.sleep(0.1)
    assert time.time() < deadline, "the other clients do not begin"
opened("ready-%d" % number)

acknowledged, turn, name, go = 0, 0, "turn-%d-first" % number, "go"
os.fsync(opened(name))
# rpc.gssd reports EACCES if the head dies while rpc.gssd asks it for a context.
def until_allowed(act, *arguments):
    while True:
        try: return act(*arguments)
        except PermissionError:
            tell("refused")
            time.sleep(0.03)
def changed():
    global acknowledged, go
    acknowledged += 1
    go = tell("changed")
def store(file, value, at): os.pwrite(file, struct.pack(">Q", value) + bytes(56), at); os.fsync(file)
def create(name, content):
    file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
    try: os.write(file, content); os.fsync(file)
    finally: os.close(file)
while go == "go":
    until_allowed(store, own, acknowledged, acknowledged * 64); changed()
    until_allowed(create, "created-%d-%d" % (number, acknowledged), b"%d\n" % acknowledged * 100); changed()
    while not until_allowed(try_lock, shared, 64): time.sleep(0.03)
    expected = int(tell("locked"))
    found = until_allowed(os.pread, shared, 8, 0)
    found = struct.unpack(">Q", found)[0] if found else 0
    if found != expected: tell("lost: %d in place of %d" % (found, expected))
    until_allowed(store, shared, expected + 1, 0)
    changed(); tell("unlocks %d" % (expected + 1))
    until_allowed(fcntl.lockf, shared, fcntl.LOCK_UN, 64, 0)
    later = "turn-%d-%d" % (number, turn)
    # A rename that was executed but not answered before a kill is sent again and fails.
    try: until_allowed(os.rename, name, later); tell("renamed " + later)
    except FileNotFoundError: assert until_allowed(os.path.exists, later), later
    name, turn = later, turn + 1
    tell("granted twice: a lock that another client holds" if until_allowed(try_lock, locked[turn % 2], 50) else "denied")
# The others try the locks of this client until they have finished.
tell("finished")
while tell("others") != "0": time.sleep(0.05)
os.pwrite(held, b"y" * 50, 50); os.fsync(held); fcntl.lockf(held, fcntl.LOCK_UN, 50, 0)
assert os.pread(unlinked, 10, 0) == b"kept"
assert os.path.exists(name)
os.posix_fadvise(own, 0, 0, os.POSIX_FADV_DONTNEED)
for n in range(0, acknowledged, 3): assert os.pread(own, 8, n * 64) == struct.pack(">Q", n), n
for n in range(1, acknowledged, 3): assert open("created-%d-%d" % (number, n), "rb").read() == b"%d\n" % n * 100, n
print("ok: load,", acknowledged, "changes,", turn, "renames")
P
