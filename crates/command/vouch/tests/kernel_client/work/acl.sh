# Sets NFSv4 ACLs with nfs4_setfacl, and checks which users then have access.
set -eu
attach "$VERSION" /export /mnt/export
cd /mnt/export
echo secret >file; chmod 0600 file
nfs4_getfacl file | grep -q '^A::OWNER@:.*r.*w'
as() { setpriv --reuid="$1" --regid="$2" --clear-groups "${@:3}"; }
refused as 1234 1234 cat file
nfs4_setfacl -a A::1234:RX file
nfs4_getfacl file | grep -q '^A::1234.*:r'
as 1234 1234 cat file | grep -q secret
refused as 1234 1234 bash -c 'echo x >>file'
refused as 1235 1235 cat file
nfs4_setfacl -a A:g:2222:RW file
as 1235 2222 bash -c 'echo more >>file'
mkdir inherit; nfs4_setfacl -a A:fd:1234:RX inherit
echo x >inherit/child; chmod 0750 inherit
nfs4_getfacl inherit/child | grep -q ':1234'
echo "ok: acls"
