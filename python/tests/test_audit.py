"""Search in a trail that `vouch audit host` has made of auditd's log."""

import json
import subprocess
from datetime import datetime, timedelta, timezone

import pytest
import vouch.audit
from conftest import PROGRAM

COUNT = 40_000


@pytest.fixture(scope="module")
def trail(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trail")
    directory.chmod(0o700)
    with open(directory / "log", "w") as log:
        for n in range(COUNT):
            result, code = ("no", -13) if n % 10 == 0 else ("yes", 3)
            stamp = f"audit({1795306870 + n // 1000}.{n % 1000:03}:{n + 4})"
            log.write(
                f"type=SYSCALL msg={stamp}: arch=c000003e syscall=257 success={result} exit={code} a0=ffffff9c items=1 ppid=1 pid={n % 30000 + 1} auid=1000 uid=1000 gid=1000 euid=1000 suid=1000 fsuid=1000 egid=1000 sgid=1000 fsgid=1000 tty=(none) ses=1 comm=\"cat\" exe=\"/usr/bin/cat\" key=\"k{n % 3}\"\n"
                f"type=CWD msg={stamp}: cwd=\"/srv\"\n"
                f"type=PATH msg={stamp}: item=0 name=\"/srv/data/{n % 500}\" inode={n % 500 + 10} dev=fe:00 mode=0100644 ouid=0 ogid=0 rdev=00:00 nametype=NORMAL\n"
                f"type=EOE msg={stamp}: \n"
            )
    run(directory, "audit", "keygen", "trail")
    run(directory, "audit", "host", "--once", "--log", "log", "trail")
    return directory / "trail"


def run(directory, *arguments):
    return subprocess.run([PROGRAM, *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout


def test_iterator_finds_what_the_command_finds(trail):
    lines = run(trail, "audit", "search", "--json", "--result", "failure", "--path", "/srv/data/40", ".")
    wanted = [json.loads(line) for line in lines.splitlines()]
    found = list(vouch.audit.search(trail, result="failure", path="/srv//data/./40/"))
    assert len(found) == len(wanted) == COUNT // 500
    for record, ecs in zip(found, wanted):
        assert record["seq"] == ecs["event"]["sequence"] and record["action"] == ecs["event"]["action"]
        assert record["error"] == "EACCES" and record["path"] == ecs["file"]["path"]
        assert record["pid"] == ecs["process"]["pid"] and record["key"] == ecs["tags"][0]
        assert record["principal"] is None and record["offset"] is None
    assert [record["seq"] for record in vouch.audit.search(trail, newest=True, limit=2, kind="host")] == [COUNT + 1, COUNT]


def test_conditions_are_checked(trail, tmp_path):
    start = datetime.fromtimestamp(1795306870, timezone.utc)
    one_second = vouch.audit.search(trail, since=start, until=start + timedelta(seconds=1))
    assert sum(1 for _ in one_second) == 1000
    assert sum(1 for _ in vouch.audit.search(trail, key="k1", fields=["exit=-EACCES"])) == 1333
    assert list(vouch.audit.search(trail, uid=77)) == []
    assert list(vouch.audit.search(trail, limit=0)) == []
    wrong = [{"result": "bad"}, {"operations": "nothing"}, {"path": "relative"}, {"uid": "no such user"}, {"fields": "x"}, {"file": "xyz"}, {"kind": "x"}, {"access": "x"}, {"client": "300.0.0.0/8"}]
    for condition in wrong:
        with pytest.raises(ValueError):
            vouch.audit.search(trail, **condition)
    with pytest.raises(FileNotFoundError):
        vouch.audit.search(tmp_path / "missing")


def test_table_equals_the_iterator(trail):
    pyarrow = pytest.importorskip("pyarrow")
    table = vouch.audit.search(trail).table()
    table.validate(full=True)
    assert table.num_rows == COUNT + 2
    records = table.slice(10_000, 20_000).to_pylist()
    for record, expected in zip(records, list(vouch.audit.search(trail))[10_000:30_000]):
        time = record.pop("time")
        assert time.value == expected.pop("time") and record == expected
    assert table.schema.field("time").type == pyarrow.timestamp("ns", "UTC")
    empty = vouch.audit.search(trail, uid=77).table()
    assert empty.num_rows == 0 and empty.schema == table.schema


def test_pandas_and_polars_read_tables(trail):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    frame = vouch.audit.search(trail, kind="host").table().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("error", observed=True).size().to_dict() == {"EACCES": COUNT // 10}
    lazy = polars.DataFrame(vouch.audit.search(trail, kind="host"))
    assert lazy.filter(polars.col("error") == "EACCES").height == COUNT // 10


def test_unfinished_search_ends(trail):
    search = vouch.audit.search(trail)
    next(search)
    del search
