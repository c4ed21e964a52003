#!/bin/bash
# Guess: a cache that cannot make multipart/byteranges answers a request for two small, disjoint ranges
# with 200 and the whole object, as RFC 9110, 14.2 allows, or with one of the ranges.
# Seen: Vinyl Cache, the successor of Varnish, answers `Range: bytes=10-19,40-49` with 416 and
# `Content-Range: bytes */10240`, though both ranges lie in the object, which it holds. One range gives
# 206; an unknown unit gives 416 too, where RFC 9110 lets a proxy drop the header.
# vinyl-cache 9.0.1-4 of Debian sid, 2026-11-28. Needs root, mmdebstrap, curl, python3, unshare(1). Exit
# 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/vinyl.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${VINYL_ROOT:-}" ]; then root=$VINYL_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=vinyl-cache sid "$root" "deb $mirror sid main"
fi
chroot "$root" vinyld -V 2>&1 | head -n 1
cat >"$work/inner" <<'INNER'
set -u
work=$1 root=$2
ip link set lo up
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs none "$root/mnt"
mkdir "$work/files"; head -c 10240 /dev/zero >"$work/files/object"
python3 -m http.server -b 127.0.0.1 -d "$work/files" 8081 >/dev/null 2>&1 &
printf 'vcl 4.1;\nbackend default { .host = "127.0.0.1"; .port = "8081"; }\n' >"$root/mnt/default.vcl"
chroot "$root" vinyld -j none -n /mnt/state -a 127.0.0.1:6081 -f /mnt/default.vcl -s malloc,20m -T none -F >"$work/log" 2>&1 &
for port in 8081 6081; do for step in $(seq 100); do ! (: </dev/tcp/127.0.0.1/$port) 2>/dev/null || break; sleep 0.1; done; done
for range in bytes=10-19 bytes=10-19,40-49 bytes=-5 lines=1-2; do
    curl -s -D "$work/headers" -o "$work/body" -H "Range: $range" http://127.0.0.1:6081/object
    echo "$range: $(tr -d '\r' <"$work/headers" | awk 'NR == 1 {status = $2} tolower($1) == "content-range:" {range = $2 " " $3} END {print status, range}'), $(stat -c %s "$work/body") bytes"
done
INNER
unshare --mount --net --pid --fork --kill-child --propagation private bash "$work/inner" "$work" "$root" | tee "$work/seen"
[ "$(cat "$work/seen")" = "bytes=10-19: 206 bytes 10-19/10240, 10 bytes
bytes=10-19,40-49: 416 bytes */10240, 0 bytes
bytes=-5: 206 bytes 10235-10239/10240, 5 bytes
lines=1-2: 416 bytes */10240, 0 bytes" ]
echo "as seen on 2026-11-28"
