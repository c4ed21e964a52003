#!/bin/bash
# Guess: an EROFS image shows the same times and sizes by erofsfuse(1), for machines whose users may not mount,
# as by the kernel.
# Seen: erofsfuse cuts each time to whole seconds, so rsync and backups take all files for changed where the
# image was mounted before. It answers statfs with zeros, so df(1) leaves the mount out. A compressed file
# has the blocks of its full size in st_blocks, where the kernel counts those of the image.
# erofs-utils 1.9.4 (erofsfuse) of Debian sid, 2026-11-30. Needs root, /dev/fuse, mmdebstrap, unshare(1),
# python3, a kernel with EROFS. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/erofs.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${EROFS_ROOT:-}" ]; then root=$EROFS_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=erofsfuse,erofs-utils,fuse3 sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' erofsfuse erofs-utils
cat >"$work/inner" <<'INNER'
set -eu
work=$1 root=$2
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/mnt"
mkdir "$root/mnt/kernel" "$root/mnt/erofsfuse"
mount -o loop,ro -t erofs "$work/image" "$root/mnt/kernel"
cp "$work/image" "$root/mnt/"
chroot "$root" erofsfuse /mnt/image /mnt/erofsfuse >/dev/null 2>&1
for reader in kernel erofsfuse; do
    python3 - "$root/mnt/$reader" $reader <<'PYTHON'
import os, sys
path, name = sys.argv[1:]
status, space = os.stat(path + "/file"), os.statvfs(path)
print(f"{name}: nanoseconds {status.st_mtime_ns % 10**9}, size {status.st_size}, blocks for all of it: {status.st_blocks * 512 >= status.st_size}, file system of {'some' if space.f_blocks else 'no'} blocks")
PYTHON
    umount "$root/mnt/$reader"
done
INNER
chroot "$root" bash -eu <<'FILES'
mkdir -p /srv/erofs/files; cd /srv/erofs
seq 200000 >files/file
touch -d '2026-11-30 12:00:00.123456789' files/file
mkfs.erofs --quiet -zlz4hc image files
FILES
mv "$root/srv/erofs/image" "$work/image"; rm -r "$root/srv/erofs"
timeout 100 unshare --mount --propagation private bash "$work/inner" "$work" "$root" | tee "$work/seen"
[ "$(cat "$work/seen")" = "kernel: nanoseconds 123456789, size 1288895, blocks for all of it: False, file system of some blocks
erofsfuse: nanoseconds 0, size 1288895, blocks for all of it: True, file system of no blocks" ]
echo "as seen on 2026-11-30"
