"""fsspec, and the programs that read by it."""

import importlib.util
import os

import pytest
import vouch

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A tree with a Parquet data set, a CSV file and a Zarr group."""
    from conftest import Site

    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    site = Site(tmp_path_factory.mktemp("tables"))
    parts = site.source / "data"
    parts.mkdir()
    for part in range(4):
        numbers = range(part * 10_000, (part + 1) * 10_000)
        table = pyarrow.table({"n": list(numbers), "square": [n * n for n in numbers], "text": [f"row {n}" for n in numbers]})
        parquet.write_table(table, parts / f"{part}.parquet", row_group_size=2_500)
    (site.source / "a.csv").write_text("x,y\n1,2\n3,4\n")
    if importlib.util.find_spec("zarr"):
        import numpy
        import xarray

        group = xarray.Dataset({"v": ("x", numpy.arange(1000))})
        group.to_zarr(site.source / "z.zarr", consolidated=True)
    site.publish()
    site.serve()
    yield f"vouch://{site.name}"
    site.stop()


def test_file_system_lists_reads_and_finds(site):
    fs = fsspec.filesystem("vouch")
    assert type(fs).__name__ == "VouchFileSystem"
    names = [name.rsplit("/", 1)[1] for name in fs.ls(f"vouch://{site.name}", detail=False)]
    assert names == ["docs", "empty", "link", "numbers", "out", "small"]
    assert fs.cat(f"vouch://{site.name}/docs/hello.txt") == b"hello again\n"
    assert fs.exists(f"{site.name}/docs") and not fs.exists(f"{site.name}/nothing")
    assert fs.isdir(f"{site.name}/docs") and fs.isfile(f"{site.name}/link")
    assert len(fs.find(f"{site.name}/small")) == 200
    assert len(fs.glob(f"{site.name}/small/00*")) == 10
    many = fs.cat(fs.glob(f"{site.name}/small/01*"))
    assert sorted(many.values()) == sorted(str(n).encode() for n in range(10, 20))
    paths = [f"{site.name}/numbers"] * 3
    assert fs.cat_ranges(paths, [0, 2, -4], [2, 6, None]) == [b"0\n", b"1\n2\n", b"999\n"[-4:]]
    with fsspec.open(f"vouch://{site.name}/docs/hello.txt", "rt") as file:
        assert file.read() == "hello again\n"
    with pytest.raises(OSError):
        fs.open(f"{site.name}/new", "wb")
    old = fsspec.filesystem("vouch", revision=1)
    assert old.cat(f"{site.name}/docs/hello.txt") == b"hello\n"


def test_file_system_is_right_after_fork_and_pickle(site):
    import pickle

    fs = fsspec.filesystem("vouch")
    path = f"{site.name}/docs/hello.txt"
    assert pickle.loads(pickle.dumps(fs)).cat(path) == b"hello again\n"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if fs.cat(path) == b"hello again\n" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_asynchronous_calls_run_in_parallel(site):
    import asyncio

    async def read():
        fs = fsspec.filesystem("vouch", asynchronous=True, skip_instance_cache=True)
        paths = [f"{site.name}/small/{n:03}" for n in range(50)]
        read = await asyncio.gather(*(fs._cat_file(path) for path in paths))
        assert await fs._exists(paths[0]) and not await fs._exists(f"{site.name}/nothing")
        assert [step async for step in fs._walk(f"{site.name}/docs")] == [(f"{site.name}/docs", [], ["hello.txt"])]
        return read

    assert asyncio.run(read()) == [str(n).encode() for n in range(50)]


def test_pandas_reads_parquet_and_csv(tables):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(f"{tables}/data/1.parquet", columns=["square"])
    assert frame["square"].iloc[0] == 10_000**2 and len(frame) == 10_000
    assert pandas.read_csv(f"{tables}/a.csv")["y"].tolist() == [2, 4]


def test_pandas_reads_a_path_object(tables):
    pandas = pytest.importorskip("pandas")
    tree = vouch.open(tables.removeprefix("vouch://"))
    assert pandas.read_csv(tree / "a.csv")["x"].tolist() == [1, 3]


def test_pyarrow_reads_a_data_set(tables):
    dataset = pytest.importorskip("pyarrow.dataset")
    import pyarrow.compute as compute

    fs, path = fsspec.url_to_fs(f"{tables}/data")
    found = dataset.dataset(path, filesystem=fs, format="parquet")
    assert found.count_rows() == 40_000
    table = found.to_table(columns=["n"], filter=compute.field("n") >= 39_990)
    assert table["n"].to_pylist() == list(range(39_990, 40_000))


def test_polars_reads(tables):
    polars = pytest.importorskip("polars")
    dataset = pytest.importorskip("pyarrow.dataset")
    fs, path = fsspec.url_to_fs(f"{tables}/data")
    lazy = polars.scan_pyarrow_dataset(dataset.dataset(path, filesystem=fs, format="parquet"))
    assert lazy.filter(polars.col("n") == 5).collect()["text"].to_list() == ["row 5"]
    with fsspec.open(f"{tables}/data/0.parquet") as file:
        assert polars.read_parquet(file).height == 10_000


def test_duckdb_queries(tables):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register_filesystem(fsspec.filesystem("vouch"))
    query = f"select count(*), max(n) from read_parquet('{tables}/data/*.parquet')"
    assert connection.execute(query).fetchone() == (40_000, 39_999)


def test_dask_reads_in_processes(tables):
    pytest.importorskip("dask.dataframe")
    import dask.dataframe

    frame = dask.dataframe.read_parquet(f"{tables}/data", columns=["n"])
    assert int(frame["n"].sum().compute(scheduler="processes")) == sum(range(40_000))


def test_xarray_opens_zarr(tables):
    pytest.importorskip("zarr")
    xarray = pytest.importorskip("xarray")
    found = xarray.open_zarr(f"{tables}/z.zarr", consolidated=True)
    assert int(found["v"].sum()) == sum(range(1000))
