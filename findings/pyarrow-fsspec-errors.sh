#!/bin/bash
# Guess: pyarrow reports an error of a file system of fsspec as it is: PermissionError for a file that the
# user may not reach, as its own LocalFileSystem does.
# Seen: open_input_file() asks isfile(), which takes each error for "no", and raises FileNotFoundError.
# A FileSelector shows a closed directory as empty, also as one of many. get_file_info() of a path keeps the
# error. A program that makes what is missing so makes it again.
# pyarrow 26.0.1, fsspec 2026.9.0 of PyPI, 2026-11-30. Needs root (it becomes another user), python3 >= 3.11.
# Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/arrow.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check pyarrow==26.0.1 fsspec==2026.9.0
mkdir -p files/open files/closed; echo x >files/open/a; echo y >files/closed/b
chmod 755 . files; chmod 700 files/closed
cat >ask.py <<'PYTHON'
import os
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

base = os.getcwd() + "/files"
kinds = ("pyarrow", fs.LocalFileSystem()), ("fsspec", fs.PyFileSystem(fs.FSSpecHandler(LocalFileSystem(skip_instance_cache=True))))
os.seteuid(65534)

def said(call):
    try:
        return call()
    except OSError as error:
        return type(error).__name__

for name, files in kinds:
    names = lambda path, **options: [os.path.basename(info.path) for info in files.get_file_info(fs.FileSelector(path, recursive=True, **options))]
    print(f"{name}: get_file_info: {said(lambda: files.get_file_info(base + '/closed/b').type.name)}")
    print(f"{name}: open_input_file: {said(lambda: files.open_input_file(base + '/closed/b'))}")
    print(f"{name}: FileSelector of the closed directory: {said(lambda: names(base + '/closed'))}")
    print(f"{name}: the same with allow_not_found: {said(lambda: names(base + '/closed', allow_not_found=True))}")
    print(f"{name}: FileSelector of the parent: {said(lambda: sorted(names(base)))}")
PYTHON
python/bin/python ask.py | tee seen
[ "$(cat seen)" = "pyarrow: get_file_info: PermissionError
pyarrow: open_input_file: PermissionError
pyarrow: FileSelector of the closed directory: PermissionError
pyarrow: the same with allow_not_found: PermissionError
pyarrow: FileSelector of the parent: PermissionError
fsspec: get_file_info: PermissionError
fsspec: open_input_file: FileNotFoundError
fsspec: FileSelector of the closed directory: []
fsspec: the same with allow_not_found: []
fsspec: FileSelector of the parent: ['a', 'closed', 'open']" ]
echo "as seen on 2026-11-30"
