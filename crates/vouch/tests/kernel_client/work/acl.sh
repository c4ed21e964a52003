# Sets NFSv4 ACLs with nfs4_setfacl, and checks which users then have access.
set -eu
attach "$VERSION" /export /mnt/export
cd /mnt/export
echo secret >file; chmod 0600 file
nfs4_getfacl file | grep -q '^A::OWNER@:.*r.*w'
as() { setpriv --reuid="$1" --regid="$2" --clear-groups "${@:3}"; }
! as 1234 1234 cat file 2>/dev/null
nfs4_setfacl -a A::1234:RX file
nfs4_getfacl file | grep -q '^A::1234.*:r'
as 1234 1234 cat file | grep -q secret
! as 1234 1234 bash -c 'echo x >>file' 2>/dev/null
! as 1235 1235 cat file 2>/dev/null
nfs4_setfacl -a A:g:2222:RW file
as 1235 2222 bash -c 'echo more >>file'
mkdir inherit; nfs4_setfacl -a A:fd:1234:RX inherit
echo x >inherit/child; chmod 0750 inherit
nfs4_getfacl inherit/child | grep -q ':1234'
echo "ok: acls"
