#!/bin/bash
# publish.sh [TREE] [ROUNDS]: compares `vouch publish` with casync and find.
# First publication of TREE (default /usr) beside `casync make`; republication of 100,000 unchanged
# files beside `find`. Both programs of a pair run in turn, from a warm page cache.
# Uses `vouch` from $VOUCH or target/release. Removes all its files.
set -euo pipefail
tree=${1:-/usr}
rounds=${2:-3}
vouch=${VOUCH:-$(dirname "$0")/../../target/release/vouch}
vouch=$(realpath "$vouch")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "machine: $(nproc) x $(sed -n 's/^model name\t*: //p' /proc/cpuinfo | head -1), $(awk '/MemTotal/ {print int($2/1048576)}' /proc/meminfo) GiB, Linux $(uname -r), $(stat -f -c %T "$work") for databases"
echo "peers: casync $(casync --version 2>/dev/null | awk 'NR==1 {print $2}'), $(find --version | head -1)"

# measure LABEL COMMAND...: prints wall time, CPU time, peak memory, and the load average at the
# start
measure() {
    local label=$1
    shift
    local load
    load=$(cut -d' ' -f1 /proc/loadavg)
    /usr/bin/time -o "$work/time" -f '%e %U %S %M' "$@" >/dev/null 2>"$work/stderr" || { cat "$work/stderr" >&2; return 1; }
    awk -v label="$label" -v load="$load" '{printf "%-22s %8.2f s  %8.2f s CPU  %7.1f MiB  (load %s)\n", label, $1, $2 + $3, $4 / 1024, load}' "$work/time"
    awk '{print $1, $2 + $3}' "$work/time" >>"$work/$label.times"
}

# ratio A B: prints the ratios of the medians of A and B
ratio() {
    for column in 1 2; do
        a=$(sort -n -k$column "$work/$1.times" | awk -v c=$column '{v[NR] = $c} END {print v[int((NR + 1) / 2)]}')
        b=$(sort -n -k$column "$work/$2.times" | awk -v c=$column '{v[NR] = $c} END {print v[int((NR + 1) / 2)]}')
        [ $column = 1 ] && what="wall" || what="CPU"
        awk -v a="$a" -v b="$b" -v n="$1/$2" -v what="$what" 'BEGIN {printf "%s, %s: %.2f\n", n, what, a / b}'
    done
}

"$vouch" keygen --out "$work/keys" >/dev/null
publish() { "$vouch" publish "$1" --db "$2" --keys "$work/keys" --location localhost; }
export -f publish
export vouch work

echo
echo "first publication of $tree ($(du -sh "$tree" 2>/dev/null | cut -f1), $(find "$tree" | wc -l) names)"
tar -cf - "$tree" 2>/dev/null | cat >/dev/null || true
for round in $(seq "$rounds"); do
    measure publish bash -c 'publish "$0" "$1"' "$tree" "$work/db"
    rm -rf "$work/db"
    measure casync casync make --store="$work/store.castr" "$work/index.caidx" "$tree"
    rm -rf "$work/store.castr" "$work/index.caidx"
done
ratio casync publish

echo
echo "nothing changed, 100,000 files in 100 directories"
for d in $(seq 100); do
    mkdir -p "$work/many/$d"
    for f in $(seq 1000); do echo "$d $f" >"$work/many/$d/file$f"; done
done
sleep 3
publish "$work/many" "$work/db" >/dev/null
for round in $(seq 7); do
    measure find bash -c 'find "$0" -printf "%s %T@\n"' "$work/many"
    measure unchanged bash -c 'publish "$0" "$1"' "$work/many" "$work/db"
done
ratio unchanged find
