#!/bin/bash
# Guess: a sharded Zarr array is read through `simplecache::` and `filecache::` of fsspec as an array without shards is, and as
# it is read through `blockcache::`. These caches exist to put a local copy before a slow store.
# Seen: the array without shards is read through all. Of the sharded array, simplecache and filecache give no element:
# "'_io.BufferedReader' object has no attribute 'size'". Zarr reads the index at the end of a shard, cat_file with a negative
# start. fsspec asks its copy, a plain Python file, for a size there. So `cat_file(path, start=-3)` fails too, while `tail` works.
# zarr 3.4.2, fsspec 2026.9.0 of PyPI, 2026-12-01. Needs python3 >= 3.12 (variable PYTHON). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/zarr.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check zarr==3.4.2 fsspec==2026.9.0
cat >read.py <<'PYTHON'
import os, sys, warnings

import fsspec, numpy, zarr
from zarr.storage import FsspecStore, LocalStore

warnings.simplefilter("ignore")
for name, shards in ("whole", None), ("sharded", (50,)):
    array = zarr.create_array(LocalStore(name), shape=(100,), shards=shards, chunks=(10,), dtype="i4")
    array[:] = numpy.arange(100)

def attempt(name, call):
    try:
        print(f"{name}: {call()}")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")

here = os.getcwd()
for cache in "blockcache", "filecache", "simplecache":
    for name in "whole", "sharded":
        options = {"cache_storage": f"{here}/{cache}"}
        store = lambda: FsspecStore.from_url(f"{cache}::file://{here}/{name}", storage_options={cache: options}, read_only=True)
        attempt(f"{cache}, {name}", lambda: zarr.open_array(store(), mode="r")[48:52].tolist())
    files = fsspec.filesystem(cache, target_protocol="file", cache_storage=f"{here}/{cache}-files")
    attempt(f"{cache}, cat_file", lambda: files.cat_file(here + "/read.py", start=-3))
    attempt(f"{cache}, tail", lambda: files.tail(here + "/read.py", 3))
PYTHON
"$work/python/bin/python" read.py 2>error.log | tee seen
[ "$(cat seen)" = "blockcache, whole: [48, 49, 50, 51]
blockcache, sharded: [48, 49, 50, 51]
blockcache, cat_file: b'))\n'
blockcache, tail: b'))\n'
filecache, whole: [48, 49, 50, 51]
filecache, sharded: AttributeError: '_io.BufferedReader' object has no attribute 'size'
filecache, cat_file: AttributeError: '_io.BufferedReader' object has no attribute 'size'
filecache, tail: b'))\n'
simplecache, whole: [48, 49, 50, 51]
simplecache, sharded: AttributeError: '_io.BufferedReader' object has no attribute 'size'
simplecache, cat_file: AttributeError: '_io.BufferedReader' object has no attribute 'size'
simplecache, tail: b'))\n'" ] || { cat error.log; exit 1; }
echo "as seen on 2026-12-01"
