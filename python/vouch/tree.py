"""Trees, paths in them, and open files."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pathlib
import stat as _stat
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Union

from . import _vouch
from ._vouch import Change, Revision, Stat
from .errors import InvalidInput

StrPath = Union[str, "os.PathLike[str]"]

ABSENT = (FileNotFoundError, NotADirectoryError, InvalidInput)
"""Of a path: the tree has no such file, or a link leads out of the tree."""

_sessions: dict[Any, _vouch.Session] = {}


def _session(options: dict[str, Any]) -> _vouch.Session:
    """Trees with equal options share caches. A child of fork(2) makes its own."""
    key = (os.getpid(), *sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()))
    session = _sessions.get(key)
    if session is None:
        session = _sessions.setdefault(key, _vouch.Session(**options))
    return session


def _strings(value: StrPath | Iterable[StrPath] | None) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (str, os.PathLike)):
        return [os.fspath(value)]
    return [os.fspath(each) for each in value]


def open(  # noqa: A001
    name: str,
    *,
    revision: int | None = None,
    tag: str | None = None,
    policy: StrPath | Iterable[StrPath] | None = None,
    replicas: str | Iterable[str] = (),
    only_replicas: bool = False,
    timeout: float = 30.0,
    cache: bool | StrPath | None = True,
    cache_quota: int = 10 << 30,
    memory_cache: int | None = None,
    state: bool | StrPath | None = True,
    state_required: bool = False,
    statements: StrPath | Iterable[StrPath] = (),
    replica_tls: bool = False,
    replica_ca: StrPath | None = None,
    proxies: str | Iterable[str] = (),
    follow_forwarding: bool = True,
) -> Tree:
    """Open a tree by its self-certifying name, `@HOST[:PORT],HOSTID`.

    The tree stays at one revision until `Tree.refresh()`.

    revision, tag: an older revision, by number or by tag; the default is the newest.
    policy: files with policies of witnesses (C2SP tlog-policy), beside /etc/vouch/policy.
    replicas: HOST[:PORT], tls://HOST or URLs to ask beside the host in the name, or with
        only_replicas instead of it.
    timeout: limit of each operation, in seconds.
    cache: directory of the disk cache; True is $VOUCH_CACHE or the one that `vouch mount` uses;
        None is no disk cache. cache_quota: its limit in bytes.
    memory_cache: verified content in memory, in bytes; None is a quarter of the memory divided by the CPUs,
        at least 256 MiB and at most 1 GiB.
    state: directory that remembers the newest revision seen, which detects rollbacks; True is
        $VOUCH_STATE or that of the command `vouch`; None remembers within this process only. If it
        can't be written, there is a RuntimeWarning, or with state_required an error.
    statements: directories of key statements, beside /etc/vouch/statements.
    replica_tls, replica_ca, proxies: as the options of `vouch cat`.

    Raises ValueError for a malformed name, and exceptions of `vouch.errors`: NoRevision, Tampered,
    Rollback, Revoked, Expired, Unwitnessed, Unreachable, LocalError.
    """
    session = {
        "timeout": float(timeout),
        "cache": _directory(cache),
        "cache_quota": cache_quota,
        "memory_cache": _memory_cache() if memory_cache is None else memory_cache,
        "state": _directory(state),
        "state_required": state_required,
        "policies": _strings(policy),
        "statements": _strings(statements),
        "replica_tls": replica_tls,
        "replica_ca": None if replica_ca is None else os.fspath(replica_ca),
        "proxies": _strings(proxies),
    }
    options: dict[str, Any] = {
        "replicas": _strings(replicas),
        "only_replicas": only_replicas,
        "follow_forwarding": follow_forwarding,
    }
    opened = _session(session).open(name, revision=revision, tag=tag, **options)
    return Tree(opened, name, session, options)


@functools.cache
def _memory_cache() -> int:
    """Small enough for a process on each CPU."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Limits of the container.
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(pathlib.Path(limit).read_text()))
    return min(max(memory // (4 * len(os.sched_getaffinity(0))), 256 << 20), 1 << 30)


def _directory(value: bool | StrPath | None) -> bool | str | None:
    if value is False:
        return None
    return value if value is None or value is True else os.fspath(value)


class VerifyReport(NamedTuple):
    """Result of `Tree.verify`."""

    frames: int
    bytes: int
    """As stored."""
    files: int
    problems: list[tuple[str, str]]
    """Path and reason of each bad frame."""

    def __bool__(self) -> bool:
        return not self.problems


class Tree:
    """One revision of a tree, from `vouch.open`.

    Threads may share it. It can be pickled: the copy is opened by its name at the same revision.
    A child of fork(2) must open its own; calls on the parent's raise RuntimeError.
    """

    def __init__(self, opened: _vouch.Tree, name: str, session: dict[str, Any], options: dict[str, Any]) -> None:
        self._opened: _vouch.Tree | None = opened
        # Known without a lock, which a thread of the parent may hold when a child is forked.
        self._number = opened.revision.number
        self._name, self._session_options, self._options = name, session, options

    @property
    def _tree(self) -> _vouch.Tree:
        if self._opened is None:
            raise ValueError("the tree is closed")
        return self._opened

    @property
    def closed(self) -> bool:
        """Set by `close`."""
        return self._opened is None

    def close(self) -> None:
        """Let go of replicas. Open files can still be read."""
        self._opened = None

    @property
    def name(self) -> str:
        """As given, or after the last forwarding pointer."""
        return self._tree.name

    @property
    def revision(self) -> Revision:
        """The revision that is read."""
        return self._tree.revision

    def refresh(self) -> bool:
        """Ask replicas for a newer revision and move to it. False if there is none."""
        is_newer = self._tree.refresh()
        self._number = self._tree.revision.number
        return is_newer

    def at(self, *, revision: int | None = None, tag: str | None = None) -> Tree:
        """The same tree at another revision. Raises NoRevision."""
        tree = self._tree.at(revision=revision, tag=tag)
        return Tree(tree, self._name, self._session_options, self._options)

    def stat(self, path: StrPath = "", *, follow_symlinks: bool = True) -> Stat:
        """Attributes of a file. Raises FileNotFoundError, NotADirectoryError, InvalidInput."""
        return self._tree.stat(path, follow_symlinks=follow_symlinks)

    def scandir(self, path: StrPath = "") -> Iterator[Stat]:
        """Entries of a directory, sorted by name in bytes. One page is in memory."""
        return self._tree.scandir(path)

    def listdir(self, path: StrPath = "") -> list[str]:
        """Names in a directory, sorted."""
        return [entry.name for entry in self._tree.scandir(path)]

    def walk(self, top: StrPath = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """As `os.walk`, top down: (path, names of directories, names of others). Does not follow
        symbolic links. Remove names from the second list to skip directories."""
        waiting = [os.fspath(top).strip("/")]
        while waiting:
            path = waiting.pop()
            directories: list[str] = []
            others: list[str] = []
            for entry in self._tree.scandir(path):
                (directories if entry.type == "directory" else others).append(entry.name)
            yield path, directories, others
            waiting.extend(f"{path}/{name}" if path else name for name in reversed(directories))

    def open(self, path: StrPath, mode: str = "rb", **options: Any) -> Any:
        """Open a file for reading: `rb`, or `r` with the options of `io.TextIOWrapper`.

        A binary file has `read`, `readinto`, `seek`, and `pread(offset, length)` for threads.
        """
        if mode not in ("r", "rt", "rb"):
            raise ValueError(f"mode {mode!r}: published trees are read only")
        file = File(self._tree.open_file(path))
        return file if mode == "rb" else io.TextIOWrapper(file, **options)  # type: ignore[arg-type]

    def read_bytes(self, path: StrPath, start: int = 0, end: int | None = None) -> bytes:
        """Bytes of a file, from `start` to before `end`; None is its end."""
        return self.read_ranges([(path, start, end)])[0]

    def read_text(self, path: StrPath, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A whole file as text."""
        return self.read_bytes(path).decode(encoding, errors)

    def read_ranges(self, requests: Iterable[tuple[StrPath, int, int | None]]) -> list[bytes]:
        """Read (path, start, end) of many files in parallel. Raises the first error."""
        results = self._tree.read_ranges(list(requests))
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results  # type: ignore[return-value]

    def verify(self, progress: Callable[[int, int, int], object] | None = None) -> VerifyReport:
        """Check each frame of the revision, past all caches.

        progress(frames, bytes, waiting) is called now and then, by this thread. Raises Unreachable
        if replicas stop answering; bad frames are in the report.
        """
        return VerifyReport(*self._tree.verify(progress))

    def prove(self, path: StrPath) -> bytes:
        """The proof of what the revision holds at a path, for `vouch check-proof`."""
        return self._tree.prove(path)

    def log(self) -> Iterator[Revision]:
        """Revisions, newest first, as far back as replicas have them."""
        return self._tree.log()

    def diff(self, old: Tree) -> Iterator[Change]:
        """Differences from `old` to this revision, sorted by path."""
        return self._tree.diff(old._tree)

    def __truediv__(self, path: StrPath) -> Path:
        return Path(self, path)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<vouch.Tree {self._name}, closed>"
        return f"<vouch.Tree {self.name} revision {self.revision.number}>"

    def __reduce__(self) -> Any:
        return _reopen, (self._name, self._session_options, self._options, self._number)


def _reopen(name: str, session: dict[str, Any], options: dict[str, Any], revision: int) -> Tree:
    opened = _session(session).open(name, revision=revision, tag=None, **options)
    return Tree(opened, name, session, options)


class Path:
    """A path in a tree, with the reading methods of `pathlib.Path`: `tree / "docs" / "a.txt"`.

    `os.fspath` gives its URL, which programs that use fsspec open.
    """

    __slots__ = ("_pure", "tree")

    def __init__(self, tree: Tree, *parts: StrPath) -> None:
        self.tree = tree
        self._pure = pathlib.PurePosixPath("/", *(os.fspath(part).lstrip("/") for part in parts))

    def __truediv__(self, part: StrPath) -> Path:
        return Path(self.tree, self.path, part)

    def joinpath(self, *parts: StrPath) -> Path:
        """The path of something below."""
        return Path(self.tree, self.path, *parts)

    @property
    def path(self) -> str:
        """From the root of the tree, without a leading slash."""
        return str(self._pure)[1:]

    @property
    def name(self) -> str:
        """The last component."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its dot."""
        return self._pure.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """Components from the root of the tree."""
        return self._pure.parts[1:]

    @property
    def parent(self) -> Path:
        """The directory; of the root, the root."""
        return Path(self.tree, str(self._pure.parent))

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """As `Tree.stat`."""
        return self.tree.stat(self.path, follow_symlinks=follow_symlinks)

    def _is(self, kind: Callable[[int], bool], follow: bool = True) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follow).mode)
        except ABSENT:
            return False

    def exists(self) -> bool:
        """False for a symbolic link that leads out of the tree."""
        return self._is(lambda _: True)

    def is_file(self) -> bool:
        """True for a regular file, or a symbolic link to one."""
        return self._is(_stat.S_ISREG)

    def is_dir(self) -> bool:
        """True for a directory, or a symbolic link to one."""
        return self._is(_stat.S_ISDIR)

    def is_symlink(self) -> bool:
        """True for a symbolic link, wherever it leads."""
        return self._is(_stat.S_ISLNK, follow=False)

    def iterdir(self) -> Iterator[Path]:
        """Paths in a directory, sorted by name."""
        for entry in self.tree.scandir(self.path):
            yield Path(self.tree, self.path, entry.name)

    def glob(self, pattern: str) -> Iterator[Path]:
        """Paths below that match, as of `pathlib.Path.glob`. `**` does not follow symbolic links."""
        parts = pathlib.PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"{pattern!r}: give a relative pattern")
        return iter(dict.fromkeys(self._matches(parts)))

    def rglob(self, pattern: str) -> Iterator[Path]:
        """As `glob` of the pattern below any directory."""
        return self.glob(f"**/{pattern}")

    def _matches(self, parts: tuple[str, ...]) -> Iterator[Path]:
        part, rest = parts[0], parts[1:]
        if parts == ("**",):
            yield self
            rest = ("*",)
        if part == "**":
            yield from self._matches(rest)
            for entry in self.tree.scandir(self.path):
                if entry.type == "directory":
                    yield from (self / entry.name)._matches((part, *rest))
        elif any(special in part for special in "*?["):
            for entry in self.tree.scandir(self.path):
                if fnmatchcase(entry.name, part):
                    yield from (self / entry.name)._matched(rest)
        else:
            yield from (self / part)._matched(rest)

    def _matched(self, rest: tuple[str, ...]) -> Iterator[Path]:
        if not rest:
            return iter([self] if self._is(lambda _: True, follow=False) else [])
        return self._matches(rest) if self.is_dir() else iter(())

    def open(self, mode: str = "r", **options: Any) -> Any:
        """As `Tree.open`; the default is text."""
        return self.tree.open(self.path, mode, **options)

    def read_bytes(self) -> bytes:
        """The whole file."""
        return self.tree.read_bytes(self.path)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole file as text."""
        return self.tree.read_text(self.path, encoding, errors)

    def __fspath__(self) -> str:
        return f"vouch://{self.tree.name}/{self.path}"

    def __str__(self) -> str:
        return self.__fspath__()

    def __repr__(self) -> str:
        return f"vouch.Path({self.__fspath__()!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and self._key() == other._key()

    def __lt__(self, other: Path) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int, pathlib.PurePosixPath]:
        return self.tree.name, self.tree.revision.number, self._pure


class File(io.RawIOBase):
    """An open file. `read` returns all bytes that it is asked for, except at the end."""

    def __init__(self, file: _vouch.File) -> None:
        self._file = file
        # Native functions, without a step of the interpreter between `seek` and `read`.
        self.seek = file.seek  # type: ignore[method-assign]
        self.tell = file.tell  # type: ignore[method-assign]
        self.read = file.read  # type: ignore[method-assign]
        self.read1 = self.readall = file.read  # type: ignore[method-assign]
        self.readline = file.readline  # type: ignore[method-assign]
        self.pread = file.pread
        """`pread(offset, length)`: bytes from an offset; leaves the position of the file alone."""
        self.name = file.path
        self.mode = "rb"
        self.size = file.size
        """Bytes."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._file.close()

    def __del__(self) -> None:
        """Closes nothing: in `tree.open(path).read()` the native method outlives this object."""

    def peek(self, size: int = 0, /) -> bytes:
        """The next bytes, without moving."""
        return self._file.pread(self._file.tell(), max(size, 8192))

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    readinto1 = readinto
