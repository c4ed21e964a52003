#!/bin/bash
# Guess: a server of RPC-with-TLS answers the AUTH_TLS probe once, in the clear (RFC 9289, 4.1), and then
# each call inside TLS, also one that follows the end of the handshake at once.
# Seen: NFS-Ganesha with TLS_CONFIG { Enable_TLS = true; } answers such a call in some of the
# connections with its reply to the probe, xid included, as a record inside TLS. The call itself gets no
# reply. Clients with TCP_NODELAY meet it; a client that waits 50 ms after the handshake does not.
# NFS-Ganesha 15.2 of Debian sid, 2026-11-29. Needs root, mmdebstrap, openssl, python3, unshare(1).
# Exit 0: as seen, in at least one of 40 connections.
set -eu
work=$(mktemp -d /var/tmp/ganesha-tls.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${GANESHA_ROOT:-}" ]; then root=$GANESHA_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=nfs-ganesha,nfs-ganesha-vfs sid "$root" "deb $mirror sid main"
fi
chroot "$root" ganesha.nfsd -v | head -n 1
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/key" -out "$work/certificate" -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
cat >"$work/client.py" <<'PYTHON'
import collections, socket, ssl, struct, sys

def null(xid, flavor):
    call = struct.pack(">10I", xid, 0, 2, 100003, 4, 0, flavor, 0, 0, 0)
    return struct.pack(">I", 1 << 31 | len(call)) + call

def exchange_id(xid, owner):
    owner = struct.pack(">I", len(owner)) + owner + bytes(-len(owner) % 4)
    credential = struct.pack(">7I", 1, 20, 0, 0, 0, 0, 0) + struct.pack(">2I", 0, 0)
    call = struct.pack(">6I", xid, 0, 2, 100003, 4, 1) + credential + struct.pack(">4I", 0, 1, 1, 42) + bytes(8) + owner + struct.pack(">3I", 0, 0, 0)
    return struct.pack(">I", 1 << 31 | len(call)) + call

def record(stream):
    data = b""
    while len(data) < 4 or len(data) < 4 + (struct.unpack(">I", data[:4])[0] & 0x7FFFFFFF):
        more = 4 - len(data) if len(data) < 4 else 4 + (struct.unpack(">I", data[:4])[0] & 0x7FFFFFFF) - len(data)
        part = stream.recv(more)
        if not part:
            raise EOFError
        data += part
    return data[4:]

tls = ssl.create_default_context(cafile=sys.argv[1])
seen = collections.Counter()
for connection in range(40):
    plain = socket.create_connection(("localhost", 2049), timeout=2)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        plain.sendall(null(1, 7))
        reply = record(plain)
        assert reply[:4] == struct.pack(">I", 1) and reply.find(b"STARTTLS") >= 0, reply
        stream = tls.wrap_socket(plain, server_hostname="localhost")
        stream.sendall(exchange_id(2, b"owner %d" % connection))
        xid, = struct.unpack(">I", record(stream)[:4])
        seen["reply to the call" if xid == 2 else "reply to the probe again" if xid == 1 else "another xid"] += 1
        if xid == 1:
            try:
                record(stream)
                seen["after it a second reply"] += 1
            except TimeoutError:
                seen["after it no reply to the call for two seconds"] += 1
        stream.close()
    except (OSError, EOFError) as error:
        seen[type(error).__name__] += 1
for what, count in sorted(seen.items()):
    print(f"inside TLS: {what}: {count} of 40 connections")
sys.exit(not seen["reply to the probe again"] or seen["after it a second reply"])
PYTHON
cat >"$work/inner" <<'INNER'
set -u
work=$1 root=$2
ip link set lo up; ip addr add 192.0.2.1/32 dev lo
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs none "$root/run"; mount -t tmpfs none "$root/tmp"
mkdir -p "$root/run/ganesha" "$root/run/dbus"; cp "$work/key" "$work/certificate" "$root/tmp/"
cat >"$root/tmp/ganesha.conf" <<'CONF'
NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; allow_set_io_flusher_fail = true; }
NFSv4 { Graceless = true; RecoveryRoot = "/run/ganesha"; }
TLS_CONFIG { Enable_TLS = true; TLS_Cert_File = /tmp/certificate; TLS_Key_File = /tmp/key; TLS_CA_File = /tmp/certificate; }
CONF
: >"$root/tmp/log"
chroot "$root" ganesha.nfsd -F -f /tmp/ganesha.conf -L /tmp/log -p /run/ganesha.pid -N EVENT >/dev/null 2>&1 & pid=$!
for step in $(seq 150); do grep -q 'NFS SERVER INITIALIZED' "$root/tmp/log" && break; sleep 0.1; done
timeout 300 python3 "$work/client.py" "$work/certificate"; status=$?
kill -9 "$pid"; wait "$pid" 2>/dev/null
exit "$status"
INNER
unshare --mount --net bash "$work/inner" "$work" "$root"
