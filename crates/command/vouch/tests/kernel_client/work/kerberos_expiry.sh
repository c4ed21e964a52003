# A short ticket gives access until it expires. A new ticket restores access on the same mount.
set -eu
. ./gss.bash
gssd_up
ticket 1 daemon -l 15s
attach "$VERSION" /export /mnt/e sec=krb5i || fail mount
cd /mnt/e
as 1 sh -c 'echo one >file' || fail "a new ticket does not work"
for n in $(seq 120); do
    as 1 sh -c 'echo two >>file' 2>/tmp/why || break
    [ "$n" != 120 ] || fail "the expired ticket still works"
    sleep 1
done
echo "ok: access ended: $(cat /tmp/why)"
[ "$(as 5 cat file 2>&1)" != one ] || fail "a user without a ticket can read"
ticket 1 daemon
for n in $(seq 120); do
    as 1 sh -c 'echo three >>file' 2>/tmp/why && break
    [ "$n" != 120 ] || fail "the new ticket does not work: $(cat /tmp/why)"
    sleep 1
done
as 1 grep -q three file || fail "the written line is missing"
echo "ok: renewed"
