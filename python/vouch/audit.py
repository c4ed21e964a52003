"""Search in audit trails: records as dictionaries, and as Arrow tables for pandas and polars.

>>> import vouch.audit
>>> found = vouch.audit.search("/var/lib/vouch/audit", principal="alice@EXAMPLE.ORG", result="failure")
>>> for record in found:
...     print(record["time"], record["action"], record["path"])
>>> vouch.audit.search("/var/lib/vouch/audit").table().to_pandas()

A search reads records and does not verify the trail: `vouch audit verify` does.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Union

from . import _vouch
from .tree import StrPath, _strings

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Search", "search"]

When = Union[datetime, timedelta, int]


def search(
    directory: StrPath,
    *,
    since: When | None = None,
    until: When | None = None,
    principal: str | None = None,
    uid: int | str | None = None,
    auid: int | str | None = None,
    path: StrPath | None = None,
    below: StrPath | None = None,
    file: str | None = None,
    export: StrPath | None = None,
    client: str | None = None,
    operations: str | Iterable[str] = (),
    kind: str | None = None,
    result: int | str | None = None,
    access: str | None = None,
    key: str | None = None,
    fields: str | Iterable[str] = (),
    newest: bool = False,
    limit: int | None = None,
    scan: bool = False,
) -> Search:
    """Find records in the trail of a directory. All conditions must hold.

    since, until: a datetime (a naive one is local time), nanoseconds since 1970, or a timedelta
        before now. `until` itself is excluded.
    principal, client: `*` stands for any text; a client may be a network, `10.1.0.0/16`.
    uid, auid: the user whose rights were used, and the login user; a number or a name.
    path: a file, also as the new path of a rename; below: a directory and all below it.
    file: identity in hexadecimal, as in records.
    operations: NFS operations or system calls.
    kind: operation, refusal, administrative, gap or host.
    result: success, failure, an error such as ENOENT, or a status number.
    fields: as in rules, `flavour=krb5p`; users by number.
    newest: the newest records first; limit: at most this many.
    scan: read all segments without their index.

    Raises ValueError for a wrong condition, FileNotFoundError and OSError for the directory.
    """
    os.listdir(directory)
    conditions = {
        "from_ns": _nanoseconds(since),
        "until_ns": _nanoseconds(until),
        "principal": principal,
        "uid": _user(uid),
        "auid": _user(auid),
        "path": _normal(path),
        "below": _normal(below),
        "file": file,
        "export": export,
        "client": client,
        "operations": _strings(operations),
        "class": kind,
        "result": None if result is None else str(result),
        "access": access,
        "key": key,
        "fields": _strings(fields),
    }
    return Search(_vouch.Search(directory, conditions, newest=newest, scan=scan, limit=limit))


class Search:
    """Records that a search finds, oldest first by default. It can be read once.

    As an iterator it gives dictionaries, whose keys are the columns of the table; `time` is in
    nanoseconds since 1970, and a value that a record lacks is None.
    """

    def __init__(self, found: _vouch.Search) -> None:
        self._found = found
        self._waiting: Iterator[dict[str, Any]] = iter(())

    def __iter__(self) -> Search:
        return self

    def __next__(self) -> dict[str, Any]:
        while True:
            for record in self._waiting:
                return record
            records = self._found.records()
            if records is None:
                raise StopIteration
            self._waiting = iter(records)

    def reader(self) -> pyarrow.RecordBatchReader:
        """Arrow batches of some thousand records, with pyarrow. Memory: a few batches."""
        import pyarrow

        first = next(self._batches(), None)
        schema = _empty() if first is None else first.schema

        def batches() -> Iterator[pyarrow.RecordBatch]:
            if first is not None:
                yield first
            yield from self._batches()

        return pyarrow.RecordBatchReader.from_batches(schema, batches())

    def table(self) -> pyarrow.Table:
        """All records as an Arrow table, with pyarrow. Memory: about 250 bytes for a record."""
        return self.reader().read_all().unify_dictionaries()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        while (found := self._found.columns()) is not None:
            yield _batch(*found)


def _empty() -> pyarrow.Schema:
    return _batch(*_vouch.Search.no_columns()).schema


def _batch(length: int, columns: list[tuple[str, str, int, list[bytes]]]) -> pyarrow.RecordBatch:
    import pyarrow

    types = {
        "uint32": pyarrow.uint32(),
        "uint64": pyarrow.uint64(),
        "time": pyarrow.timestamp("ns", "UTC"),
        "text": pyarrow.string(),
        "label": pyarrow.int32(),
    }
    arrays = []
    for _, kind, nulls, buffers in columns:
        of_pyarrow = [pyarrow.py_buffer(buffer) for buffer in buffers]
        split = 2 if kind == "label" else len(buffers)
        array = pyarrow.Array.from_buffers(types[kind], length, of_pyarrow[:split], null_count=nulls)
        if kind == "label":
            count = len(buffers[2]) // 4 - 1
            labels = pyarrow.Array.from_buffers(pyarrow.string(), count, [None, *of_pyarrow[2:]])
            array = pyarrow.DictionaryArray.from_arrays(array, labels)
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, names=[name for name, *_ in columns])


def _nanoseconds(when: When | None) -> int | None:
    if isinstance(when, timedelta):
        when = datetime.now(timezone.utc) - when
    if isinstance(when, datetime):
        since = when.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return (since // timedelta(microseconds=1)) * 1000
    return when


def _user(user: int | str | None) -> int | None:
    if not isinstance(user, str):
        return user
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(f"{user}: unknown user; give the number") from None


def _normal(path: StrPath | None) -> str | None:
    """Records have absolute paths without `//`, `/./` and a slash at the end."""
    if path is None:
        return None
    text = os.fspath(path)
    if not text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"{text}: records have absolute paths without `..`")
    return os.path.normpath("/" + text.lstrip("/"))
