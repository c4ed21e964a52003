# A ticket of seconds: it works, it ends, nothing works, a new one is got, it works again; what was open meanwhile too.
set -eu
. ./gss.bash
gssd_up
ticket 1 daemon -l 15s
attach "$VERSION" /export /mnt/e sec=krb5i || fail mount
cd /mnt/e
as 1 sh -c 'echo one >file' || fail "a new ticket does not work"
for n in $(seq 120); do
    as 1 sh -c 'echo two >>file' 2>/tmp/why || break
    [ "$n" != 120 ] || fail "an old ticket still works"
    sleep 1
done
echo "ok: it has ended: $(cat /tmp/why)"
[ "$(as 5 cat file 2>&1)" != one ] || fail "somebody without a ticket reads"
ticket 1 daemon
for n in $(seq 120); do
    as 1 sh -c 'echo three >>file' 2>/tmp/why && break
    [ "$n" != 120 ] || fail "the new ticket does not work: $(cat /tmp/why)"
    sleep 1
done
as 1 grep -q three file || fail "what was written is not there"
echo "ok: renewed"
