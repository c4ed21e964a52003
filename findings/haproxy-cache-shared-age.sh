#!/bin/bash
# Guess: the cache of HAProxy keeps a response with `Cache-Control: s-maxage=600, max-age=0` for 600 seconds. A shared cache must
# prefer s-maxage to max-age (RFC 9111, 5.2.2.10). Origins send this pair so that browsers ask each time and caches before the
# origin answer.
# Seen: it depends on the order. With max-age=0 after s-maxage each request goes to the origin; with max-age=0 before it, or with
# max-age=1 after it, the response is kept by s-maxage. mod_cache of Apache keeps all of them.
# HAProxy 3.2.26, Apache 2.4.69 of Debian sid, 2026-12-01. Needs root, mmdebstrap, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/haproxy.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=haproxy,apache2,python3 sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W haproxy apache2
cat >"$root/srv/haproxy.cfg" <<'CONF'
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
cache files
    total-max-size 16
    max-object-size 1000000
    max-age 3600
frontend clients
    bind 127.0.0.1:8201
    http-request cache-use files
    http-response cache-store files
    default_backend origin
backend origin
    server origin 127.0.0.1:8200
CONF
cat >"$root/srv/apache.conf" <<'CONF'
ServerRoot /usr/lib/apache2
ServerName localhost
Listen 127.0.0.1:8202
PidFile /run/apache.pid
DefaultRuntimeDir /run
Mutex pthread
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule proxy_module modules/mod_proxy.so
LoadModule proxy_http_module modules/mod_proxy_http.so
LoadModule cache_module modules/mod_cache.so
LoadModule cache_disk_module modules/mod_cache_disk.so
ErrorLog /run/apache.log
User www-data
Group www-data
CacheEnable disk /
CacheRoot /var/cache/files
ProxyPass / http://127.0.0.1:8200/
CONF
cat >"$root/srv/test.py" <<'PYTHON'
import http.client, http.server, threading, time, urllib.parse

requests = []

class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        requests.append(self.path)
        self.send_response(200)
        self.send_header("Cache-Control", urllib.parse.unquote(self.path[1:]))
        self.send_header("Last-Modified", "Tue, 01 Dec 2026 00:00:00 GMT")
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"content")

def get(port, value):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("GET", "/" + urllib.parse.quote(value, safe=""))
    assert client.getresponse().read() == b"content"
    client.close()

class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass

threading.Thread(target=Server(("127.0.0.1", 8200), Origin).serve_forever, daemon=True).start()
for port, name in (8201, "HAProxy"), (8202, "Apache"):
    for value in "s-maxage=600", "max-age=0, s-maxage=600", "s-maxage=600, max-age=0", "s-maxage=600, max-age=1":
        for step in range(50):
            try:
                get(port, value)
                break
            except OSError:
                time.sleep(0.2)
        time.sleep(2.5)
        before = len(requests)
        get(port, value)
        print(f"{name}, {value}: {'asks the origin' if len(requests) > before else 'kept'}")
PYTHON
cat >"$work/inner" <<'INNER'
set -u
root=$1
ip link set lo up
mkdir -p "$root/var/cache/files"; chroot "$root" chown www-data: /var/cache/files
chroot "$root" haproxy -f /srv/haproxy.cfg >"$root/run/haproxy.log" 2>&1 &
chroot "$root" apache2 -f /srv/apache.conf -DFOREGROUND &
chroot "$root" python3 /srv/test.py
INNER
timeout -k 5 120 unshare --net --pid --fork --kill-child bash "$work/inner" "$root" | tee "$work/seen"
[ "$(cat "$work/seen")" = "HAProxy, s-maxage=600: kept
HAProxy, max-age=0, s-maxage=600: kept
HAProxy, s-maxage=600, max-age=0: asks the origin
HAProxy, s-maxage=600, max-age=1: kept
Apache, s-maxage=600: kept
Apache, max-age=0, s-maxage=600: kept
Apache, s-maxage=600, max-age=0: kept
Apache, s-maxage=600, max-age=1: kept" ]
echo "as seen on 2026-12-01"
