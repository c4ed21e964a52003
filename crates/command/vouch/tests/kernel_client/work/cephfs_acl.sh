# ACLs over the kernel's client of CephFS: NFSv4 ACLs of the export and POSIX ACLs of CephFS are the
# same, both sides enforce them, and new files inherit them.
set -eu
. "$JOB/cephfs.bash"
mount_ceph acl
start_server
refused grep 'has no POSIX ACLs' "$JOB/server"
bash "$JOB/acl.sh"
umount /mnt/export
attach "$VERSION" /export /mnt/export
data=/mnt/ceph/data export=/mnt/export
as() { setpriv --reuid="$1" --regid="$2" --clear-groups "${@:3}"; }
# has FILE ENTRY: ENTRY is in the POSIX ACL.
has() { getfacl -cpn "$1" | grep -qE -- "^$2(\s|$)"; }

# Set by NFS (acl.sh).
has $data/file 'user:1234:r-x'
has $data/file 'group:2222:rw-'
has $data/inherit 'default:user:1234:r-x'
has $data/inherit/child 'user:1234:r-x'
as 1234 1234 grep -q secret $data/file
refused as 1234 1234 bash -c "echo no >>$data/file"
as 1235 2222 bash -c "echo direct >>$data/file"
refused as 1235 1235 cat $data/file

# Set on CephFS.
mkdir -m 0700 $data/team
setfacl -m u:1234:rwx,g:2222:x,d:u:1234:rwx,d:g:2222:rx $data/team
nfs4_getfacl $export/team | grep -qE '^A::1234[^:]*:rwa'
nfs4_getfacl $export/team | grep -qE '^A:fdi:1234[^:]*:rwa'
as 1234 1234 bash -c "cd $export/team && echo plan >plan && mkdir below && echo deep >below/deep"
for file in plan below/deep; do
    has $data/team/$file 'user:1234:rwx'
    has $data/team/$file 'group:2222:r-x'
    nfs4_getfacl $export/team/$file | grep -qE '^A:g:2222[^:]*:r'
    as 1235 2222 cat $export/team/$file >/dev/null
    refused as 1235 2222 bash -c "echo no >>$export/team/$file"
    refused as 1235 1235 cat $export/team/$file
done
has $data/team/below 'default:user:1234:rwx'

# CephFS has stored them.
umount /mnt/export
stop_server
umount /mnt/ceph
mount_ceph acl
start_server
attach "$VERSION" /export /mnt/export
has $data/team/below/deep 'group:2222:r-x'
as 1235 2222 cat $export/team/below/deep >/dev/null
refused as 1235 1235 cat $export/team/below/deep
as 1235 2222 bash -c "echo again >>$export/file"

# Removed by NFS.
nfs4_setfacl -s A::OWNER@:RWTC,A::GROUP@:tc,A::EVERYONE@:tc $export/file
refused has $data/file '(user|group):[0-9]+:...'
for side in $data $export; do
    refused as 1234 1234 cat $side/file
    refused as 1235 2222 bash -c "echo no >>$side/file"
done
umount /mnt/export
stop_server
umount /mnt/ceph
trap - EXIT
echo "ok: ACLs on both sides"
