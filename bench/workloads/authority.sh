#!/usr/bin/env bash
# authority.sh DIR: verified look-ups of a million names, of a replica and of NSD, in one run.
#
# DIR gets the names, the tree and the signed zone; a second run uses them again. Needs Debian's nsd
# and ldnsutils, and builds the programs by Cargo. NAMES is the number of names.
set -euo pipefail
[ $# = 1 ] || { echo "usage: authority.sh DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
names=${NAMES:-1000000}
programs=${CARGO_TARGET_DIR:-target}/release
cargo build --release --locked -q -p vouch -p vouch-benches --bin vouch --bin authority
export VOUCH_CONFIG=/dev/null VOUCH_STATE=$dir/state

if ! [ -e "$dir/db/manifest" ]; then
    perl -e 'use integer; my ($n, $x, @digits) = (0, 1, "a" .. "z", 2 .. 7);
        while ($n < $ARGV[0]) {
            my $id = join "", map { $x = $x * 6364136223846793005 + 1442695040888963407; $digits[($x >> 59) & 31] } 1 .. 52;
            printf "n%d \@h%d.example.org,%s\n", $n, $n, $id;
            $n++;
        }' "$names" >"$dir/names"
    script/authority "$dir/names" "$dir/source"
    "$programs/vouch" keygen --out "$dir/keys" >/dev/null
    "$programs/vouch" publish --opaque . --db "$dir/db" --keys "$dir/keys" --location localhost:4811 "$dir/source" | tee "$dir/published"
fi
if ! [ -e "$dir/zone.signed" ]; then
    rm -f "$dir"/Kca.example.*
    key=$(cd "$dir" && ldns-keygen -a ED25519 -k ca.example)
    { echo 'ca.example. 3600 IN SOA ca.example. root.ca.example. 1 3600 600 86400 3600'
      echo 'ca.example. 3600 IN NS localhost.'
      awk '{print $1 ".ca.example. 3600 IN TXT \"" $2 "\""}' "$dir/names"; } >"$dir/zone"
    (cd "$dir" && time ldns-signzone -f zone.signed zone "$key")
fi
cat >"$dir/nsd.conf" <<EOF
server:
    ip-address: 127.0.0.1@5311
    do-ip6: no
    server-count: 2
    tcp-count: 1000
    tcp-query-count: 0
    username: ""
    zonesdir: $dir
    database: ""
    pidfile: $dir/nsd.pid
    xfrdfile: $dir/xfrd.state
    xfrdir: $dir
    zonelistfile: $dir/zone.list
    rrl-ratelimit: 0
    minimal-responses: yes
remote-control:
    control-enable: no
zone:
    name: ca.example
    zonefile: zone.signed
EOF
nsd -d -c "$dir/nsd.conf" >"$dir/nsd.log" 2>&1 &
dns=$!
"$programs/vouch" serve --db "$dir/db" --listen 127.0.0.1:4811 >"$dir/serve.log" 2>&1 &
replica=$!
trap 'kill $dns $replica 2>/dev/null' EXIT
until drill -t -p 5311 @127.0.0.1 n1.ca.example TXT 2>/dev/null | grep -q "@h1"; do sleep 1; done
dns_pids=()
for pid in $dns $(pgrep -P $dns) $(pgrep -P "$(pgrep -d, -P $dns)"); do dns_pids+=(--dns-pid "$pid"); done
tree=$(sed -n 's/^name *//p' "$dir/published")
"$programs/authority" --tree "$tree" --replica-pid $replica --dns 127.0.0.1:5311 "${dns_pids[@]}" --dns-key "$(echo "$dir"/Kca.example.*.key)" --names "$names"
