#!/bin/bash
# Guess: nfs4fs, a client for fsspec that speaks NFSv4.1 and 4.2 alone, connects to port 2049 of the
# server. RFC 8881, 2.9.3, makes port 2049 the default, so that clients need no portmapper.
# Seen: it asks port 111 for program 100003, version 4, first. Where no rpcbind answers, as on a server
# for NFSv4 alone, it ends with "failed to create client: rpc_err 17" and never tries port 2049. There is
# no option for the port. With a portmapper that names port 2049 it connects there. nfs-rs needs none.
# nfs4fs 0.3.11, nfs-rs 0.8.7 of PyPI, 2026-11-28. Needs root, python3 >= 3.11, unshare(1). Exit 0: as
# seen.
set -eu
work=$(mktemp -d /var/tmp/nfs4fs.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check nfs4fs==0.3.11 vfsi-fsspec==0.1.11 fsspec==2026.9.0 nfs-rs==0.8.7
cat >"$work/ask.py" <<'PYTHON'
import socket, struct, sys, threading
import fsspec, nfs_rs

asked = []

def nfs(listener):  # counts connections, and closes them
    while True:
        connection, _ = listener.accept()
        asked.append(2049)
        connection.close()

def portmapper(listener):
    while True:
        connection, _ = listener.accept()
        call = connection.recv(1000)
        asked.append(111)
        xid, = struct.unpack(">I", call[4:8])
        program, version = struct.unpack(">2I", call[44:52])
        assert (program, version) == (100003, 4)
        answer = struct.pack(">7I", xid, 1, 0, 0, 0, 0, 2049)
        connection.sendall(struct.pack(">I", 0x80000000 | len(answer)) + answer)

def reports(what, connect):
    asked.clear()
    try:
        connect()
    except Exception as error:
        text = str(error).split(": ", 1)[-1] if what.startswith("nfs4fs, no") else "error"
    print(f"{what}: {text}; ports reached: {sorted(set(asked))}")

def nfs4fs():
    fsspec.filesystem("nfs4", host="127.0.0.1", root="export", auth="auth_sys", skip_instance_cache=True)

threading.Thread(target=nfs, args=(socket.create_server(("127.0.0.1", 2049)),), daemon=True).start()
reports("nfs4fs, no portmapper", nfs4fs)
reports("nfs-rs, no portmapper", lambda: nfs_rs.Client.connect("nfs://127.0.0.1/export?version=4.1"))
threading.Thread(target=portmapper, args=(socket.create_server(("127.0.0.1", 111)),), daemon=True).start()
reports("nfs4fs, portmapper", nfs4fs)
PYTHON
unshare --net --pid --fork --kill-child bash -c 'ip link set lo up; exec timeout 60 "$0" "$1"' "$work/python/bin/python" "$work/ask.py" | tee "$work/seen"
[ "$(cat "$work/seen")" = "nfs4fs, no portmapper: rpc_err 17: '127.0.0.1'; ports reached: []
nfs-rs, no portmapper: error; ports reached: [2049]
nfs4fs, portmapper: error; ports reached: [111, 2049]" ]
echo "as seen on 2026-11-28"
