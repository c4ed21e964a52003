#!/bin/bash
# Guess: on a file system of mfusepy or fusepy `touch -m FILE` sets the time of modification and leaves the time of access, and
# `touch -a` the other way round, as on each file system. The library hands both times to the method utimens.
# Seen: with libfuse 3 mfusepy takes the marks for "omit" and "now" of utimensat(2) for times. The method gets 1073741822 and
# 1073741823 nanoseconds, and both times become 1970-01-01. `touch -m -d` loses the time of access. With libfuse 2,
# which both libraries prefer, `touch -m` and `touch -a` end with 0 and change nothing.
# mfusepy 3.1.1, fusepy 3.0.1 of PyPI, libfuse3 3.14.0 and libfuse2 2.9.9 of Debian 12, 2026-12-01. Needs root, /dev/fuse, both
# libraries, python3 >= 3.9. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/mfusepy.XXXXXX)
trap 'umount -l "$work/mount" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
cd "$work"
export TZ=UTC
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check mfusepy==3.1.1 fusepy==3.0.1
cat >files.py <<'PYTHON'
import importlib, os, sys

library = importlib.import_module(sys.argv[3])

class Files(library.Operations):
    use_ns = True

    def getattr(self, path, fh=None):
        status = os.lstat(sys.argv[1] + path)
        return {"st_mode": status.st_mode, "st_nlink": status.st_nlink, "st_size": status.st_size}

    def utimens(self, path, times=None):
        os.utime(sys.argv[1] + path, ns=times)
        return 0

library.FUSE(Files(), sys.argv[2], foreground=True)
PYTHON
mkdir below mount
echo content >below/file
for test in "fuse 2" "mfusepy 2" "mfusepy 3"; do
    set -- $test
    FUSE_LIBRARY_NAME=fuse${2#2} timeout -k 5 60 "$work/python/bin/python" files.py "$work/below" "$work/mount" "$1" 2>"log.$1.$2" &
    for step in $(seq 100); do ! mountpoint -q mount || break; sleep 0.2; done
    mountpoint -q mount || { cat "log.$1.$2"; exit 1; }
    for option in "-d 2021-06-01" -m -a "-m -d 2021-06-01"; do
        touch -d 2020-01-02 below/file
        touch $option mount/file || echo "status $?"
        echo "$1, libfuse $2, touch $option: $(stat -c '%x, %y' below/file | sed 's/:[0-9.]* +0000//g')"
    done
    umount mount
    wait $! || true
done | tee seen
[ "$(cat seen)" = "fuse, libfuse 2, touch -d 2021-06-01: 2021-06-01 00:00, 2021-06-01 00:00
fuse, libfuse 2, touch -m: 2020-01-02 00:00, 2020-01-02 00:00
fuse, libfuse 2, touch -a: 2020-01-02 00:00, 2020-01-02 00:00
fuse, libfuse 2, touch -m -d 2021-06-01: 2020-01-02 00:00, 2020-01-02 00:00
mfusepy, libfuse 2, touch -d 2021-06-01: 2021-06-01 00:00, 2021-06-01 00:00
mfusepy, libfuse 2, touch -m: 2020-01-02 00:00, 2020-01-02 00:00
mfusepy, libfuse 2, touch -a: 2020-01-02 00:00, 2020-01-02 00:00
mfusepy, libfuse 2, touch -m -d 2021-06-01: 2020-01-02 00:00, 2020-01-02 00:00
mfusepy, libfuse 3, touch -d 2021-06-01: 2021-06-01 00:00, 2021-06-01 00:00
mfusepy, libfuse 3, touch -m: 1970-01-01 00:00, 1970-01-01 00:00
mfusepy, libfuse 3, touch -a: 1970-01-01 00:00, 1970-01-01 00:00
mfusepy, libfuse 3, touch -m -d 2021-06-01: 1970-01-01 00:00, 2021-06-01 00:00" ] || { cat log.*; exit 1; }
echo "as seen on 2026-12-01"
