#!/bin/bash
# Guess: dissect.extfs, by which tools for incidents read images of ext4, gives the times that Linux wrote: those before 1970,
# and those after 2038, for which the extra field of an inode has two bits. The kernel reads the 32 bits of seconds as a signed
# number and adds these bits as multiples of 2^32 seconds.
# Seen: it reads the seconds as unsigned and adds the multiples. Each time before 1970 moves 136 years into the future (1960 is
# read as 2096), and so does each time from 2038 to 2106 (2040 is read as 2176). All other times are right.
# dissect.extfs 3.15 of PyPI, e2fsprogs 1.47.0 of Debian 12, 2026-12-01. Needs root, loop devices, mkfs.ext4, python3 >= 3.10.
# Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/extfs.XXXXXX)
trap 'umount "$work/mount" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
cd "$work"
export TZ=UTC
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check dissect.extfs==3.15
mke2fs -q -t ext4 -I 256 image 16M
mkdir mount
mount -o loop image mount
for time in 1901-12-31 1960-01-01 1970-01-01 2026-12-01 2038-01-20 2040-01-01 2106-01-01 2110-01-01 2250-01-01; do touch -d "$time" "mount/$time"; done
umount mount
mount -o loop,ro image mount
cat >read.py <<'PYTHON'
import os

from dissect.extfs import ExtFS

image = ExtFS(open("image", "rb"))
for name in sorted(os.listdir("mount")):
    if name != "lost+found":
        seconds = image.get("/" + name).mtime_ns // 10**9
        difference = seconds - int(os.stat("mount/" + name).st_mtime)
        print(name, "right" if not difference else f"differs by {difference / 2**32:g} * 2^32 s, {image.get('/' + name).mtime.date()}")
PYTHON
"$work/python/bin/python" read.py | tee seen
[ "$(cat seen)" = "1901-12-31 differs by 1 * 2^32 s, 2038-02-05
1960-01-01 differs by 1 * 2^32 s, 2096-02-06
1970-01-01 right
2026-12-01 right
2038-01-20 differs by 1 * 2^32 s, 2174-02-26
2040-01-01 differs by 1 * 2^32 s, 2176-02-07
2106-01-01 differs by 1 * 2^32 s, 2242-02-07
2110-01-01 right
2250-01-01 right" ]
echo "as seen on 2026-12-01"
