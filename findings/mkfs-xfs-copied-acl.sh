#!/bin/bash
# Guess: `mkfs.xfs -p DIR`, new in xfsprogs, keeps POSIX ACLs and extended attributes of the files that it
# copies, as `mke2fs -d DIR` and mkfs.erofs do.
# Seen: it writes an ACL as an attribute for users, user.system.posix_acl_access, which no kernel obeys, so
# users and groups named in it have no rights. Default ACLs of directories go the same way. An attribute with
# an empty value is left out. It says nothing and ends with 0. Other attributes are kept.
# xfsprogs 7.2.0, e2fsprogs 1.47.4 of Debian sid, 2026-11-30. Needs root, mmdebstrap, python3, loop devices, a kernel with
# XFS and ext4. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/xfs.XXXXXX)
trap 'umount "$work/mount" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${XFS_ROOT:-}" ]; then root=$XFS_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=xfsprogs,e2fsprogs,acl,attr,mount sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' xfsprogs e2fsprogs
cat >"$work/inner" <<'INNER'
set -eu
cd "$1"; mkdir files; echo x >files/x
mkdir files/directory
setfacl -m u:1234:r files/x; setfacl -d -m u:1234:rx files/directory
setfattr -n user.full -v value files/x; setfattr -n user.empty files/x
truncate -s 400M xfs ext4
mkfs.xfs -q -p files xfs; echo "mkfs.xfs -p ends with $?"
mke2fs -q -t ext4 -d files ext4 2>/dev/null
INNER
mkdir "$work/mount" "$root/srv/populate"
chroot "$root" bash -s /srv/populate <"$work/inner" | tee "$work/seen"
mv "$root/srv/populate" "$work/"
for kind in ext4 xfs; do
    mount -o loop,ro "$work/populate/$kind" "$work/mount"
    for file in x directory; do
        python3 - "$kind" "$work/mount/$file" <<'PYTHON'
import os, sys
kind, path = sys.argv[1:]
names = sorted(name for name in os.listxattr(path) if not name.startswith("trusted."))
print(f"{kind}: {os.path.basename(path)}: {' '.join(names)}")
PYTHON
    done
    umount "$work/mount"
done | tee -a "$work/seen"
[ "$(cat "$work/seen")" = "mkfs.xfs -p ends with 0
ext4: x: system.posix_acl_access user.empty user.full
ext4: directory: system.posix_acl_default
xfs: x: user.full user.system.posix_acl_access
xfs: directory: user.system.posix_acl_default" ]
echo "as seen on 2026-11-30"
