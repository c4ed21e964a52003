"""Verified reading of published trees.

>>> import vouch
>>> tree = vouch.open("@pub.example.org,HOSTID")
>>> tree.read_bytes("docs/hello.txt")
b'hello\\n'

Every byte is verified by the tree's name before it is returned. Replicas and the network need no
trust. `vouch://@HOST,HOSTID/path` works as a URL in programs that use fsspec (`vouch.fs`).
"""

from . import errors
from ._vouch import Change, Revision, Stat
from .errors import (
    Damaged,
    Expired,
    InvalidInput,
    LocalError,
    NoRevision,
    Revoked,
    Rollback,
    Tampered,
    Unreachable,
    Unwitnessed,
    VouchError,
)
from .publishing import publish
from .tree import Path, Tree, VerifyReport, open

__version__ = "0.1.0"

__all__ = [
    "Change",
    "Damaged",
    "Expired",
    "InvalidInput",
    "LocalError",
    "NoRevision",
    "Path",
    "Revision",
    "Revoked",
    "Rollback",
    "Stat",
    "Tampered",
    "Tree",
    "Unreachable",
    "Unwitnessed",
    "VerifyReport",
    "VouchError",
    "errors",
    "open",
    "publish",
]
