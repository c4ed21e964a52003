"""fsspec, and the programs that read by it."""

import asyncio
import importlib.util
import os
import pickle
import subprocess
import sys
import threading

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
    new = f"{site.name}/new"
    changes = [
        lambda: fs.open(new, "wb"), lambda: fs.pipe(new, b""), lambda: fs.touch(new), lambda: fs.mkdir(new),
        lambda: fs.makedirs(new, exist_ok=True), lambda: fs.rm(paths[0]), lambda: fs.rmdir(f"{site.name}/docs"),
        lambda: fs.cp(paths[0], new), lambda: fs.mv(paths[0], new),
    ]
    for change in changes:
        with pytest.raises(OSError, match="read only"):
            change()
    old = fsspec.filesystem("vouch", revision=1)
    assert old.cat(f"{site.name}/docs/hello.txt") == b"hello\n"


def test_unread_trees_are_not_taken_for_empty_ones(site, empty_site):
    fs = fsspec.filesystem("vouch", timeout=1)
    forged = fsspec.filesystem("vouch", replicas=site.location, only_replicas=True, timeout=1)
    wrong_policy = fsspec.filesystem("vouch", policy="/nothing")
    for fs in (fs, forged, wrong_policy):
        for call in (fs.exists, fs.isfile, fs.isdir, fs.find, fs.du, lambda path: fs.glob(f"{path}/**")):
            with pytest.raises(vouch.VouchError) as error:
                call(f"{empty_site.name}/a")
            assert not isinstance(error.value, FileNotFoundError)
    fs = fsspec.filesystem("vouch")
    for path in ("nothing", "numbers/below", "out"):
        assert not fs.exists(f"{site.name}/{path}") and not fs.isfile(f"{site.name}/{path}")
    assert fs.find(f"{site.name}/nothing") == []


def test_withheld_revision_fills_no_mapper(site):
    mapper = fsspec.filesystem("vouch", revision=77).get_mapper(f"{site.name}/small")
    with pytest.raises(vouch.NoRevision):
        mapper.get("001", b"fill")
    with pytest.raises(vouch.NoRevision):
        "001" in mapper
    mapper = fsspec.filesystem("vouch").get_mapper(f"{site.name}/small")
    assert mapper.get("001", b"fill") == b"1" and mapper.get("none", b"fill") == b"fill"


def test_links_to_directories_are_not_followed(empty_site):
    source = empty_site.source
    (source / "d").mkdir()
    (source / "d/a").write_text("four")
    (source / "d/loop").symlink_to("..")
    (source / "linked").symlink_to("d")
    (source / "file").symlink_to("d/a")
    (source / "dangling").symlink_to("nothing")
    empty_site.publish()
    empty_site.serve()
    fs, local = fsspec.filesystem("vouch"), fsspec.filesystem("file")

    def below(paths, top):
        return sorted(path.removeprefix(str(top)) for path in paths)

    for pattern in ("**", "*", "d/*", "linked/*", "*/a"):
        found = fs.glob(f"{empty_site.name}/{pattern}")
        assert below(found, empty_site.name) == below(local.glob(f"{source}/{pattern}"), source), pattern
    assert below(fs.find(empty_site.name), empty_site.name) == below(local.find(str(source)), source)
    assert fs.du(empty_site.name) == 8 and fs.du(f"{empty_site.name}/linked") == 4
    assert [path for path, _, _ in fs.walk(empty_site.name)] == [empty_site.name, f"{empty_site.name}/d"]
    assert list(fs.walk(empty_site.name, topdown=False, maxdepth=1)) == [
        (empty_site.name, ["d"], ["dangling", "file", "linked"])
    ]


def test_ranges_return_errors_of_each_path(site):
    fs = fsspec.filesystem("vouch")
    paths = [f"{site.name}/nothing", f"{site.name}/small/123", "no name/a"]
    missing, read, wrong = fs.cat_ranges(paths, [-1, -2, 0], [None, None, 1])
    assert isinstance(missing, FileNotFoundError) and read == b"23" and isinstance(wrong, OSError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, [-1, -2, 0], [None, None, 1], on_error="raise")


def test_copies_stay_at_the_revision_of_the_original(empty_site):
    site = empty_site
    (site.source / "a").write_text("one")
    site.publish()
    site.serve()
    options = site.options()
    fs, path = fsspec.filesystem("vouch", **options), f"{site.name}/a"
    assert fs.cat(path) == b"one"
    first = pickle.dumps(fs)
    (site.source / "a").write_text("two")
    site.publish()

    def in_new_process(pickled):
        code = f"import pickle, sys; print(pickle.load(sys.stdin.buffer).cat({path!r}))"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.check_output([sys.executable, "-c", code], input=pickled, env=environment).decode().strip()

    assert in_new_process(first) == "b'one'"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            is_same = fs.cat(path) == b"one"
            fs.invalidate_cache()
            code = 0 if is_same and fs.cat(path) == b"two" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    fs.invalidate_cache()
    assert fs.cat(path) == b"two" and in_new_process(pickle.dumps(fs)) == "b'two'"
    # Beside another one with the same options.
    assert pickle.loads(first).cat(path) == b"one" and fs.cat(path) == b"two"
    assert pickle.loads(pickle.dumps(fs)) is fs
    fs.tree(path).close()
    assert fs.cat(path) == b"two"


def test_file_system_is_right_after_fork_and_pickle(site):
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


def test_many_asynchronous_calls_wait_at_once(monkeypatch):
    fs = fsspec.filesystem("vouch", asynchronous=True, skip_instance_cache=True)
    all_wait = threading.Barrier(60)
    monkeypatch.setattr(type(fs), "cat_file", lambda self, path: all_wait.wait(20))

    async def read():
        return await asyncio.gather(*(fs._cat_file("a") for _ in range(60)))

    assert sorted(asyncio.run(read())) == list(range(60))


def test_asynchronous_calls_run_in_parallel(site):
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
