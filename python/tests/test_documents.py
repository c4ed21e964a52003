"""Runs each example of docs/python.md."""

import os
import re
import sys
from pathlib import Path

import pytest
from conftest import PROGRAM

DOCUMENT = Path(__file__).parents[2] / "docs/python.md"


def test_examples_of_the_document_run(empty_site, server, monkeypatch):
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    (empty_site.source / "docs").mkdir()
    (empty_site.source / "docs/hello.txt").write_text("hello\n")
    (empty_site.source / "data").mkdir()
    pandas.DataFrame({"n": range(10)}).to_parquet(empty_site.source / "data/0.parquet")
    empty_site.publish()
    (empty_site.source / "docs/hello.txt").write_text("hello again\n")
    empty_site.publish("--tag", "second")
    empty_site.serve()
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(examples) >= 7
    monkeypatch.setenv("PATH", os.path.dirname(PROGRAM), prepend=os.pathsep)
    monkeypatch.setenv("VOUCH_CONFIG", "/dev/null")
    empty_site.run("audit", "keygen", "trail")
    log = Path(__file__).parents[2] / "crates/audit/audit/src/host/recorded.log"
    empty_site.run("audit", "host", "--once", "--log", str(log), "trail")
    publisher = empty_site.directory / "publisher"
    (publisher / "site").mkdir(parents=True)
    monkeypatch.chdir(publisher)
    os.rename(empty_site.directory / "keys", "keys")
    names = {"NAME": empty_site.name, "TRAIL": empty_site.directory / "trail", "STATE": server.state}
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    for example in examples:
        exec(example, names)
    assert names["report"]["files"] == 3 and names["report"]["revision"] == 2
    assert names["frame"]["n"].to_list() == names["lazy"].collect()["n"].to_list() == list(range(10))
    assert names["table"].num_rows == len(names["records"])
