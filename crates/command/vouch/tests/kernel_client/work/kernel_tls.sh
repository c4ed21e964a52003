# Serves with --kernel-tls in this guest, whose kernel has the module tls, and mounts from there.
set -eu
tlshd "$JOB/ca.pem"
fail() { echo "FAILED: $*"; tail -n 20 "$JOB/tlshd.log" /tmp/server.log; exit 1; }
sessions() { awk '$1 == "TlsCurrTxSw" {print $2}' /proc/net/tls_stat; }

mkdir -p /tmp/export /tmp/tree
install -m 600 "$JOB/server.key" /tmp/server.key
SERVER=127.0.0.1 PORT=20490
VOUCH_CONFIG=/dev/null HOME=/tmp "$VOUCH" export --dir /tmp/export --options rw,no_root_squash,insecure,xprtsec=tls --state /tmp/state \
    --listen $SERVER:$PORT --tls-cert "$JOB/server.pem" --tls-key /tmp/server.key --kernel-tls >/tmp/server.log 2>&1 &
server=$!
for _ in $(seq 100); do grep -q "exporting on" /tmp/server.log && break; sleep 0.2; done

head -c 20000000 /dev/urandom >/tmp/tree/noise
for n in $(seq 200); do echo "$n" >"/tmp/tree/$n"; done
for version in 4.2 4.1 4.0; do
    attach $version /export /mnt/e xprtsec=tls || fail "mount $version"
    # The client's session and the server's.
    [ "$(sessions)" -ge 2 ] || fail "$version: the server encrypts by itself: $(cat /proc/net/tls_stat)"
    cp -a /tmp/tree /mnt/e/$version || fail "$version: cp"
    for _ in 1 2 3; do
        echo 3 >/proc/sys/vm/drop_caches
        diff -r /tmp/tree /mnt/e/$version || fail "$version: the data that is read differs"
    done
    (exec 9>/mnt/e/lock; flock -x 9; rm /mnt/e/lock; echo still >&9) || fail "$version: state"
    umount /mnt/e || fail "$version: umount"
    echo "ok: $version by the kernel"
done
kill $server
wait $server || fail "the server does not end well"
! grep -q "encrypts itself" /tmp/server.log || fail "the kernel took no session"
