import os
from pathlib import Path

import pytest
import vouch
from conftest import PROGRAM


@pytest.fixture
def options(empty_site, monkeypatch):
    monkeypatch.setenv("VOUCH_CONFIG", "/dev/null")
    directory = empty_site.directory
    return {"db": directory / "db", "keys": directory / "keys", "location": empty_site.location, "program": PROGRAM}


def test_directory_is_published(empty_site, options):
    (empty_site.source / "a").write_text("1")
    (empty_site.source / "a.tmp").write_text("2")
    report = vouch.publish(empty_site.source, **options, tag="first", exclude=["*.tmp"], one_file_system=True)
    assert (report["revision"], report["files"], report["name"]) == (1, 1, empty_site.name)
    empty_site.serve()
    tree = vouch.open(report["name"])
    assert tree.listdir() == ["a"] and tree.revision.tag == "first"


def test_generator_is_published(empty_site, options, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)
    (tmp_path / "big").chmod(0o700)
    os.utime(tmp_path / "big", ns=(5, 1_000_000_007))

    def files():
        yield "docs/a.txt", b"bytes"
        yield "docs/deep/b.txt", (b"%d\n" % n for n in range(3))
        yield "big", Path(tmp_path / "big")

    vouch.publish(files(), **options)
    empty_site.serve()
    tree = vouch.open(empty_site.name)
    assert tree.read_bytes("docs/deep/b.txt") == b"0\n1\n2\n"
    assert tree.stat("docs/a.txt").mode & 0o777 == 0o644

    def is_big(status):
        return (status.size, status.mode & 0o777, status.mtime_ns) == (3_000_000, 0o755, 1_000_000_007)

    assert is_big(tree.stat("big"))
    # Content may come from a published tree.
    vouch.publish([("copy", tree / "docs/a.txt"), ("big", tree / "big")], **options)
    assert tree.refresh() and tree.listdir() == ["big", "copy"] and tree.read_bytes("copy") == b"bytes"
    assert is_big(tree.stat("big"))
    assert not [name for name in os.listdir(empty_site.directory) if name.startswith(".vouch")]


def test_errors_of_publishing_are_exceptions(empty_site, options, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such directory"):
        vouch.publish(tmp_path / "missing", **options)
    with pytest.raises(vouch.InvalidInput, match="no-such-option"):
        vouch.publish(empty_site.source, **options, no_such_option=True)
    for path in "../x", "/x", "":
        with pytest.raises(ValueError):
            vouch.publish([(path, b"")], **options)
    with pytest.raises(FileExistsError):
        vouch.publish([("a", b"1"), ("./a", b"2")], **options)
    with pytest.raises(FileNotFoundError):
        vouch.publish(empty_site.source, **options | {"program": "/no/such/program"})
