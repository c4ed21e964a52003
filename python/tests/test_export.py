"""Orders to a running export server."""

import pytest

from vouch import errors
from vouch.export import Server


def test_exports_are_managed(server, tmp_path):
    before = server.exports()
    assert [rule["path"] for rule in before] == [f"{tmp_path}/first"]
    server.add(tmp_path / "a b", ["192.0.2.0/24(rw)", "192.0.2.7"], keep=True)
    assert len(server.exports()) == 3
    server.set(tmp_path / "a b", ["192.0.2.0/24(ro)"], keep=True)
    options = [rule["options"] for rule in server.exports() if rule["client"] == "192.0.2.0/24"]
    assert "ro" in options[0].split(",")
    server.remove(tmp_path / "a b", keep=True)
    assert server.exports() == before
    assert server.states() == [] and server.discard_changes() == []
    server.drain()
    assert server.status()["draining"] is True
    server.drain(False)


def test_refusals_are_exceptions_by_kind(server, tmp_path):
    with pytest.raises(errors.NotFound):
        server.remove(tmp_path / "none")
    with pytest.raises(errors.NotFound):
        server.evict("192.0.2.1")
    with pytest.raises(errors.InvalidInput):
        server.add(tmp_path / "a b", ["192.0.2.0/24(wrong_option)"])
    with pytest.raises(errors.Unreachable, match="start it"):
        Server(tmp_path / "none").exports()
