# Exports a directory of CephFS and uses it by NFS: ordinary tools, and an open file while CephFS is
# mounted again and the server starts again. Debian's module has no POSIX ACLs.
set -eu
. "$JOB/cephfs.bash"
mount_ceph
start_server
# The server answers before it has tried its file systems.
until grep -q 'it has no POSIX ACLs: clients cannot set ACLs' "$JOB/server"; do kill -0 $server; sleep 0.1; done
HOLES=no bash "$JOB/files.sh"
umount -a -t nfs4

attach "$VERSION" /export /mnt/open
seq 100000 >/mnt/open/numbers
refused nfs4_setfacl -a A::1234:R /mnt/open/numbers
exec 4</mnt/open/numbers
head -n 10 <&4 >/dev/null
stop_server
umount /mnt/ceph
mount_ceph
start_server
echo 3 >/proc/sys/vm/drop_caches
seq 100000 | cmp - /proc/self/fd/4
exec 4<&-
umount /mnt/open
stop_server
umount /mnt/ceph
trap - EXIT
echo "ok: open file after a remount"
