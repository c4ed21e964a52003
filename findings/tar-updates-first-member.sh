#!/bin/bash
# Guess: an image or a mount of a tar archive to which `tar --append` or `tar --update` added a newer member shows the newer one,
# as `tar --extract` leaves it ("How to Update an Archive", "Multiple Members with the Same Name" in the manual of GNU tar), or
# ends with an error. mkfs.erofs --tar, mke2fs -d and the file system "tar" of fsspec show it.
# Seen: sqfstar and archivemount show the first member. The file has its old bytes, and with sqfstar its old mode, 0644 where
# 0600 came later. A symbolic link that a file replaced is still there. Both end with 0; sqfstar prints "already exists in the
# tar file, ignoring". tar2sqfs ends with "File exists".
# squashfs-tools 4.7.5, squashfs-tools-ng 1.3.2, archivemount 1c, erofs-utils 1.9.4, e2fsprogs 1.47.4, tar 1.35 of Debian sid,
# fsspec 2026.9.0 of PyPI, 2026-12-01. Needs root, mmdebstrap, /dev/fuse, python3 >= 3.11, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/updates.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=squashfs-tools,squashfs-tools-ng,archivemount,erofs-utils,e2fsprogs sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' squashfs-tools squashfs-tools-ng archivemount erofs-utils e2fsprogs tar
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check fsspec==2026.9.0
[ -e "$root/dev/fuse" ] || mknod -m 600 "$root/dev/fuse" c 10 229
cat >"$root/srv/inner" <<'INNER'
set -u
mount -t proc proc /proc
cd /srv
mkdir files mount
echo old >files/data
chmod 644 files/data
ln -s data files/link
tar -cf archive.tar files
echo new, and longer >files/data
chmod 600 files/data
rm files/link
echo a file >files/link
tar --append -f archive.tar files/data files/link
show() { # NAME STATUS DIRECTORY
    echo "$1, status $2: $([ -d "$3" ] && echo "$(stat -c %a "$3/files/data") $(cat "$3/files/data"), $(readlink "$3/files/link" || cat "$3/files/link")" || echo none)"
}
mkdir extracted
tar -xf archive.tar -C extracted
show tar $? extracted
mkfs.erofs --quiet --tar=f image.erofs archive.tar 2>erofs.log
status=$?
fsck.erofs --extract=erofs image.erofs >>erofs.log 2>&1
show mkfs.erofs $status erofs
mke2fs -q -t ext4 -d archive.tar image.ext4 4M 2>ext4.log
status=$?
mkdir ext4
debugfs -R "rdump / ext4" image.ext4 2>>ext4.log
show mke2fs $status ext4
sqfstar -quiet -no-progress image.squashfs <archive.tar 2>squashfs.log >&2
status=$?
unsquashfs -quiet -no-progress -dest squashfs image.squashfs >>squashfs.log 2>&1
show sqfstar $status squashfs
grep -h ignoring squashfs.log
archivemount -o readonly archive.tar mount
show archivemount $? mount
umount mount
tar2sqfs -q image.second <archive.tar 2>second.log
show tar2sqfs $? no-directory
cat second.log
INNER
{
    timeout -k 5 120 unshare --mount --pid --fork --kill-child chroot "$root" bash /srv/inner 2>"$work/log"
    "$work/python/bin/python" -c '
import fsspec, sys
files = fsspec.filesystem("tar", fo=sys.argv[1])
print("fsspec:", files.cat("files/data").decode().strip() + ",", files.cat("files/link").decode().strip())
' "$root/srv/archive.tar"
} | tee "$work/seen"
[ "$(cat "$work/seen")" = "tar, status 0: 600 new, and longer, a file
mkfs.erofs, status 0: 600 new, and longer, a file
mke2fs, status 0: 600 new, and longer, a file
sqfstar, status 0: 644 old, data
files/data already exists in the tar file, ignoring
files/link already exists in the tar file, ignoring
archivemount, status 0: 444 old, data
tar2sqfs, status 1: none
files/data: File exists
fsspec: new, and longer, a file" ] || { cat "$work/log"; exit 1; }
echo "as seen on 2026-12-01"
