# File operations under each flavour: by a user with a ticket, by another user on the first user's
# file, by a user without a ticket, and by root.
set -eu
. ./gss.bash
gssd_up
ticket 1 daemon
ticket 5 games
head -c 3000000 /dev/urandom >/tmp/data
chmod 644 /tmp/data
for version in 4.1 4.2 4.0; do
    for flavour in krb5 krb5i krb5p; do
        attach $version /export /mnt/e sec=$flavour || fail "mount $version $flavour"
        cd /mnt/e
        grep -q " /mnt/e nfs4 .*sec=$flavour," /proc/mounts || fail "$version $flavour is not the flavour of the mount"
        mine=daemon-$version-$flavour
        as 1 cp /tmp/data "$mine" || fail "$version $flavour: cp"
        as 1 chmod 600 "$mine" || fail "$version $flavour: chmod"
        # Read from the server, not from the page cache.
        echo 3 >/proc/sys/vm/drop_caches
        as 1 cmp /tmp/data "$mine" || fail "$version $flavour: the data that is read differs"
        as 1 sh -c "mkdir d-$mine && cd d-$mine && for n in 1 2 3 4 5 6 7 8 9; do echo \$n >f\$n; done && mv f1 g && ln g h && ln -s g l && rm f2 && test \$(ls | wc -l) = 10 && cat l && cat f*" >/dev/null \
            || fail "$version $flavour: directories"
        as 1 python3 -c "import fcntl; f = open('$mine', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX)" || fail "$version $flavour: locks"
        if as 5 cat "$mine" >/dev/null 2>&1; then fail "$version $flavour: another user can read the file"; fi
        as 5 sh -c "echo hers >games-$mine" || fail "$version $flavour: the other user cannot create a file"
        if as 8 ls . >/dev/null 2>&1; then fail "$version $flavour: a user without a ticket has access"; fi
        # Root has no ticket and uses the machine's credentials.
        echo machine >machine-$version-$flavour || fail "$version $flavour: root cannot create a file"
        if cat "$mine" >/dev/null 2>&1; then fail "$version $flavour: root can read the file"; fi
        cd /
        umount /mnt/e || fail "$version $flavour: umount"
        echo "ok: $version $flavour"
    done
done
# Without sec= the client takes the export's first flavour.
attach 4.2 /export /mnt/e || fail "mount without a flavour"
grep -q ' /mnt/e nfs4 .*sec=krb5p,' /proc/mounts || fail "the mount does not use the first flavour: $(grep /mnt/e /proc/mounts)"
umount /mnt/e
if attach 4.2 /export /mnt/e sec=sys 2>/dev/null; then fail "a mount with sys succeeds"; fi
echo "ok: the strongest is chosen"
# After repeated lock and unlock of an open file, another client can take the lock. In NFSv4.0 the
# kernel also releases the lock owner.
attach 4.0 /export /mnt/e sec=krb5 || fail "mount 4.0"
attach 4.2 /export /mnt/o sec=krb5 || fail "second mount"
as 1 sh -c 'umask 0; : >/mnt/e/lent' || fail "create a world-writable file"
as 1 python3 - <<'P' || fail "lock and unlock"
import fcntl, os, time
def wait_for(name):
    end = time.time() + 60
    while name not in os.listdir("/mnt/e"):
        assert time.time() < end, name
        time.sleep(0.05)
if os.fork() == 0:
    file = open("/mnt/e/lent", "r+b")
    for turn in range(4):
        fcntl.lockf(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_UN)
        time.sleep(0.3)
    open("/mnt/e/given-back", "w")
    wait_for("seen")
    os._exit(0)
wait_for("given-back")
P
as 5 python3 -c "import fcntl; f = open('/mnt/o/lent', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)" || fail "the lock is not free after unlock"
as 1 touch /mnt/e/seen
umount /mnt/o || fail "umount"
for _ in $(seq 100); do
    umount /mnt/e 2>/dev/null && break
    sleep 0.1
done
echo "ok: lent"
