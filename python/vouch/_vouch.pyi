from collections.abc import Iterator
from os import PathLike
from typing import Any, Callable, final

__all__ = ["Change", "Changes", "File", "Listing", "Log", "Revision", "Search", "Session", "Stat", "Tree"]

_Path = str | PathLike[str]

@final
class Stat:
    path: str
    type: str
    mode: int
    size: int
    mtime_ns: int
    uid: int
    gid: int
    nlink: int
    target: str | None
    content_id: str | None
    @property
    def name(self) -> str: ...

@final
class Revision:
    number: int
    tag: str
    message: str | None
    published: int
    expires: int
    files: int
    directories: int
    bytes: int
    def __int__(self) -> int: ...

@final
class Change:
    path: str
    kind: str
    fields: list[str]
    old: Stat | None
    new: Stat | None

@final
class Listing(Iterator[Stat]):
    def __next__(self) -> Stat: ...

@final
class Log(Iterator[Revision]):
    def __next__(self) -> Revision: ...

@final
class Changes(Iterator[Change]):
    def __next__(self) -> Change: ...

@final
class File:
    path: str
    size: int
    def pread(self, offset: int, len: int) -> bytes: ...
    def tell(self) -> int: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def read(self, size: int | None = None, /) -> bytes: ...
    def readline(self, size: int | None = None, /) -> bytes: ...
    def close(self) -> None: ...

@final
class Tree:
    name: str
    revision: Revision
    def refresh(self) -> bool: ...
    def stat(self, path: _Path, *, follow_symlinks: bool = True) -> Stat: ...
    def scandir(self, path: _Path) -> Listing: ...
    def open_file(self, path: _Path) -> File: ...
    def read_ranges(
        self, requests: list[tuple[_Path, int, int | None]]
    ) -> list[bytes | BaseException]: ...
    def verify(
        self, progress: Callable[[int, int, int], object] | None = None
    ) -> tuple[int, int, int, list[tuple[str, str]]]: ...
    def prove(self, path: _Path) -> bytes: ...
    def log(self) -> Log: ...
    def at(self, *, revision: int | None, tag: str | None) -> Tree: ...
    def diff(self, old: Tree) -> Changes: ...
    def counters(self) -> tuple[int, int]: ...

@final
class Session:
    def __new__(
        cls,
        *,
        timeout: float,
        cache: bool | _Path | None,
        cache_quota: int,
        memory_cache: int,
        state: bool | _Path | None,
        state_required: bool,
        policies: list[_Path],
        statements: list[_Path],
        replica_tls: bool,
        replica_ca: _Path | None,
        proxies: list[str],
    ) -> Session: ...
    def open(
        self,
        name: str,
        *,
        revision: int | None,
        tag: str | None,
        replicas: list[str],
        only_replicas: bool,
        follow_forwarding: bool,
    ) -> Tree: ...
    def flush(self) -> None: ...

_Columns = tuple[int, list[tuple[str, str, int, list[bytes]]]]

@final
class Search:
    def __new__(
        cls, directory: _Path, conditions: dict[str, Any], *, newest: bool, scan: bool, limit: int | None
    ) -> Search: ...
    def records(self) -> list[dict[str, Any]] | None: ...
    def columns(self) -> _Columns | None: ...
    @staticmethod
    def no_columns() -> _Columns: ...
