#!/bin/bash
# Guess: `mkfs.xfs -p DIR` makes a file system from each tree that its user may read, as `mke2fs -d` and mkfs.erofs
# do, for example a published tree that belongs to root.
# Seen: it ends with "cannot open DIR: Operation not permitted" unless the user owns the files or is root. It
# opens them with O_NOATIME, which open(2) grants to the owner only, and does not try without.
# xfsprogs 7.2.0, e2fsprogs 1.47.4, erofs-utils 1.9.4 of Debian sid, 2026-11-30. Needs root, mmdebstrap. Exit 0: as
# seen.
set -eu
work=$(mktemp -d /var/tmp/xfs.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${XFS_ROOT:-}" ]; then root=$XFS_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=xfsprogs,e2fsprogs,erofs-utils sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' xfsprogs e2fsprogs erofs-utils
chroot "$root" bash -s <<'INNER' | tee "$work/seen"
set -u
mkdir -p /srv/owner/files /srv/owner/images; cd /srv/owner
echo text >files/file; chmod 755 files; chmod 644 files/file; chown 65534 images
make() { # LABEL USER COMMAND...
    label=$1 user=$2; shift 2
    truncate -s 400M images/image; chown 65534 images/image
    setpriv --reuid="$user" --clear-groups "$@" >said 2>&1; status=$?
    echo "$label: $status$(sed -n 's/^mkfs.xfs: /, /p' said)"
    rm images/image
}
make "mke2fs as another user" 65534 mke2fs -q -F -d files images/image
make "mkfs.erofs as another user" 65534 mkfs.erofs --quiet images/image files
make "mkfs.xfs as another user" 65534 mkfs.xfs -q -f -p files images/image
chown -R 65534 files
make "mkfs.xfs as the owner" 65534 mkfs.xfs -q -f -p files images/image
rm -r /srv/owner
INNER
[ "$(cat "$work/seen")" = "mke2fs as another user: 0
mkfs.erofs as another user: 0
mkfs.xfs as another user: 1, cannot open files: Operation not permitted
mkfs.xfs as the owner: 0" ]
echo "as seen on 2026-11-30"
