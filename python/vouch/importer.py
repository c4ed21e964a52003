"""Import of Python modules from published trees.

>>> import sys, vouch.importer
>>> vouch.importer.install()
>>> sys.path.append("vouch://@pub.example.org,HOSTID/site-packages")

A directory's modules are read together, at the first import from it. Compiled code beside them, in
`__pycache__`, is used as usual, and never written. Extension modules need a mount: `vouch mount`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import Any

from . import tree as _tree

__all__ = ["TreeFinder", "install"]

_PREFIX = "vouch://"
_READ_AT_ONCE_MAX = 1 << 20
"""Longer modules are read one by one."""

_PREFETCH_MAX = 32 << 20
"""Bytes of one directory."""


def install(**options: Any) -> None:
    """Let entries of `sys.path` begin with `vouch://`. The options are those of `vouch.open`.

    All modules from a tree are of the revision at which it was first used. A second call changes the
    options of trees that are first used later.
    """
    for hook in sys.path_hooks:
        if isinstance(hook, _Hook):
            hook.options = options
            return
    sys.path_hooks.append(_Hook(options))
    sys.path_importer_cache.clear()


class _Hook:
    """Makes a finder for each entry of `sys.path` and each directory of a package."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._trees: dict[str, _tree.Tree] = {}

    def __call__(self, entry: str) -> TreeFinder:
        if not isinstance(entry, str) or not entry.startswith(_PREFIX):
            raise ImportError("not a published tree")
        name, _, path = entry[len(_PREFIX) :].partition("/")
        tree = self._trees.get(name)
        if tree is None:
            tree = self._trees.setdefault(name, _tree.open(name, **self.options))
        return TreeFinder(tree, entry, path.strip("/"))


class TreeFinder(importlib.abc.PathEntryFinder):
    """Finds modules in one directory of a tree."""

    def __init__(self, tree: _tree.Tree, entry: str, path: str) -> None:
        self._tree, self._entry, self._path = tree, entry.rstrip("/"), path
        self._kinds: dict[str, str] | None = None
        self._data: dict[str, bytes] = {}

    def find_spec(self, fullname: str, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        name = fullname.rpartition(".")[2]
        kinds = self._listed()
        if kinds.get(name) == "directory":
            below = f"{self._entry}/{name}"
            package = TreeFinder(self._tree, below, self._join(name))
            if "__init__.py" in package._listed():
                # The import system asks for this finder again, with the package's path.
                sys.path_importer_cache[below] = package
                loader = TreeLoader(package, fullname, f"{below}/__init__.py")
                return importlib.util.spec_from_loader(fullname, loader, is_package=True)
            if f"{name}.py" not in kinds:
                spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
                spec.submodule_search_locations = [below]
                return spec
        if f"{name}.py" in kinds:
            loader = TreeLoader(self, fullname, f"{self._entry}/{name}.py")
            return importlib.util.spec_from_loader(fullname, loader)
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            if name + suffix in kinds:
                path = f"{self._entry}/{name}{suffix}"
                raise ImportError(f"{path}: extension modules need a mount; see `vouch mount`", name=fullname, path=path)
        return None

    def invalidate_caches(self) -> None:
        """Nothing: the tree stays at its revision."""

    def _join(self, name: str) -> str:
        return f"{self._path}/{name}" if self._path else name

    def _listed(self) -> dict[str, str]:
        """Kinds by name; empty if there is no such directory."""
        if self._kinds is None:
            try:
                entries = list(self._tree.scandir(self._path))
            except (FileNotFoundError, NotADirectoryError):
                entries = []
            kinds = {entry.name: entry.type for entry in entries}
            wanted = [self._join(entry.name) for entry in entries if self._is_wanted(entry)]
            if kinds.get("__pycache__") == "directory":
                tag = f".{sys.implementation.cache_tag}.pyc"
                compiled = self._tree.scandir(self._join("__pycache__"))
                wanted += [
                    self._join(f"__pycache__/{entry.name}")
                    for entry in compiled
                    if entry.name.endswith(tag) and entry.size <= _READ_AT_ONCE_MAX
                ]
                # Their sources are compared by time and size only.
                has_code = {path.rpartition("/")[2].split(".")[0] for path in wanted if path.endswith(tag)}
                wanted = [path for path in wanted if path.endswith(tag) or path.rpartition("/")[2][:-3] not in has_code]
            self._read(wanted)
            self._kinds = kinds
        return self._kinds

    @staticmethod
    def _is_wanted(entry: Any) -> bool:
        return entry.type == "file" and entry.name.endswith(".py") and entry.size <= _READ_AT_ONCE_MAX

    def _read(self, paths: list[str]) -> None:
        sizes = 0
        requests: list[tuple[Any, int, int | None]] = []
        for path in paths:
            sizes += self._tree.stat(path).size
            if sizes > _PREFETCH_MAX:
                break
            requests.append((path, 0, None))
        for (path, _, _), data in zip(requests, self._tree.read_ranges(requests)):
            self._data[path] = data

    def read(self, path: str) -> bytes:
        """Bytes of a module, once: the module keeps its code."""
        data = self._data.pop(path, None)
        return self._tree.read_bytes(path) if data is None else data


class TreeLoader(importlib.abc.SourceLoader):
    """Loads one module."""

    def __init__(self, finder: TreeFinder, fullname: str, url: str) -> None:
        self._finder, self._fullname, self._url = finder, fullname, url

    def get_filename(self, fullname: str) -> str:
        return self._url

    def get_data(self, path: str) -> bytes:  # type: ignore[override]
        return self._finder.read(self._inside(path))

    def path_stats(self, path: str) -> dict[str, Any]:  # type: ignore[override]
        stat = self._finder._tree.stat(self._inside(path))
        return {"mtime": stat.mtime_ns // 1_000_000_000, "size": stat.size}

    def get_resource_reader(self, fullname: str) -> _Resources | None:
        return _Resources(self) if self._url.endswith("/__init__.py") else None

    @staticmethod
    def _inside(url: str) -> str:
        return url[len(_PREFIX) :].partition("/")[2]


class _Resources:
    """For `importlib.resources.files`."""

    def __init__(self, loader: TreeLoader) -> None:
        self._loader = loader

    def files(self) -> _tree.Path:
        path = TreeLoader._inside(self._loader._url).rpartition("/")[0]
        return self._loader._finder._tree / path
