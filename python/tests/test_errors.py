"""Kinds of errors that need a forged, revoked or unwitnessed tree."""

import base64
import hashlib

import pytest
import vouch


@pytest.fixture
def small(empty_site):
    (empty_site.source / "a").write_bytes(bytes(range(256)) * 4096)
    empty_site.publish()
    return empty_site


def test_changed_content_is_tampered(small):
    packs = sorted((small.directory / "db/packs").glob("d-*"))
    assert packs
    for pack in packs:
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.chmod(0o644)
        pack.write_bytes(data)
    small.serve()
    with vouch.open(small.name, cache=None, timeout=5) as tree:
        assert tree.stat("a").size == 1 << 20
        with pytest.raises(vouch.Tampered) as error:
            tree.read_bytes("a")
        assert error.value.errno and "\n" not in str(error.value)


def test_revoked_tree_is_refused(small):
    small.serve()
    assert vouch.open(small.name, state=None).listdir() == ["a"]
    statements = small.directory / "statements"
    statements.mkdir()
    small.run("revoke", "keys", "--reason", "lost", "--out", "statements/tree.revocation")
    with pytest.raises(vouch.Revoked, match="lost"):
        vouch.open(small.name, state=None, statements=statements)


def test_unwitnessed_revision_is_refused(small):
    small.serve()
    # The key of a witness that never saw the tree: the base point of Ed25519.
    key = b"\x04\x58" + b"\x66" * 31
    label = hashlib.sha256(b"witness.example\n" + key).digest()[:4].hex()
    policy = small.directory / "policy"
    policy.write_text(f"witness w witness.example+{label}+{base64.b64encode(key).decode()} https://witness.example\nquorum w\n")
    with pytest.raises(vouch.Unwitnessed):
        vouch.open(small.name, state=None, policy=policy, timeout=5)
    policy.write_text("quorum\n")
    with pytest.raises(vouch.InvalidInput):
        vouch.open(small.name, state=None, policy=policy)


def test_command_reads_the_cache_of_python(small):
    small.serve()
    tree = vouch.open(small.name, **small.options("shared"))
    content = tree.read_bytes("a")
    vouch.tree._session(tree._session_options).flush()
    for pack in (small.directory / "db/packs").glob("d-*"):
        pack.unlink()
    cached = small.run("cat", "--cache", small.options("shared")["cache"], f"{small.name}/a", binary=True)
    assert cached == content
