# Mounts with Kerberos over TLS: the ticket says who asks, and TLS protects the rest. A mount without
# TLS must fail.
set -eu
. ./gss.bash
tlshd "$JOB/ca.pem"
gssd_up
ticket 1 daemon
head -c 3000000 /dev/urandom >/tmp/data
chmod 644 /tmp/data
for version in 4.2 4.1; do
    attach $version /export /mnt/e sec=krb5,xprtsec=tls || fail "mount $version: $(tail -n 5 "$JOB/tlshd.log")"
    cd /mnt/e
    grep -q " /mnt/e nfs4 .*sec=krb5,.*xprtsec=tls" /proc/mounts || fail "$version: $(grep /mnt/e /proc/mounts)"
    as 1 cp /tmp/data "daemon-$version" || fail "$version: cp"
    echo 3 >/proc/sys/vm/drop_caches
    as 1 cmp /tmp/data "daemon-$version" || fail "$version: the data that is read differs"
    as 1 python3 -c "import fcntl; f = open('daemon-$version', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX)" || fail "$version: locks"
    if as 8 ls . >/dev/null 2>&1; then fail "$version: a user without a ticket has access"; fi
    cd /
    umount /mnt/e || fail "$version: umount"
    echo "ok: $version krb5 over TLS"
done
if attach 4.2 /export /mnt/e sec=krb5 2>/dev/null && ls /mnt/e; then fail "a mount without TLS has access"; fi
echo "ok: no mount without TLS"
