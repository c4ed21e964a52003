#!/bin/bash
# Guess: mkfs.erofs keeps the POSIX ACLs of a tar archive. EROFS has them, and mkfs.erofs copies those of a
# directory; tar --acls and bsdtar --acls store them as SCHILY.acl.access, the usual form.
# Seen: it drops them without a word and ends with 0. The mode that is left is that of the archive, for GNU
# tar the one whose group bits are the mask of the ACL. Only an archive that has the raw attribute beside, by
# --xattrs-include=system.posix_acl_access, gives the ACL.
# erofs-utils 1.9.4, tar 1.35, libarchive 3.8.10 of Debian sid, 2026-11-30. Needs root, mmdebstrap, python3, loop devices, a
# kernel with EROFS. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/acl.XXXXXX)
trap 'umount "$work/mount" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${ACL_ROOT:-}" ]; then root=$ACL_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=erofs-utils,libarchive-tools,acl sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' erofs-utils tar libarchive-tools
cat >"$work/inner" <<'INNER'
set -eu
mkdir "$1"; cd "$1"; mkdir files; echo x >files/x; chmod 640 files/x
setfacl -m u:1234:rw files/x
tar -C files --format=pax --acls -cf tar.tar .
bsdtar -C files --format=pax --acls -cf bsdtar.tar .
tar -C files --format=pax --acls --xattrs --xattrs-include=system.posix_acl_access -cf raw.tar .
for archive in tar bsdtar raw; do mkfs.erofs --quiet --tar=f $archive $archive.tar; done
mkfs.erofs --quiet directory files
INNER
mkdir "$work/mount"
chroot "$root" bash -s /srv/acl <"$work/inner"
mv "$root/srv/acl" "$work/"
for image in directory tar bsdtar raw; do
    mount -o loop,ro -t erofs "$work/acl/$image" "$work/mount"
    echo "$image: mode $(stat -c %a "$work/mount/x"), attributes $(python3 -c 'import os, sys; print(os.listxattr(sys.argv[1]))' "$work/mount/x")"
    umount "$work/mount"
done | tee "$work/seen"
[ "$(cat "$work/seen")" = "directory: mode 660, attributes ['system.posix_acl_access']
tar: mode 660, attributes []
bsdtar: mode 640, attributes []
raw: mode 660, attributes ['system.posix_acl_access']" ]
echo "as seen on 2026-11-30"
