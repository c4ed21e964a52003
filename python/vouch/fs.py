"""fsspec: `vouch://@HOST[:PORT],HOSTID/path` in pandas, pyarrow, dask, xarray, DuckDB."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fsspec.spec import AbstractFileSystem

from . import _vouch
from . import tree as _tree

__all__ = ["VouchFileSystem"]


class VouchFileSystem(AbstractFileSystem):
    """Published trees as a read-only file system.

    The options are those of `vouch.open`, as `storage_options={"replicas": […], "revision": 12}`.
    A path begins with the name of its tree. Each tree stays at the revision at which it was first
    used, until `invalidate_cache()`. Processes and mounts share the disk cache.
    """

    protocol = "vouch"
    root_marker = ""
    # Programs such as zarr then await `_cat_file` and the others below.
    async_impl = True

    def __init__(self, *args: Any, asynchronous: bool = False, loop: Any = None, **storage_options: Any) -> None:
        super().__init__(*args, **storage_options)
        self.asynchronous, self._loop = asynchronous, loop
        known = ("skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths", "batch_size")
        self._open_options = {k: v for k, v in storage_options.items() if k not in known}
        self._trees: dict[tuple[int, str], _tree.Tree] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        for prefix in ("vouch://", "vouch:"):
            path = path.removeprefix(prefix)
        return path.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"vouch://{self._strip_protocol(name)}"

    def _tree_of(self, path: str) -> tuple[_tree.Tree, str]:
        name, _, below = self._strip_protocol(path).partition("/")
        key = (os.getpid(), name)
        tree = self._trees.get(key)
        if tree is None:
            try:
                tree = _tree.open(name, **self._open_options)
            except ValueError as error:
                if not name.startswith("@"):
                    raise FileNotFoundError(2, f"a path begins with @HOST,HOSTID: {error}", path) from None
                raise
            tree = self._trees.setdefault(key, tree)
        return tree, below

    def tree(self, path: str) -> _tree.Tree:
        """The tree of a path."""
        return self._tree_of(path)[0]

    @staticmethod
    def _describe(name: str, stat: _vouch.Stat) -> dict[str, Any]:
        kind = {"symlink": "link"}.get(stat.type, stat.type)
        info = {
            "name": name,
            "size": stat.size if kind == "file" else 0,
            "type": kind if kind in ("file", "directory", "link") else "other",
            "mode": stat.mode,
            "uid": stat.uid,
            "gid": stat.gid,
            "nlink": stat.nlink,
            "mtime": stat.mtime_ns / 1e9,
        }
        if stat.content_id is not None:
            info["content_id"] = stat.content_id
        if stat.target is not None:
            info["destination"] = stat.target
            info["islink"] = True
        return info

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        tree, below = self._tree_of(path)
        return self._describe(self._strip_protocol(path), tree._tree.stat(below))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        tree, below = self._tree_of(path)
        stat = tree._tree.stat(below)
        if stat.type != "directory":
            found = [self._describe(path, stat)]
        else:
            found = [self._entry(tree, path, entry) for entry in tree._tree.scandir(below)]
        return found if detail else [info["name"] for info in found]

    def _entry(self, tree: _tree.Tree, path: str, stat: _vouch.Stat) -> dict[str, Any]:
        name = f"{path}/{stat.name}"
        if stat.type == "symlink":
            # As a local file system of fsspec: a link has the type and size of its target.
            try:
                return {**self._describe(name, tree._tree.stat(stat.path)), "islink": True}
            except OSError:
                pass
        return self._describe(name, stat)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "rb":
            raise OSError(30, "published trees are read only", path)
        tree, below = self._tree_of(path)
        return _tree.File(tree._tree.open_file(below))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return self.cat_ranges([path], [start], [end], on_error="raise")[0]

    def cat_ranges(  # type: ignore[override]
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """All ranges are read in parallel."""
        if not isinstance(starts, list):
            starts = [starts] * len(paths)
        if not isinstance(ends, list):
            ends = [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends differ in length")
        results: list[Any] = [None] * len(paths)
        batches: dict[int, tuple[_tree.Tree, list[int], list[Any]]] = {}
        for at, (path, start, end) in enumerate(zip(paths, starts, ends)):
            tree, below = self._tree_of(path)
            if (start or 0) < 0 or (end or 0) < 0:
                size = tree._tree.stat(below).size
                start = max(size + start, 0) if (start or 0) < 0 else start
                end = max(size + end, 0) if (end or 0) < 0 else end
            _, places, requests = batches.setdefault(id(tree), (tree, [], []))
            places.append(at)
            requests.append((below, start or 0, end))
        for tree, places, requests in batches.values():
            for at, result in zip(places, tree._tree.read_ranges(requests)):
                results[at] = result
        if on_error == "raise":
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        return results

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        if recursive:
            paths = [each for each in paths if not self.isdir(each)]
        one = isinstance(path, (str, os.PathLike)) and not recursive and len(paths) == 1
        if one and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0], **kwargs)
        results = dict(zip(paths, self.cat_ranges(paths, None, None)))
        for each, result in list(results.items()):
            if isinstance(result, BaseException):
                if on_error == "raise":
                    raise result
                if on_error == "omit":
                    del results[each]
        return results

    def created(self, path: str) -> Any:
        return self.modified(path)

    def modified(self, path: str) -> Any:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def checksum(self, path: str) -> Any:
        return self.ukey(path)

    def ukey(self, path: str) -> str:
        """Equal for equal content of one tree."""
        info = self.info(path)
        return info.get("content_id") or f"{info['name']}-{info['mtime']}"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Moves trees to their newest revision, unless the options name one."""
        if not {"revision", "tag"} & self._open_options.keys():
            for (pid, _), tree in list(self._trees.items()):
                if pid == os.getpid():
                    tree.refresh()
        super().invalidate_cache(path)

    @property
    def loop(self) -> Any:
        from fsspec.asyn import get_loop

        return self._loop or get_loop()

    async def _walk(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        for step in await asyncio.to_thread(lambda: list(self.walk(path, maxdepth, **kwargs))):
            yield step


def _awaited(name: str) -> Any:
    async def call(self: VouchFileSystem, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(getattr(self, name), *args, **kwargs)

    return call


for _name in (
    "info", "ls", "find", "glob", "du", "size", "sizes", "exists", "isfile", "isdir", "expand_path",
    "cat", "cat_file", "cat_ranges", "get", "get_file",
):
    setattr(VouchFileSystem, "_" + _name, _awaited(_name))
