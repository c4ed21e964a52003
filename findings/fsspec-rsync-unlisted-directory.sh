#!/bin/bash
# Guess: `fsspec.generic.rsync` with delete_missing=True keeps the copies of files that it cannot see in the
# source, as rsync(1) with --delete does: "IO error encountered -- skipping file deletion".
# Seen: a directory of the source that may not be listed, or whose listing fails for another reason, counts as
# empty: find() goes by walk(), which omits errors. rsync deletes its files in the destination, and returns
# without an error.
# fsspec 2026.9.0 of PyPI, 2026-11-30. Needs root (it becomes another user), python3 >= 3.11. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/rsync.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check fsspec==2026.9.0
cat >sync.py <<'PYTHON'
import errno, os
from fsspec.generic import rsync
from fsspec.implementations.local import LocalFileSystem
import fsspec

base = os.getcwd()
os.chmod(base, 0o755)

def tree(name):
    for path in "open/1", "closed/2", "closed/deep/3":
        os.makedirs(os.path.dirname(f"{base}/{name}/{path}"), exist_ok=True)
        with open(f"{base}/{name}/{path}", "w") as file:
            file.write(path)
        for part in name, f"{name}/{os.path.dirname(path)}", f"{name}/{path}":
            os.chown(f"{base}/{part}", 65534, 65534)

def left(name):
    return " ".join(sorted(os.path.relpath(f"{parent}/{file}", name) for parent, _, files in os.walk(name) for file in files))

tree("source")
os.chown("source/closed", 0, 0)
os.chmod("source/closed", 0o700)
tree("copy")
os.seteuid(65534)
result = rsync(f"file://{base}/source", f"file://{base}/copy", delete_missing=True)
os.seteuid(0)
print(f"directory that may not be listed: rsync returns {result}, left: {left('copy')}")

class Ends(LocalFileSystem):  # as a mount does for a user whose Kerberos ticket has expired
    protocol, cachable = "ends", False

    def ls(self, path, detail=False, **options):
        if path.endswith("closed"):
            raise OSError(errno.EKEYEXPIRED, os.strerror(errno.EKEYEXPIRED))
        return super().ls(path, detail=detail, **options)

fsspec.register_implementation("ends", Ends)
os.chmod("source/closed", 0o755)
tree("second")
try:
    result = rsync(f"ends://{base}/source", f"file://{base}/second", delete_missing=True)
except Exception as error:
    result = error
print(f"listing that fails with {errno.errorcode[errno.EKEYEXPIRED]}: rsync returns {result}, left: {left('second')}")
PYTHON
python/bin/python sync.py | tee seen
[ "$(cat seen)" = "directory that may not be listed: rsync returns {}, left: open/1
listing that fails with EKEYEXPIRED: rsync returns {}, left: open/1" ]
echo "as seen on 2026-11-30"
