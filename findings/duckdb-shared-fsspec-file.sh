#!/bin/bash
# Guess: DuckDB either opens a file of an fsspec file system once for each of its threads, or locks it
# while one of them seeks and reads: the position of a Python file belongs to one user at a time.
# Seen: its threads share one file object. A read is `seek(offset)` and `read(length)` under the
# interpreter lock, which a file that waits for a network releases in `read`, and Python code between any
# two steps. Another thread then moves the position, and Parquet files of several row groups fail to decode
# ("Snappy decompression failure", "only 0 bytes returned"), also with the setting threads = 1.
# duckdb 2.0.1, fsspec 2026.9.0, pyarrow 26.0.1 of PyPI, 2026-11-29. Needs python3 >= 3.11 and two CPUs. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/duckdb.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check duckdb==2.0.1 fsspec==2026.9.0 pyarrow==26.0.1
cat >read.py <<'PYTHON'
import io, os, time
import duckdb, pyarrow, pyarrow.parquet
from fsspec.implementations.local import LocalFileSystem

class WaitsFirst(io.FileIO):
    def read(self, size=-1):
        time.sleep(0.0005)  # as a request over a network
        return super().read(size)

for part in range(4):
    numbers = range(part * 10_000, (part + 1) * 10_000)
    table = pyarrow.table({"n": list(numbers), "text": [f"row {n}" for n in numbers]})
    pyarrow.parquet.write_table(table, f"{part}.parquet", row_group_size=2_500)

def right(kind, threads):
    class Files(LocalFileSystem):
        def _open(self, path, mode="rb", **options):
            return kind(path)
    done = 0
    for _ in range(20):
        database = duckdb.connect(config={"threads": threads})
        database.register_filesystem(Files(skip_instance_cache=True))
        try:
            found = database.sql(f"select count(*), sum(n), count(distinct text) from 'local://{os.getcwd()}/*.parquet'").fetchall()[0]
            done += found == (40_000, sum(range(40_000)), 40_000)
        except duckdb.Error:
            pass
    return done

for kind in (WaitsFirst,):
    print(f"{kind.__name__}: one thread {right(kind, 1) == 20}, four threads {right(kind, 4) == 20}")
PYTHON
python/bin/python read.py | tee seen
[ "$(cat seen)" = "WaitsFirst: one thread False, four threads False" ]
echo "as seen on 2026-11-29"
