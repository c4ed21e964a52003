#!/bin/bash
# Guess: DuckDB reads Parquet through every read-only file system of fsspec that pandas and pyarrow read
# it through: `info()` with name, size and type, `ls()` and `open()` suffice.
# Seen: for Parquet DuckDB also calls `modified()`, an optional method, and gives up where it is missing:
# "zip: modified() is not implemented". fsspec's own zip and tar file systems lack it; its memory file
# system has it. CSV files of the same file system are read. The time comes from the method; an "mtime" in
# `info()` does not help.
# duckdb 2.0.1, fsspec 2026.9.0, pyarrow 26.0.1 of PyPI, 2026-11-28. Needs python3 >= 3.11. Exit 0: as
# seen.
set -eu
work=$(mktemp -d /var/tmp/duckdb.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check duckdb==2.0.1 fsspec==2026.9.0 pyarrow==26.0.1
cat >read.py <<'PYTHON'
import datetime, io, zipfile
import duckdb, fsspec, pyarrow, pyarrow.parquet
from fsspec.implementations.zip import ZipFileSystem

parquet = io.BytesIO()
pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), parquet)
with zipfile.ZipFile("data.zip", "w") as archive:
    archive.writestr("a.parquet", parquet.getvalue())
    archive.writestr("a.csv", "x\n1\n2\n3\n")

class WithTime(ZipFileSystem):
    def info(self, path, **options):
        return super().info(path, **options) | {"mtime": 1795824000.0}

class WithMethod(ZipFileSystem):
    def modified(self, path):
        return datetime.datetime(2026, 11, 28, tzinfo=datetime.timezone.utc)

for name, kind in ("zip", ZipFileSystem), ("zip with mtime in info()", WithTime), ("zip with modified()", WithMethod):
    files = kind(fo="data.zip", skip_instance_cache=True)
    rows = pyarrow.parquet.read_table("a.parquet", filesystem=files).num_rows
    database = duckdb.connect()
    database.register_filesystem(files)
    csv = database.sql("select sum(x) from 'zip://a.csv'").fetchall()[0][0]
    try:
        seen = database.sql("select sum(x) from 'zip://a.parquet'").fetchall()[0][0]
    except duckdb.Error as error:
        seen = error
    print(f"{name}: pyarrow {rows} rows, DuckDB csv {csv}, parquet {seen}")
PYTHON
python/bin/python read.py | tee seen
missing='Not implemented Error: zip: modified() is not implemented'
[ "$(cat seen)" = "zip: pyarrow 3 rows, DuckDB csv 6, parquet $missing
zip with mtime in info(): pyarrow 3 rows, DuckDB csv 6, parquet $missing
zip with modified(): pyarrow 3 rows, DuckDB csv 6, parquet 6" ]
echo "as seen on 2026-11-28"
