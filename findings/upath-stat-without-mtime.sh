#!/bin/bash
# Guess: `UPath.stat()` gives the time that the file system's `modified()` gives, or fails if it has none,
# as pathlib's stat() never invents one.
# Seen: it reads `info()` alone, under names such as "mtime", "last_modified" and "LastModified". Without
# one of them st_mtime is 0, that is 1970, and nothing says so: with fsspec's own memory file system,
# whose `modified()` knows the time, and for a key "modified", which nfs4fs has. st_mode lacks all
# permissions then too.
# universal-pathlib 0.3.10, fsspec 2026.9.0 of PyPI, 2026-11-28. Needs python3 >= 3.11. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/upath.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check universal-pathlib==0.3.10 fsspec==2026.9.0
cat >"$work/read.py" <<'PYTHON'
import datetime, warnings
import fsspec
from upath import UPath

warnings.simplefilter("ignore")  # of a file system that UPath does not know
fsspec.filesystem("memory").pipe("/a", b"hello")
path = UPath("memory:///a")
known = abs(datetime.datetime.now(datetime.timezone.utc) - path.fs.modified("/a")) < datetime.timedelta(hours=1)
print(f"memory: modified() is now: {known}, st_mtime {path.stat().st_mtime}, st_mode {path.stat().st_mode:o}, st_size {path.stat().st_size}")
for key in "mtime", "last_modified", "LastModified", "modified", "mtime_ns":
    class Files(fsspec.AbstractFileSystem):
        protocol, cachable = "given", False

        def info(self, path, **options):
            return {"name": path, "size": 5, "type": "file", key: 1795824000}

        def modified(self, path):
            return datetime.datetime(2026, 11, 28, tzinfo=datetime.timezone.utc)

    fsspec.register_implementation("given", Files, clobber=True)
    print(f"info() with {key!r}: st_mtime {UPath('given://host/a').stat().st_mtime}")
PYTHON
"$work/python/bin/python" "$work/read.py" | tee "$work/seen"
[ "$(cat "$work/seen")" = "memory: modified() is now: True, st_mtime 0, st_mode 100000, st_size 5
info() with 'mtime': st_mtime 1795824000
info() with 'last_modified': st_mtime 1795824000
info() with 'LastModified': st_mtime 1795824000
info() with 'modified': st_mtime 0
info() with 'mtime_ns': st_mtime 0" ]
echo "as seen on 2026-11-28"
