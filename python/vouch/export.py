"""Management of a running export server of this machine.

>>> from vouch.export import Server
>>> Server().add("/srv/new", ["192.0.2.0/24(rw,sec=krb5p)"], keep=True)
[]
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from collections.abc import Iterable
from typing import Any, Union

from . import errors

__all__ = ["Server"]

StrPath = Union[str, "os.PathLike[str]"]


class Server:
    """Orders of `vouch export`, each carried out as a whole or not at all.

    state: the state directory of the server. timeout: seconds for each order.
    All methods raise `vouch.errors.NotFound` (no such export, client or file), `InvalidInput` (the order
    was refused) and `Unreachable` (no server runs, or it does not answer).
    """

    def __init__(self, state: StrPath = "/var/lib/vouch/export", *, timeout: float = 60.0) -> None:
        self.state = os.fspath(state)
        self._socket = os.path.join(self.state, "control.sock")
        self._timeout = timeout

    def status(self) -> dict[str, Any]:
        """As `vouch export status --json`."""
        return self._request("GET", "/status")["detail"]

    def exports(self) -> list[dict[str, str]]:
        """Clients of exports with the options in force: path, client, options, origin."""
        return self._order("list-exports")["exports"]

    def add(self, path: StrPath, clients: Iterable[str], *, keep: bool = False) -> list[str]:
        """Add an export for clients, each as in exports(5); `keep`: over restarts. Returns warnings."""
        return self._change("add-export", path, clients=list(clients), keep=keep)

    def set(self, path: StrPath, clients: Iterable[str], *, keep: bool = False) -> list[str]:
        """Replace the clients of an export and their options. Returns warnings."""
        return self._change("set-export", path, clients=list(clients), keep=keep)

    def remove(self, path: StrPath, *, keep: bool = False) -> list[str]:
        """Remove an export. Returns warnings."""
        return self._change("remove-export", path, keep=keep)

    def discard_changes(self) -> list[str]:
        """End all changes that are not kept. Returns warnings."""
        return self._order("discard-changes").get("warnings", [])

    def states(self, client: str | None = None) -> list[dict[str, Any]]:
        """Opens, locks, delegations and copies of a client (id or address), or of all clients."""
        return self._order("list-state", client=client)["states"]

    def evict(self, client: str) -> int:
        """End a client (id or address) with all it holds. Returns the number of clients."""
        return self._order("evict-client", client=client)["ended"]

    def unlock(self, path: StrPath) -> int:
        """End the states on a file, or on all files of an export. Returns their number."""
        return self._order("unlock", path=_word(path))["ended"]

    def drain(self, on: bool = True) -> None:
        """Let new clients wait, or take them again."""
        self._order("drain", on=on)

    def _change(self, order: str, path: StrPath, **fields: Any) -> list[str]:
        return self._order(order, path=_word(path), **fields).get("warnings", [])

    def _order(self, order: str, **fields: Any) -> dict[str, Any]:
        return self._request("POST", "/order", json.dumps({"order": order, **fields}))

    def _request(self, method: str, target: str, body: str | None = None) -> Any:
        connection = _Connection(self._socket, self._timeout)
        try:
            connection.request(method, target, body)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            line = f"{self._socket}: no export server answers ({error}); start it, or give its state directory"
            raise errors.Unreachable(errno.ECONNREFUSED, line) from None
        finally:
            connection.close()
        if response.status == 200:
            return json.loads(text)
        kind, number = (errors.NotFound, errno.ENOENT) if response.status == 422 else (errors.InvalidInput, errno.EINVAL)
        raise kind(number, text.strip())


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("vouch", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _word(path: StrPath) -> str:
    """A word of exports(5)."""
    plain = set(range(0x21, 0x7F)) - set(b'\\"#')
    return "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in os.fsencode(path))
