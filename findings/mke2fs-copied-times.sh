#!/bin/bash
# Guess: `mke2fs -d` gives the files of the new ext4 file system the times of the files that it copies: inodes
# of 256 bytes hold nanoseconds, and times until 2446. `debugfs -R stat` shows what they hold.
# Seen: nanoseconds are gone, so tools that compare times, such as rsync, take each file for changed. A time
# after 2038-01-19 becomes 2038-01-19 03:14:07, from a directory as from a tar archive. The kernel stores
# 2040 in the same file system; debugfs then shows 2176, 136 years (2^32 seconds) later.
# e2fsprogs 1.47.4 of Debian sid, 2026-11-30. Needs root, mmdebstrap, loop devices, a kernel with ext4. Exit 0:
# as seen.
set -eu
work=$(mktemp -d /var/tmp/times.XXXXXX)
trap 'umount "$work/mount" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${TIMES_ROOT:-}" ]; then root=$TIMES_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=e2fsprogs,libarchive13t64 sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' e2fsprogs libarchive13t64
cat >"$work/inner" <<'INNER'
set -eu
export TZ=UTC
mkdir "$1"; cd "$1"; mkdir files
touch -d '2001-02-03 04:05:06.123456789' files/early
touch -d '2040-02-03 04:05:06.5' files/late
tar -C files --format=pax -cf tar .
for from in files tar; do
    truncate -s 20M ext4.$from; mke2fs -q -t ext4 -I 256 -d $from ext4.$from 2>/dev/null
done
INNER
mkdir "$work/mount"
chroot "$root" bash -s /srv/times <"$work/inner"
mv "$root/srv/times" "$work/"
export TZ=UTC
for from in files tar; do
    mount -o loop "$work/times/ext4.$from" "$work/mount"
    (cd "$work/mount" && stat -c "from $from: %n: %y" early late && touch -d '2040-02-03 04:05:06' set && stat -c "the kernel: %n: %y" set)
    umount "$work/mount"
    cp "$work/times/ext4.$from" "$root/srv/"
    echo "debugfs: set: $(chroot "$root" debugfs -R 'stat /set' "/srv/ext4.$from" 2>/dev/null | sed -n 's/^ *mtime: .* -- //p')"
    rm "$root/srv/ext4.$from"
done | tee "$work/seen"
[ "$(cat "$work/seen")" = "from files: early: 2001-02-03 04:05:06.000000000 +0000
from files: late: 2038-01-19 03:14:07.000000000 +0000
the kernel: set: 2040-02-03 04:05:06.000000000 +0000
debugfs: set: Mon Mar 11 10:33:22 2176
from tar: early: 2001-02-03 04:05:06.000000000 +0000
from tar: late: 2038-01-19 03:14:07.000000000 +0000
the kernel: set: 2040-02-03 04:05:06.000000000 +0000
debugfs: set: Mon Mar 11 10:33:22 2176" ]
echo "as seen on 2026-11-30"
