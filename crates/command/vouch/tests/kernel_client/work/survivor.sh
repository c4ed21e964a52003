# Runs operations, a compiler and a program while the server restarts or the network is down. There
# must be no error and no lost data. Prints the pauses.
set -eu
attach "$VERSION" /export /mnt/export hard
exec python3 - <<'P'
import fcntl, os, random, subprocess, threading, time
os.chdir("/mnt/export")
# Sessions are not persistent: a call that the server executed but did not answer before its death
# is sent again, and fails with ENOENT.
def once(act, *names, done):
    try: act(*names)
    except FileNotFoundError:
        if not done(): raise

pauses, errors, compiled, finished = [], [], 0, threading.Event()
# Compiles in the export and runs the result from there.
def compile_and_run():
    global compiled
    while not finished.is_set():
        for command in (["gcc", "-O1", "-o", "program", "program.c"], ["./program"]):
            result = subprocess.run(command, capture_output=True)
            if result.returncode: errors.append((command, result.stderr)); return
        assert result.stdout == b"%d\n" % sum(range(1000)), result.stdout
        compiled += 1
with open("program.c", "w") as f:
    f.write('#include <stdio.h>\nint main(void) { int s = 0; for (int i = 0; i < 1000; i++) s += i; printf("%d\\n", s); }\n')

# Random writes, truncations and reads of one file, compared with a copy in memory.
copy, choice = bytearray(), random.Random(1)
def exercise(f):
    global copy
    at, length = choice.randrange(200_000), choice.randrange(1, 20_000)
    kind = choice.randrange(3)
    if kind == 0:
        data = choice.randbytes(length)
        copy.extend(bytes(max(0, at + length - len(copy)))); copy[at:at + length] = data
        os.pwrite(f, data, at)
    elif kind == 1:
        copy = copy[:at] + bytes(max(0, at - len(copy)))
        os.ftruncate(f, at)
    else:
        os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(f, length, at) == copy[at:at + length], "random file"

held = open("held", "w+b"); held.write(b"x" * 100); held.flush(); os.fsync(held.fileno()); fcntl.lockf(held, fcntl.LOCK_EX, 50, 0)
unlinked = open("unlinked", "w+b"); unlinked.write(b"kept"); unlinked.flush(); os.fsync(unlinked.fileno()); os.unlink("unlinked")
log = open("acknowledged", "ab", 0)
exercised = os.open("exercised", os.O_RDWR | os.O_CREAT)
compiler = threading.Thread(target=compile_and_run); compiler.start()
open("begun", "w").close()
end = time.time() + float(os.environ["SECONDS_OF_LOAD"])
i = 0
while time.time() < end or not os.path.exists("enough"):
    began, name = time.monotonic(), "f%05d" % i
    with open(name, "wb") as f:
        f.write(name.encode() * 1000); f.flush(); os.fsync(f.fileno())
    if i % 3 == 0: once(os.rename, name, "r%05d" % i, done=lambda: os.path.exists("r%05d" % i))
    if i % 7 == 0 and i % 3: once(os.unlink, name, done=lambda: not os.path.exists(name))
    exercise(exercised)
    log.write(b"%d\n" % i); os.fsync(log.fileno())
    i += 1
    if time.monotonic() - began > 0.5: pauses.append(time.monotonic() - began)
finished.set(); compiler.join()
assert not errors, errors
held.seek(50); held.write(b"y" * 50); held.flush(); os.fsync(held.fileno()); fcntl.lockf(held, fcntl.LOCK_UN)
unlinked.seek(0); assert unlinked.read() == b"kept"
for j in range(i):
    name = ("r%05d" if j % 3 == 0 else "f%05d") % j
    if j % 7 == 0 and j % 3: assert not os.path.exists(name), name
    else: assert open(name, "rb").read() == (b"f%05d" % j) * 1000, name
assert len(open("acknowledged").read().split()) == i
pauses.sort()
print("ok: survivor,", i, "files,", compiled, "compilations,", len(pauses), "pauses over 0.5 s;",
      "p50 %.2f p99 %.2f longest %.2f s" % tuple(pauses[int(len(pauses) * q)] for q in (0.5, 0.99, 0.9999)) if pauses else "")
P
