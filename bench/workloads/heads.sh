#!/usr/bin/env bash
# heads.sh: how fast one Linux client reads a tree through 1, 2 and 4 heads, each with a link of
# limited rate.
#
#   bench/workloads/heads.sh [--rate MBIT] [--size MIB] [--rounds N] VOUCH
#
# Needs root, User-Mode Linux (script/install-needs linux-6.12-guest), tc. Each head has an address
# of its own on the guest's network device; htb with tbf limits what it sends.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rate=80 size=40 rounds=3
while [ $# -gt 1 ]; do
    case $1 in
        --rate) rate=$2; shift 2 ;;
        --size) size=$2; shift 2 ;;
        --rounds) rounds=$2; shift 2 ;;
        *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
done
vouch=$(readlink -f "$1")
index=97 port=20497
tap=vouchtap$index
work=$(mktemp -d)
heads=()
stop_heads() { for pid in "${heads[@]}"; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null || :; done; heads=(); }
finish() { stop_heads; "$here/../../script/guest/run" down $index; rm -rf "$work"; }
trap finish EXIT

"$here/../../script/guest/run" up $index >/dev/null
export HOME=$work VOUCH_CONFIG=/dev/null
cd "$work"
mkdir src
for n in 0 1 2 3 4 5 6 7; do head -c "${size}M" /dev/urandom >src/file$n; done
"$vouch" keygen --out keys >/dev/null
"$vouch" publish src --db db --keys keys --location 127.0.0.1:1 >/dev/null
(umask 077; openssl rand -hex 32 >key)

tc qdisc add dev $tap root handle 1: htb
for n in 1 2 3 4; do
    [ $n = 1 ] && address=10.77.$index.1 || { address=10.77.$index.1$n; ip addr add "$address/24" dev $tap; }
    tc class add dev $tap parent 1: classid 1:$n htb rate 10gbit quantum 200000
    tc qdisc add dev $tap parent 1:$n tbf rate "${rate}mbit" burst 128kb latency 200ms
    tc filter add dev $tap parent 1: protocol ip u32 match ip src "$address/32" flowid 1:$n
    all[n]=$address
done

cat >script <<'S'
set -eu
drop_caches() { echo 3 >/proc/sys/vm/drop_caches; }
attach 4.2 /export /mnt/tree
for at in /sys/class/bdi/0:*/read_ahead_kb; do echo 32768 >"$at"; done
for round in $(seq "$ROUNDS"); do
    drop_caches
    began=$(date +%s%N)
    for file in /mnt/tree/file*; do dd if="$file" of=/dev/null bs=1M 2>/dev/null & done
    wait
    took=$(($(date +%s%N) - began))
    echo "many: $((8 * SIZE * 1000000000 * 1048576 / took / 1000)) kB/s"
    drop_caches
    began=$(date +%s%N)
    for file in /mnt/tree/file[0-3]; do dd if="$file" of=/dev/null bs=1M 2>/dev/null; done
    took=$(($(date +%s%N) - began))
    echo "one: $((4 * SIZE * 1000000000 * 1048576 / took / 1000)) kB/s"
done
S

median() { sort -n | awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'; }
echo "one client, Linux $(ls /opt/vouch-guest/usr/lib/uml/modules) in User-Mode Linux; each head is limited to $rate Mbit/s; files of $size MiB, read-ahead 32 MiB; median of $rounds rounds"
echo "heads  8 files at once kB/s  ratio  one file after another kB/s  ratio"
for count in 1 2 4; do
    servers=$(printf "+%s:$port" "${all[@]:1:$count}")
    for n in $(seq $count); do
        "$vouch" export --dir "tree:$work/db" --state "state-$count-$n" --listen "${all[$n]}:$port" --filehandle-key key \
            --options "ro,insecure,pnfs=${servers#+}" >/dev/null &
        heads+=($!)
    done
    for n in $(seq $count); do
        until (: </dev/tcp/"${all[$n]}"/$port) 2>/dev/null; do sleep 0.1; done
    done
    "$here/../../script/guest/run" -i $index -k -m 1G -t 900 -e PORT=$port -e ROUNDS="$rounds" -e SIZE="$size" script >out
    many=$(sed -n 's/^many: \([0-9]*\).*/\1/p' out | median) one=$(sed -n 's/^one: \([0-9]*\).*/\1/p' out | median)
    [ $count = 1 ] && { many_of_one=$many; one_of_one=$one; }
    awk -v n=$count -v a="$many" -v b="$many_of_one" -v c="$one" -v d="$one_of_one" 'BEGIN {printf "%5d  %20d  %5.2f  %26d  %5.2f\n", n, a, a / b, c, c / d}'
    stop_heads
done
