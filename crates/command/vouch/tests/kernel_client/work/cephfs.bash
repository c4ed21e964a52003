# Sourced by scripts that export a directory of CephFS, which the kernel mounts from $MONITOR.
# CEPH_MODULE: the client, if not Debian's.
modules=$GUEST_ROOT/usr/lib/uml/modules/$(uname -r)
for module in $(sed -n 's/^[^ ]*\/ceph\.ko: *//p' "$modules/modules.dep" | tr ' ' '\n' | tac); do
    busybox insmod "$modules/$module" 2>/dev/null || true
done
busybox insmod "${CEPH_MODULE:-$modules/kernel/fs/ceph/ceph.ko}"
export HOME=/tmp VOUCH_CONFIG=/dev/null VOUCH_LOG=info
export SERVER=127.0.0.1

# mount_ceph [OPTIONS]
mount_ceph() {
    mkdir -p /mnt/ceph
    busybox mount -t ceph -o "name=admin,ms_mode=crc${1:+,$1}" "$MONITOR:/" /mnt/ceph
    mkdir -p /mnt/ceph/data
}

start_server() {
    "$VOUCH" export --dir /mnt/ceph/data --pseudo /export --options rw,no_root_squash,insecure --listen 127.0.0.1:2049 --state /tmp/state --lease 10 >>"$JOB/server" 2>&1 4<&- &
    server=$!
    until (exec 3<>/dev/tcp/127.0.0.1/2049) 2>/dev/null; do kill -0 $server; sleep 0.1; done
}

stop_server() {
    kill $server
    wait $server
}

trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
trap 'tail -n 20 $JOB/server' EXIT
