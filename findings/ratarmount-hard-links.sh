#!/bin/bash
# Guess: ratarmountcore, the library of ratarmount, gives the same bytes for both names of a hard link in a tar
# archive, by its own classes and by its file system "ratar" of fsspec. Python's tarfile does, and so does the
# file system "tar" of fsspec.
# Seen: the name that tar stored as a link is an empty file: size 0, no bytes, no type in its mode, and no error.
# ratarmountcore 0.11.1, fsspec 2026.9.0 of PyPI, 2026-11-30. Needs python3 >= 3.11. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/ratar.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check ratarmountcore==0.11.1 fsspec==2026.9.0
mkdir files; echo content >files/one; ln files/one files/two
tar -C files -cf links.tar one two
cat >read.py <<'PYTHON'
import tarfile
import fsspec
from ratarmountcore.mountsource.factory import open_mount_source

archive = tarfile.open("links.tar")
source = open_mount_source("links.tar", printDebug=0)
for name in "one", "two":
    entry = source.lookup("/" + name)
    with source.open(entry) as file:
        core = file.read()
    print(f"{name}: tarfile {archive.extractfile(name).read()}, tar {fsspec.filesystem('tar', fo='links.tar').cat(name)}, "
          f"ratarmountcore {core} with mode {entry.mode:o}, ratar {fsspec.filesystem('ratar', fo='links.tar').cat('/' + name)}")
PYTHON
python/bin/python read.py | grep -v offset | tee seen
[ "$(grep -E '^(one|two):' seen)" = "one: tarfile b'content\n', tar b'content\n', ratarmountcore b'content\n' with mode 100644, ratar b'content\n'
two: tarfile b'content\n', tar b'content\n', ratarmountcore b'' with mode 644, ratar b''" ]
echo "as seen on 2026-11-30"
