#!/bin/bash
# Guess: the next Varnish of Debian is the package `varnish` with a newer number, and its answers carry
# X-Varnish, which monitoring and tests read to tell a hit (two numbers) from a miss (one).
# Seen: sid has no `varnish`, only `vinyl-cache`, with /etc/vinyl-cache and the unit vinyl-cache. Its
# answers and its requests to the server behind it carry X-Vinyl, and Via names "Vinyl-Cache". The old
# command varnishd and `vcl 4.1` still work, but a start by the old name brings the new headers too.
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
cat >"$work/server.py" <<'PYTHON'
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked of the server:", ", ".join(sorted(name for name in self.headers if name[:2] == "X-" and name[2:5] in ("Var", "Vin"))))
        sys.stdout.flush()
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=100")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *arguments):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8081), Handler).serve_forever()
PYTHON
cat >"$work/inner" <<'INNER'
set -u
work=$1 root=$2
ip link set lo up
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs none "$root/mnt"
python3 "$work/server.py" &
printf 'vcl 4.1;\nbackend default { .host = "127.0.0.1"; .port = "8081"; }\n' >"$root/mnt/default.vcl"
chroot "$root" varnishd -j none -n /mnt/state -a 127.0.0.1:6081 -f /mnt/default.vcl -s malloc,20m -T none -F >"$work/log" 2>&1 &
for step in $(seq 100); do ! (: </dev/tcp/127.0.0.1/6081) 2>/dev/null || break; sleep 0.1; done
for try in 1 2; do
    curl -s -D "$work/headers" -o /dev/null http://127.0.0.1:6081/
    tr -d '\r' <"$work/headers" | awk -v try=$try -F ': ' 'tolower($1) ~ /^x-v/ {split($2, n, " "); printf "request %d: %s with %d numbers; ", try, $1, length(n)} $1 == "Via" {via = $2} END {sub(/.*\(/, "", via); sub(/\/.*/, "", via); print "Via " via}'
done
INNER
unshare --mount --net --pid --fork --kill-child --propagation private bash "$work/inner" "$work" "$root" | tee "$work/seen"
[ "$(cat "$work/seen")" = "asked of the server: X-Vinyl
request 1: X-Vinyl with 1 numbers; Via Vinyl-Cache
request 2: X-Vinyl with 2 numbers; Via Vinyl-Cache" ]
echo "as seen on 2026-11-28"
