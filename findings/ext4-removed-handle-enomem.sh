#!/bin/bash
# Guess: open_by_handle_at(2) of a file that was removed fails with ESTALE, always (its page lists ENOMEM
# for a lack of memory only).
# Seen: on ext4 it fails with ENOMEM in some calls, while other files are made and removed and one of them is
# just getting the inode number of the removed file; memory is free. The next calls say ESTALE again. A file
# server that passes ENOMEM on tells its clients of a lack of resources instead of a stale handle.
# Linux 6.18.44 with ext4 (e2fsprogs of Debian 12), 2026-11-29. Needs root, mkfs.ext4, loop devices, two
# processors, python3. Exit 0: as seen, within 30 seconds.
set -eu
command -v mkfs.ext4 >/dev/null || apt-get install -y -qq e2fsprogs
work=$(mktemp -d /var/tmp/ext4-handle.XXXXXX)
trap 'umount "$work/mount" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
mkdir "$work/mount"
truncate -s 64M "$work/image"
mkfs.ext4 -q "$work/image"
mount -o loop "$work/image" "$work/mount"
uname -r
cat >"$work/look.py" <<'PYTHON'
import collections, ctypes, errno, os, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)

class Handle(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]

def handle_of(path):
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), path)
    return handle

directory = sys.argv[1]
mount = os.open(directory, os.O_RDONLY)
handles = []
for number in range(8):
    path = f"{directory}/old{number}"
    open(path, "w").close()
    handles.append((path, handle_of(path)))
for path, _ in handles:
    os.unlink(path)
loop = """
import os, sys
while True:
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY))
    os.unlink(sys.argv[1])
"""
makers = [subprocess.Popen([sys.executable, "-c", loop, f"{directory}/new{number}"]) for number in range(2)]
seen = collections.Counter()
end = time.monotonic() + 30
while time.monotonic() < end and seen["ENOMEM"] < 10:
    for _, handle in handles:
        if libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY) < 0:
            seen[errno.errorcode[ctypes.get_errno()]] += 1
        else:
            seen["opened"] += 1
for maker in makers:
    maker.kill()
    maker.wait()
print(dict(seen), "free memory:", next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).strip())
sys.exit(seen["ENOMEM"] == 0 or seen["ESTALE"] == 0 or seen["opened"] > 0)
PYTHON
python3 "$work/look.py" "$work/mount"
