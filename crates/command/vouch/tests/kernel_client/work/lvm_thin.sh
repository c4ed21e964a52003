# Exports a thin volume of LVM with its snapshots, which are mounted read-only. snapshots.sh reads
# them by NFS, over a restart of the server and the removal of a snapshot. The server runs when the
# volume of the snapshot is removed.
set -eu
modules=$GUEST_ROOT/usr/lib/uml/modules/$(uname -r)
for wanted in dm-thin-pool dm-snapshot; do
    for module in $(sed -n "s#^[^ ]*/$wanted\.ko: *##p" "$modules/modules.dep" | tr ' ' '\n' | tac) kernel/drivers/md/$wanted.ko; do
        busybox insmod "$modules/$module" 2>/dev/null || true
    done
done
export HOME=/tmp VOUCH_CONFIG=/dev/null SERVER=127.0.0.1
lvm() {
    command lvm "$@" --config 'activation { udev_sync=0 udev_rules=0 monitoring=0 } global { thin_check_executable="" use_lvmpolld=0 } backup { backup=0 archive=0 } devices { use_devicesfile=0 filter=["a|^/dev/ubda$|","r|.*|"] }' >>"$JOB/lvm" 2>&1
}
snapshot() {
    lvm lvcreate -s -n "$1" group/data
    lvm lvchange -ay -K "group/$1"
    mkdir -p "/srv/snapshots/$1"
    busybox mount -t ext4 -o ro "/dev/mapper/group-$1" "/srv/snapshots/$1"
}
start_server() {
    "$VOUCH" --log-level info export --dir /srv/data --pseudo /export --options rw,no_root_squash,insecure,snapshots=/srv/snapshots --listen 127.0.0.1:2049 --state /tmp/state --lease 5 >>"$JOB/server" 2>&1 &
    server=$!
    until (exec 3<>/dev/tcp/127.0.0.1/2049) 2>/dev/null; do kill -0 $server; sleep 0.1; done
}
wait_for() { until [ -e "/srv/data/$1" ]; do kill -0 $client; sleep 0.1; done; }
trap 'tail -n 20 $JOB/lvm $JOB/server' EXIT
mount -n -t tmpfs tmpfs /srv
[ -e /dev/ubda ] || mknod /dev/ubda b 98 0
lvm pvcreate /dev/ubda
lvm vgcreate group /dev/ubda
lvm lvcreate --type thin-pool -L 600M -n pool group
lvm lvcreate -V 400M --thinpool pool -n data group
mkfs.ext4 -q /dev/mapper/group-data
mkdir -p /srv/data /srv/snapshots
busybox mount -t ext4 /dev/mapper/group-data /srv/data
rm -rf /srv/data/lost+found
mkdir /srv/data/dir
echo -n first >/srv/data/dir/file
snapshot one
echo -n second >/srv/data/dir/file
snapshot two
echo -n live >/srv/data/dir/file
start_server
bash "$JOB/snapshots.sh" &
client=$!
wait_for ready
kill -9 $server
wait $server || true
start_server
touch /srv/data/restarted
wait_for survived
# The client has a file of it open.
if umount /srv/snapshots/one 2>/dev/null; then echo "unmounted a snapshot in use"; exit 1; fi
umount -l /srv/snapshots/one
rmdir /srv/snapshots/one
until lvm lvremove -y group/one; do kill -0 $server; sleep 1; done
until grep -q "files in removed snapshots" "$JOB/server"; do kill -0 $server; sleep 0.1; done
echo -n third >/srv/data/dir/file
snapshot three
echo -n live >/srv/data/dir/file
touch /srv/data/removed
wait $client
# Mounts of snapshots may just have expired.
umount -a -l -t nfs4 || true
kill $server
wait $server
trap 'tail -n 20 $JOB/lvm' EXIT
umount /srv/snapshots/two /srv/snapshots/three /srv/data
lvm vgchange -an group
trap - EXIT
echo "ok: snapshots of a thin volume"
