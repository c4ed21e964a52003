# Exports a directory of CephFS, which the kernel mounts from $MONITOR, and uses it by NFS: ordinary
# tools, and an open file while CephFS is mounted again and the server starts again.
set -eu
modules=$GUEST_ROOT/usr/lib/uml/modules/$(uname -r)
for module in $(sed -n 's/^[^ ]*\/ceph\.ko: *//p' "$modules/modules.dep" | tr ' ' '\n' | tac) kernel/fs/ceph/ceph.ko; do
    busybox insmod "$modules/$module" 2>/dev/null || true
done
export HOME=/tmp VOUCH_CONFIG=/dev/null
export SERVER=127.0.0.1
mount_ceph() { mkdir -p /mnt/ceph; busybox mount -t ceph -o name=admin,ms_mode=crc "$MONITOR:/" /mnt/ceph; mkdir -p /mnt/ceph/data; }
start_server() {
    "$VOUCH" export --dir /mnt/ceph/data --pseudo /export --options rw,no_root_squash,insecure --listen 127.0.0.1:2049 --state /tmp/state --lease 10 >>"$JOB/server" 2>&1 4<&- &
    server=$!
    until (exec 3<>/dev/tcp/127.0.0.1/2049) 2>/dev/null; do kill -0 $server; sleep 0.1; done
}
trap 'tail -n 20 $JOB/server' EXIT
mount_ceph
start_server
HOLES=no bash "$JOB/files.sh"
umount -a -t nfs4

attach "$VERSION" /export /mnt/open
seq 100000 >/mnt/open/numbers
exec 4</mnt/open/numbers
head -n 10 <&4 >/dev/null
kill $server
wait $server
umount /mnt/ceph
mount_ceph
start_server
echo 3 >/proc/sys/vm/drop_caches
seq 100000 | cmp - /proc/self/fd/4
exec 4<&-
umount /mnt/open
kill $server
wait $server
umount /mnt/ceph
trap - EXIT
echo "ok: open file after a remount"
