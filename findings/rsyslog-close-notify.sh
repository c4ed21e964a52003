#!/bin/bash
# Guess: rsyslog answers the close_notify of a TLS client with its own (RFC 5425, 4.4; RFC 8446, 6.1), so that
# the client knows that everything was read, whichever of its two TLS drivers an administrator loads.
# Seen: the driver `ossl` answers it. The driver `gtls`, which most guides name, closes the connection
# without an answer, although it has written the message.
# rsyslog 8.2610.0 of Debian sid, 2026-11-28. Needs root, mmdebstrap, openssl, python3, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/rsyslog.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${RSYSLOG_ROOT:-}" ]; then root=$RSYSLOG_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=rsyslog,rsyslog-gnutls,rsyslog-openssl sid "$root" "deb $mirror sid main"
fi
chroot "$root" rsyslogd -v | head -n 1
cat >"$work/client.py" <<'PYTHON'
import socket, ssl, sys, time
context = ssl.create_default_context(cafile=sys.argv[2])
for attempt in range(100):
    try:
        plain = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
session = context.wrap_socket(plain, server_hostname="localhost")
message = b"<13>1 2026-11-28T12:00:00Z host app - - - hello"
session.sendall(b"%d %s" % (len(message), message))
try:
    session.unwrap()
    print("close_notify")
except (ssl.SSLError, OSError) as error:
    print("no close_notify:", getattr(error, "reason", None) or type(error).__name__)
PYTHON
cat >"$work/inner" <<'INNER'
set -eu
work=$1 root=$2
ip link set lo up
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/mnt"
cd "$root/mnt"
openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
for driver in gtls ossl; do
    port=$([ $driver = gtls ] && echo 16514 || echo 16515)
    cat >$driver.conf <<CONF
global(workDirectory="/mnt" defaultNetstreamDriverCAFile="/mnt/server.pem" defaultNetstreamDriverCertFile="/mnt/server.pem" defaultNetstreamDriverKeyFile="/mnt/server.key")
module(load="imtcp" streamDriver.name="$driver" streamDriver.mode="1" streamDriver.authMode="anon")
ruleset(name="in") { action(type="omfile" file="/mnt/$driver.out") }
input(type="imtcp" port="$port" ruleset="in")
CONF
    chroot "$root" rsyslogd -n -f /mnt/$driver.conf -i /mnt/$driver.pid >$driver.log 2>&1 &
    answer=$(python3 "$work/client.py" $port server.pem)
    for attempt in $(seq 50); do grep -q hello $driver.out 2>/dev/null && break; sleep 0.1; done
    echo "$driver: $(grep -c hello $driver.out) message written; $answer"
done | tee seen
grep -q '^gtls: 1 message written; no close_notify' seen && grep -qx 'ossl: 1 message written; close_notify' seen
INNER
timeout 200 unshare --mount --net --pid --fork --kill-child --propagation private bash "$work/inner" "$work" "$root"
echo "as seen on 2026-11-28"
