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
