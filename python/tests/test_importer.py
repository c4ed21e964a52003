"""Modules, packages and their resources, imported from a tree."""

import importlib
import importlib.machinery
import importlib.resources
import py_compile
import sys

import pytest

import vouch.importer


@pytest.fixture
def published(empty_site, monkeypatch):
    source = empty_site.source / "site-packages"
    package = source / "sample_pkg"
    (package / "below/deep").mkdir(parents=True)
    (source / "single.py").write_text("VALUE = 1\n")
    (package / "__init__.py").write_text("from .one import ONE\n")
    (package / "one.py").write_text("ONE = 1\n")
    (package / "below/__init__.py").write_text("")
    (package / "below/deep/part.py").write_text("from ...one import ONE\nTWO = ONE + 1\n")
    (package / "data.txt").write_text("resource\n")
    (package / f"fast{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")
    for number in range(300):
        (package / f"m{number}.py").write_text(f"N = {number}\n")
    (package / "compiled.py").write_text("V = 'code'\n")
    code = py_compile.compile(str(package / "compiled.py"))
    # Of another length: this code is out of date.
    (package / "stale.py").write_text("V = 'old'\n")
    py_compile.compile(str(package / "stale.py"))
    (package / "stale.py").write_text("V = 'newer'\n")
    assert code and "__pycache__" in code
    empty_site.publish()
    empty_site.serve()
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    vouch.importer.install(**empty_site.options())
    monkeypatch.setattr(sys, "path", [*sys.path, f"vouch://{empty_site.name}/site-packages"])
    yield empty_site
    for name in set(sys.modules) - known:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def test_modules_and_packages_are_imported(published):
    assert importlib.import_module("single").VALUE == 1
    package = importlib.import_module("sample_pkg")
    assert package.ONE == 1
    assert package.__file__ == f"vouch://{published.name}/site-packages/sample_pkg/__init__.py"
    assert importlib.import_module("sample_pkg.below.deep.part").TWO == 2, "a package without __init__"
    for number in range(300):
        assert importlib.import_module(f"sample_pkg.m{number}").N == number
    assert importlib.import_module("sample_pkg.compiled").V == "code"
    assert importlib.import_module("sample_pkg.stale").V == "newer"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sample_pkg.none")
    with pytest.raises(ImportError, match="vouch mount"):
        importlib.import_module("sample_pkg.fast")


def test_resources_are_read(published):
    files = importlib.resources.files("sample_pkg")
    assert files.joinpath("data.txt").read_text() == "resource\n"
    assert (files / "below").is_dir()


def test_imported_modules_need_no_replica(published):
    package = importlib.import_module("sample_pkg")
    published.stop()
    assert importlib.import_module("sample_pkg.m7").N == 7, "read with the directory"
    assert package.ONE == 1
