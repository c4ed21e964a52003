"""Publishing by the command `vouch`, so that signing keys never enter this process."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Union

from . import errors
from .tree import Path as TreePath
from .tree import StrPath

__all__ = ["publish"]

Content = Union[bytes, "os.PathLike[str]", Iterable[bytes]]


def publish(
    source: StrPath | Iterable[tuple[str, Content]],
    *,
    db: StrPath,
    keys: StrPath,
    location: str,
    program: StrPath = "vouch",
    **options: Any,
) -> dict[str, Any]:
    """Publish a directory, or files of a generator, as the next revision of a tree.

    source: a directory, or pairs of a relative path and its content: bytes, an iterable of bytes,
        or an `os.PathLike` of a file to copy, also one in a published tree, with its time and whether
        it can be executed. Pairs are written to a temporary directory first, in the directory of
        the database; files that are not among them are not in the revision.
    db, keys: directories of the tree's database and of its signing key (`vouch keygen`).
    location: HOST[:PORT] in the tree's name.
    options: those of `vouch publish`, with underscores: tag="1.2", duration="7d", exclude=["*.tmp"],
        one_file_system=True.

    Returns the report of `vouch publish --json`: name, revision, files, bytes, new_bytes and so on.
    Raises InvalidInput, FileNotFoundError, LocalError and other `vouch.errors` with the command's
    line, and ValueError for a path that is absolute or has `..`.
    """
    arguments = ["--json", "--db", os.fspath(db), "--keys", os.fspath(keys), "--location", location]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is not False and each is not None:
                arguments.append(option if each is True else f"{option}={os.fspath(each) if isinstance(each, os.PathLike) else each}")
    if isinstance(source, (str, os.PathLike)):
        return _run(program, arguments, os.fspath(source))
    import tempfile

    above = Path(db).absolute().parent
    with tempfile.TemporaryDirectory(prefix=".vouch-publish-", dir=above) as staged:
        os.chmod(staged, 0o755)
        for path, content in source:
            _write(Path(staged), path, content)
        return _run(program, arguments, staged)


def _write(root: Path, path: str, content: Content) -> None:
    pure = PurePosixPath(path)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts:
        raise ValueError(f"{path!r}: give a relative path without `..`")
    target = root / pure
    target.parent.mkdir(parents=True, exist_ok=True)
    mode, mtime_ns = 0o644, None
    if isinstance(content, os.PathLike):
        mode, mtime_ns = _mode_and_time(content)
        content = _pieces(content)
    elif isinstance(content, (bytes, bytearray, memoryview)):
        content = [content]
    # `x` refuses a path that was given twice.
    with open(target, "xb") as out:
        for piece in content:
            out.write(piece)
    os.chmod(target, mode)
    if mtime_ns is not None:
        os.utime(target, ns=(mtime_ns, mtime_ns))


def _mode_and_time(path: os.PathLike[str]) -> tuple[int, int]:
    if isinstance(path, TreePath):
        published = path.stat()
        mode, mtime_ns = published.mode, published.mtime_ns
    else:
        local = os.stat(path)
        mode, mtime_ns = local.st_mode, local.st_mtime_ns
    return 0o755 if mode & stat.S_IXUSR else 0o644, mtime_ns


def _pieces(path: os.PathLike[str]) -> Iterable[bytes]:
    # A path in a published tree too.
    with path.open("rb") if hasattr(path, "open") else open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece


_KINDS = {
    2: (errors.InvalidInput, errno.EINVAL),
    3: (errors.InvalidInput, errno.EINVAL),
    4: (errors.NotFound, errno.ENOENT),
    5: (errors.Tampered, errno.EBADMSG),
    6: (errors.Unreachable, errno.ETIMEDOUT),
}


def _run(program: StrPath, arguments: list[str], source: str) -> dict[str, Any]:
    import json
    import subprocess

    command = [program, "publish", *arguments, "--", source]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)
    lines = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
    kind, number = _KINDS.get(done.returncode, (errors.LocalError, errno.EIO))
    raise kind(number, " ".join(lines) or done.stderr.strip() or f"vouch publish ended with {done.returncode}")
