# Appends to a file and creates files while the server is killed and restarted, which destroys all
# contexts. There must be no error and no lost data.
set -eu
. ./gss.bash
gssd_up
ticket 1 daemon
attach "$VERSION" /export /mnt/e sec=krb5p || fail mount
cd /mnt/e
as 1 python3 - <<'P' || fail "operations failed"
import fcntl, os, time
log = open("log", "a"); fcntl.lockf(log, fcntl.LOCK_EX)
os.close(os.open("begun", os.O_CREAT | os.O_WRONLY, 0o644))
count, end = 0, time.time() + 240
while not os.path.exists("enough"):
    log.write("line %d\n" % count); log.flush(); os.fsync(log.fileno())
    with open("file-%d" % count, "w") as f: f.write(str(count)); f.flush(); os.fsync(f.fileno())
    count += 1
    time.sleep(0.02)
    os.listdir(".")
    assert time.time() < end, "the test did not end the load"
assert open("log").read().splitlines() == ["line %d" % n for n in range(count)]
for n in range(count): assert open("file-%d" % n).read() == str(n), n
print("ok: survived", count)
P
