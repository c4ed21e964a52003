"""fsspec: `vouch://@HOST[:PORT],HOSTID/path` in pandas, pyarrow, dask, xarray, DuckDB."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsspec.spec import AbstractFileSystem

from . import _vouch
from . import tree as _tree

__all__ = ["VouchFileSystem"]

_ASYNCHRONOUS_CALLS_MAX = 64
"""As the native part reads files at once. Each waits in a thread."""

_pools: dict[int, ThreadPoolExecutor] = {}
"""By process: a child of fork(2) has no threads of its parent's."""


async def _in_pool(call: Callable[[], Any]) -> Any:
    """As `asyncio.to_thread`, whose pool has a few threads only."""
    pool = _pools.get(os.getpid())
    if pool is None:
        pool = _pools.setdefault(os.getpid(), ThreadPoolExecutor(_ASYNCHRONOUS_CALLS_MAX, "vouch-fs"))
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(pool, lambda: context.run(call))


class VouchFileSystem(AbstractFileSystem):
    """Published trees as a read-only file system.

    The options are those of `vouch.open`, as `storage_options={"replicas": […], "revision": 12}`.
    A path begins with the name of its tree. Each tree stays at the revision at which it was first
    used, until `invalidate_cache()`. Pickled and forked copies have the same revisions. Processes and
    mounts share the disk cache.
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
        self._revisions: dict[str, int] = {}

    def _used_revisions(self) -> dict[str, int]:
        """By name of the tree, also of trees that the parent process opened."""
        return self._revisions | {name: tree._number for (_, name), tree in list(self._trees.items())}

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.storage_args, self.storage_options, self._used_revisions())

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
        if tree is not None and tree.closed:
            self._revisions[name] = tree._number
            self._trees.pop(key, None)
            tree = None
        if tree is None:
            options = self._open_options
            revision = self._used_revisions().get(name)
            if revision is not None:
                options = {**options, "revision": revision, "tag": None}
            try:
                tree = _tree.open(name, **options)
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
            except _tree.ABSENT:
                pass
        return self._describe(name, stat)

    def _type(self, path: str) -> str | None:
        """`None` if there is no such file. Raises other errors: a file that replicas withhold is not absent."""
        try:
            tree, below = self._tree_of(path)
        except FileNotFoundError:
            return None
        try:
            return tree._tree.stat(below).type
        except _tree.ABSENT:
            return None

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self._type(path) is not None

    def isfile(self, path: str) -> bool:
        return self._type(path) == "file"

    def isdir(self, path: str) -> bool:
        return self._type(path) == "directory"

    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, on_error: Any = "omit", **kwargs: Any
    ) -> Any:
        """Links to directories are among the files, and are not followed. `on_error="omit"` leaves out
        what does not exist, and raises other errors."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        detail = kwargs.get("detail", False)
        directories: dict[str, Any] = {}
        files: dict[str, Any] = {}
        try:
            for info in self.ls(path):
                name = "" if info["name"] == path else info["name"].rpartition("/")[2]
                is_below = name and info["type"] == "directory" and not info.get("islink")
                (directories if is_below else files)[name] = info
        except OSError as error:
            if callable(on_error):
                on_error(error)
            elif on_error == "raise" or not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise
            return
        step = (path, directories, files) if detail else (path, list(directories), list(files))
        if topdown:
            yield step
        if maxdepth is None or maxdepth > 1:
            for name in step[1]:
                yield from self.walk(f"{path}/{name}", maxdepth and maxdepth - 1, topdown, on_error, **kwargs)
        if not topdown:
            yield step

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> Any:
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **kwargs)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "rb":
            raise _read_only(path)
        tree, below = self._tree_of(path)
        return _tree.File(tree._tree.open_file(below))

    def _refuse(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        raise _read_only(path)

    # Those of fsspec do nothing, or raise NotImplementedError.
    mkdir = makedirs = rmdir = rm = rm_file = _rm = cp_file = copy = mv = _refuse

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
            try:
                tree, below = self._tree_of(path)
                if (start or 0) < 0 or (end or 0) < 0:
                    size = tree._tree.stat(below).size
                    start = max(size + start, 0) if (start or 0) < 0 else start
                    end = max(size + end, 0) if (end or 0) < 0 else end
            except (OSError, ValueError) as error:
                results[at] = error
                continue
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
            self._revisions.clear()
            for (pid, name), tree in list(self._trees.items()):
                if pid == os.getpid() and not tree.closed:
                    tree.refresh()
                else:
                    self._trees.pop((pid, name), None)
        super().invalidate_cache(path)

    @property
    def loop(self) -> Any:
        from fsspec.asyn import get_loop

        return self._loop or get_loop()

    async def _walk(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        for step in await _in_pool(lambda: list(self.walk(path, maxdepth, **kwargs))):
            yield step


def _read_only(path: Any) -> OSError:
    return OSError(errno.EROFS, "published trees are read only", path)


def _restored(
    cls: type[VouchFileSystem], args: tuple[Any, ...], options: dict[str, Any], revisions: dict[str, int]
) -> VouchFileSystem:
    """From a pickle. fsspec shares one file system among equal options, which may be at other revisions."""
    fs = cls(*args, **options)
    used = fs._used_revisions()
    if any(used.get(name, number) != number for name, number in revisions.items()):
        fs = cls(*args, **{**options, "skip_instance_cache": True})
    fs._revisions.update(revisions)
    return fs


def _awaited(name: str) -> Any:
    async def call(self: VouchFileSystem, *args: Any, **kwargs: Any) -> Any:
        return await _in_pool(lambda: getattr(self, name)(*args, **kwargs))

    return call


for _name in (
    "info", "ls", "find", "glob", "du", "size", "sizes", "exists", "isfile", "isdir", "expand_path",
    "cat", "cat_file", "cat_ranges", "get", "get_file",
):
    setattr(VouchFileSystem, "_" + _name, _awaited(_name))
