#!/bin/bash
# Guess: a file system of mfusepy, the maintained fork of fusepy, exchanges two files for renameat2(RENAME_EXCHANGE), or
# refuses the flag with EINVAL, as renameat2(2) says of file systems without it. `mv --exchange` of coreutils 9.5 uses it.
# Seen: with libfuse 3 mfusepy drops the flag and calls `rename(old, new)`. The call ends with 0, the first file takes the place of
# the second, and the content of the second is lost. With libfuse 2 the call is refused with EINVAL, and both files stay.
# mfusepy 3.1.1 of PyPI, libfuse3 3.14.0 and libfuse2 2.9.9 of Debian 12, 2026-12-01. Needs root, /dev/fuse, both libraries,
# python3 >= 3.9. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/mfusepy.XXXXXX)
trap 'umount -l "$work/mount" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
cd "$work"
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check mfusepy==3.1.1
cat >files.py <<'PYTHON'
import os, sys

import mfusepy

class Files(mfusepy.Operations):
    use_ns = True

    def getattr(self, path, fh=None):
        status = os.lstat(sys.argv[1] + path)
        return {"st_mode": status.st_mode, "st_nlink": status.st_nlink, "st_size": status.st_size}

    def readdir(self, path, fh):
        return [".", ".."] + os.listdir(sys.argv[1] + path)

    def rename(self, old, new):
        os.rename(sys.argv[1] + old, sys.argv[1] + new)

mfusepy.FUSE(Files(), sys.argv[2], foreground=True)
PYTHON
cat >exchange.py <<'PYTHON'
import ctypes, os, sys

libc = ctypes.CDLL(None, use_errno=True)
status = libc.renameat2(-100, b"mount/one", -100, b"mount/two", 2)
print(f"libfuse {sys.argv[1]}: status {status}", *([os.strerror(ctypes.get_errno())] if status else []))
PYTHON
mkdir mount
for library in 2 3; do
    rm -rf below; mkdir below; echo first >below/one; echo second >below/two
    FUSE_LIBRARY_NAME=fuse${library#2} timeout -k 5 60 "$work/python/bin/python" files.py "$work/below" "$work/mount" 2>"log.$library" &
    for step in $(seq 100); do ! mountpoint -q mount || break; sleep 0.2; done
    mountpoint -q mount || { cat "log.$library"; exit 1; }
    python3 exchange.py "$library"
    umount mount
    wait $! || true
    (cd below; grep -H . *)
done | tee seen
[ "$(cat seen)" = 'libfuse 2: status -1 Invalid argument
one:first
two:second
libfuse 3: status 0
two:first' ] || { cat log.*; exit 1; }
echo "as seen on 2026-12-01"
