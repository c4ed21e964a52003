#!/bin/bash
# Guess: Polars opens `NAME://…` of any file system that is registered with fsspec, as pandas does: "If
# `fsspec` is installed, it might be used to open remote files" (pl.read_csv), and `storage_options` go to
# it.
# Seen: read_csv, scan_csv, read_parquet and scan_parquet take a URL with an unknown scheme for a local
# path: "No such file or directory". Only read_parquet with use_pyarrow=True, or a file object that fsspec
# opened, works.
# polars 2.1.0, pandas 3.1.1, fsspec 2026.9.0, pyarrow 26.0.1 of PyPI, 2026-11-28. Needs python3 >= 3.11.
# Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/polars.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check polars==2.1.0 pandas==3.1.1 fsspec==2026.9.0 pyarrow==26.0.1
cat >read.py <<'PYTHON'
import io
import fsspec, pandas, polars, pyarrow, pyarrow.parquet

parquet = io.BytesIO()
pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), parquet)
memory = fsspec.filesystem("memory")
memory.pipe({"/d/a.parquet": parquet.getvalue(), "/d/a.csv": b"x\n1\n2\n3\n"})

def tries(name, read):
    try:
        print(f"{name}: {read()} rows")
    except FileNotFoundError as error:
        print(f"{name}: {str(error).splitlines()[0].split(':')[0]}")

for form in "csv", "parquet":
    url = f"memory://d/a.{form}"
    tries(f"pandas.read_{form}", lambda: len(getattr(pandas, f"read_{form}")(url)))
    for name in f"read_{form}", f"scan_{form}":
        read = getattr(polars, name)
        tries(f"polars.{name}", lambda: read(url).lazy().collect().height)
        tries(f"polars.{name}, storage_options", lambda: read(url, storage_options={"skip_instance_cache": "false"}).lazy().collect().height)
tries("polars.read_parquet, use_pyarrow", lambda: polars.read_parquet("memory://d/a.parquet", use_pyarrow=True).height)
tries("polars.read_parquet of a file object", lambda: polars.read_parquet(memory.open("/d/a.parquet")).height)
PYTHON
python/bin/python read.py | tee seen
gone='No such file or directory (os error 2)'
[ "$(cat seen)" = "pandas.read_csv: 3 rows
polars.read_csv: $gone
polars.read_csv, storage_options: $gone
polars.scan_csv: $gone
polars.scan_csv, storage_options: $gone
pandas.read_parquet: 3 rows
polars.read_parquet: $gone
polars.read_parquet, storage_options: $gone
polars.scan_parquet: $gone
polars.scan_parquet, storage_options: $gone
polars.read_parquet, use_pyarrow: 3 rows
polars.read_parquet of a file object: 3 rows" ]
echo "as seen on 2026-11-28"
