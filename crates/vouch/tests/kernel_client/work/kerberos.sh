# Ordinary work under each flavour, by a user with a ticket, one with another's file before him, one without a ticket, and the machine itself.
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
        grep -q " /mnt/e nfs4 .*sec=$flavour," /proc/mounts || fail "$version $flavour is not what was mounted"
        mine=daemon-$version-$flavour
        as 1 cp /tmp/data "$mine" || fail "$version $flavour: cp"
        as 1 chmod 600 "$mine" || fail "$version $flavour: chmod"
        # Not from memory.
        echo 3 >/proc/sys/vm/drop_caches
        as 1 cmp /tmp/data "$mine" || fail "$version $flavour: what was written is not read back"
        as 1 sh -c "mkdir d-$mine && cd d-$mine && for n in 1 2 3 4 5 6 7 8 9; do echo \$n >f\$n; done && mv f1 g && ln g h && ln -s g l && rm f2 && test \$(ls | wc -l) = 10 && cat l && cat f*" >/dev/null \
            || fail "$version $flavour: directories"
        as 1 python3 -c "import fcntl; f = open('$mine', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX)" || fail "$version $flavour: locks"
        if as 5 cat "$mine" >/dev/null 2>&1; then fail "$version $flavour: another user's ticket reads what is not his"; fi
        as 5 sh -c "echo hers >games-$mine" || fail "$version $flavour: the other user's own file"
        if as 8 ls . >/dev/null 2>&1; then fail "$version $flavour: a user without a ticket is let in"; fi
        # Root has no ticket of his own: it is the machine that asks.
        echo machine >machine-$version-$flavour || fail "$version $flavour: the machine"
        if cat "$mine" >/dev/null 2>&1; then fail "$version $flavour: root reads what is not his"; fi
        cd /
        umount /mnt/e || fail "$version $flavour: umount"
        echo "ok: $version $flavour"
    done
done
# No flavour asked for: the export's first is what the client is offered first.
attach 4.2 /export /mnt/e || fail "mount without a flavour"
grep -q ' /mnt/e nfs4 .*sec=krb5p,' /proc/mounts || fail "another than the first: $(grep /mnt/e /proc/mounts)"
umount /mnt/e
if attach 4.2 /export /mnt/e sec=sys 2>/dev/null; then fail "sys is let in"; fi
echo "ok: the strongest is chosen"
# Locks that a user takes and gives back, again and again, while he has the file open, are free for others each time: in 4.0 his machine gives their owner back.
attach 4.0 /export /mnt/e sec=krb5 || fail "mount 4.0"
attach 4.2 /export /mnt/o sec=krb5 || fail "mount beside it"
as 1 sh -c 'umask 0; : >/mnt/e/lent' || fail "a file for all"
as 1 python3 - <<'P' || fail "locks given back"
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
as 5 python3 -c "import fcntl; f = open('/mnt/o/lent', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)" || fail "the server still holds what was given back"
as 1 touch /mnt/e/seen
umount /mnt/o || fail "umount"
for _ in $(seq 100); do
    umount /mnt/e 2>/dev/null && break
    sleep 0.1
done
echo "ok: lent"
