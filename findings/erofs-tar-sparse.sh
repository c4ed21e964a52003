#!/bin/bash
# Guess: mkfs.erofs makes an image of a tar archive with sparse files as tar extracts it: same names, sizes and
# bytes. mke2fs(8) -d and tar2sqfs(1) do so with the archives that GNU tar writes with --sparse.
# Seen: mkfs.erofs ends with 0 for both formats and leaves wrong trees. A sparse file of the GNU format is
# missing. One of the PAX format is there as GNUSparseFile.0/NAME, shorter, with the map of holes before its
# data. sqfstar(1) refuses the PAX archive if its names begin with "./", as those of `tar -C DIR -c .` do.
# erofs-utils 1.9.4, e2fsprogs 1.47.4, squashfs-tools 4.7.5, squashfs-tools-ng 1.3.2, tar 1.35 of Debian sid,
# 2026-11-30. Needs root, mmdebstrap. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/sparse.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${SPARSE_ROOT:-}" ]; then root=$SPARSE_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=erofs-utils,e2fsprogs,libarchive13t64,squashfs-tools,squashfs-tools-ng sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' erofs-utils e2fsprogs libarchive13t64 squashfs-tools squashfs-tools-ng tar
cat >"$work/inner" <<'INNER'
set -u
mkdir "$1"; cd "$1"; mkdir files
truncate -s 1M files/sparse; printf data | dd of=files/sparse bs=1 seek=917504 conv=notrunc 2>/dev/null
echo plain >files/plain
sum=$(sha256sum <files/sparse)
report() { # LABEL STATUS DIRECTORY
    echo "$1 ends with $2: $(cd "$3" 2>/dev/null && find . -type f ! -path '*lost+found*' | sort | while read -r file; do
        [ "${file##*/}" != sparse ] || echo "${file#./} of $(s=$(stat -c %s "$file"); [ $s = 1048576 ] && echo 1048576 || echo fewer) bytes ($([ "$(sha256sum <"$file")" = "$sum" ] && echo right || echo wrong))"; done)"
}
for format in gnu pax; do
    tar -C files --sparse --format=$format -cf $format.tar .
    mkfs.erofs --quiet --tar=f erofs $format.tar >/dev/null 2>&1; status=$?
    fsck.erofs --extract=$format.1 erofs >/dev/null 2>&1; report "$format: mkfs.erofs" $status $format.1
    truncate -s 20M ext4; mke2fs -q -F -d $format.tar ext4 >/dev/null 2>&1; status=$?
    mkdir $format.2; debugfs -R "rdump / $format.2" ext4 >/dev/null 2>&1; report "$format: mke2fs" $status $format.2
    tar2sqfs -q -f squashfs <$format.tar >/dev/null 2>&1; status=$?
    unsquashfs -q -n -d $format.3 squashfs >/dev/null 2>&1; report "$format: tar2sqfs" $status $format.3
    rm squashfs; sqfstar -quiet -no-progress squashfs <$format.tar >/dev/null 2>&1; status=$?
    unsquashfs -q -n -d $format.4 squashfs >/dev/null 2>&1; report "$format: sqfstar" $status $format.4
done
cd /; rm -r "$1"
INNER
chroot "$root" bash -s /srv/sparse <"$work/inner" | tee "$work/seen"
[ "$(cat "$work/seen")" = "gnu: mkfs.erofs ends with 0: 
gnu: mke2fs ends with 0: sparse of 1048576 bytes (right)
gnu: tar2sqfs ends with 0: sparse of 1048576 bytes (right)
gnu: sqfstar ends with 0: sparse of 1048576 bytes (right)
pax: mkfs.erofs ends with 0: GNUSparseFile.0/sparse of fewer bytes (wrong)
pax: mke2fs ends with 0: sparse of 1048576 bytes (right)
pax: tar2sqfs ends with 0: sparse of 1048576 bytes (right)
pax: sqfstar ends with 1: " ]
echo "as seen on 2026-11-30"
