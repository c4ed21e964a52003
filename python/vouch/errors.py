"""Exceptions of this package. All are `OSError`; `str()` is one line for the user."""

__all__ = [
    "Damaged",
    "Expired",
    "InvalidInput",
    "IsADirectory",
    "LocalError",
    "NoRevision",
    "NotADirectory",
    "NotFound",
    "Revoked",
    "Rollback",
    "Tampered",
    "Unreachable",
    "Unwitnessed",
    "VouchError",
]


class VouchError(OSError):
    """Base of all exceptions of this package."""


class NotFound(VouchError, FileNotFoundError):
    """The signed tree proves that the name does not exist."""


class NoRevision(VouchError):
    """No replica has the revision or the tag, or it never existed. Replicas can withhold it, so that
    this is no FileNotFoundError."""


class NotADirectory(VouchError, NotADirectoryError):
    """A component of the path is not a directory."""


class IsADirectory(VouchError, IsADirectoryError):
    """A file was expected."""


class InvalidInput(VouchError):
    """A wrong argument, policy or file of key statements, or a link that leaves the tree."""


class Tampered(VouchError):
    """Signatures or content are forged. No byte of them was returned."""


class Rollback(VouchError):
    """Replicas offer only an older revision than one that this machine has seen, and lack frames of that one."""


class Revoked(VouchError):
    """The publisher has revoked the key of the tree."""


class Expired(VouchError):
    """The newest revision is no longer valid."""


class Unwitnessed(VouchError):
    """Witnesses that a policy demands have not seen the revision."""


class Unreachable(VouchError, ConnectionError):
    """No replica answers in time. A later attempt may succeed."""


class Damaged(VouchError):
    """Frames are missing in all replicas, or cannot be decoded."""


class LocalError(VouchError):
    """A file or the configuration of this machine."""
