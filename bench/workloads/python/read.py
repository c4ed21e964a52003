#!/usr/bin/env python3
"""read.py WAY WORK ADDRESS [STORE]: does some work on the data of run.sh two times, and prints the seconds of both.

WAY: vouch (STORE is the replica's URL), http, s3 (STORE is the endpoint) or local (a directory).
WORK: reads of Parquet files by pyarrow: all (each column), columns (2 of 16), row_groups (one of each
file, as a sample); modules: imports 1,000 modules of a package, once."""
import importlib
import importlib.abc
import importlib.util
import os
import sys
import time

way, work, address = sys.argv[1:4]
if work != "modules":
    import fsspec
    import pyarrow.dataset
    import pyarrow.parquet
FILES = 8


def file_system():
    if way == "vouch":
        return fsspec.filesystem("vouch", replicas=[sys.argv[4]], only_replicas=True)
    if way == "s3":
        return fsspec.filesystem("s3", key="key", secret="secretsecret", endpoint_url=sys.argv[4])
    return fsspec.filesystem("http" if way == "http" else "file")


def read(fs):
    paths = [f"{address}/{n}.parquet" for n in range(FILES)]
    if work == "row_groups":
        rows = 0
        for at, path in enumerate(paths):
            with fs.open(path, "rb") as file:
                rows += pyarrow.parquet.ParquetFile(file).read_row_group(at).num_rows
        return rows
    dataset = pyarrow.dataset.dataset(paths, filesystem=fs, format="parquet")
    if work == "columns":
        return dataset.to_table(columns=["c3", "c11"]).num_rows
    # A whole table might not fit in memory.
    return sum(batch.num_rows for batch in dataset.to_batches())


class HttpFinder(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Each module is one request on a connection that stays open."""

    def __init__(self):
        import http.client
        from urllib.parse import urlsplit

        url = urlsplit(address)
        self.connection, self.above = http.client.HTTPConnection(url.netloc), url.path

    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] != "sample":
            return None
        file = "sample/__init__.py" if fullname == "sample" else f"{fullname.replace('.', '/')}.py"
        url = f"{self.above}/site/{file}"
        return importlib.util.spec_from_file_location(fullname, url, loader=self, submodule_search_locations=[url] if fullname == "sample" else None)

    def get_filename(self, fullname):
        return sys.modules[fullname].__spec__.origin

    def get_data(self, path):
        if path.endswith(".pyc"):
            raise OSError
        self.connection.request("GET", path)
        return self.connection.getresponse().read()


def import_modules():
    began = time.perf_counter()
    if way == "vouch":
        import vouch.importer

        vouch.importer.install(replicas=[sys.argv[4]], only_replicas=True)
        sys.path.append(f"vouch://{address}/site")
    elif way == "http":
        sys.meta_path.append(HttpFinder())
    else:
        sys.path.append(f"{address}/site")
    for n in range(1000):
        assert importlib.import_module(f"sample.m{n}").N == n
    print(1000, f"{time.perf_counter() - began:.3f}")
    sys.exit()


if work == "modules":
    import_modules()
began = time.perf_counter()
fs = file_system()
rows = read(fs)
cold = time.perf_counter()
assert read(fs) == rows
warm = time.perf_counter()
print(rows, f"{cold - began:.3f} {warm - cold:.3f}", flush=True)
# A thread of pyarrow that still waits for a file in Python would abort the end of the interpreter.
os._exit(0)
