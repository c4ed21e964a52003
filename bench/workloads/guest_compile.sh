#!/usr/bin/env bash
# guest_compile.sh: a compile of a C project in a guest, whose sources are on the guest's own tmpfs,
# an export or NFS-Ganesha under sys and krb5p, or a mount of the published tree.
#
#   bench/workloads/guest_compile.sh [--files N] [--rounds N] VOUCH PROJECT
#
# PROJECT is a configured source directory. The script compiles N of its C files, evenly chosen
# among those that compile alone; the default is 40, and 0 stands for all. Objects go to the
# guest's tmpfs. The places take turns. A cold compile follows a mount with empty caches, and a
# warm one follows the cold one. The time includes the compilers and reading, but not mount and
# unmount.
# Needs root and packages: script/install-needs linux-6.12-guest nfs-common nfs-ganesha
# nfs-ganesha-vfs busybox-static iproute2 gcc krb5-kdc krb5-admin-server krb5-user. The table goes
# to standard output, and each time to standard error.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
files=40 rounds=6
while [ $# -gt 2 ]; do
    case $1 in
        --files) files=$2; shift 2 ;;
        --rounds) rounds=$2; shift 2 ;;
        *) break ;;
    esac
done
[ $# = 2 ] && [ -x "$1" ] && [ -d "$2" ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
vouch=$(readlink -f "$1") project=$(readlink -f "$2")
. "$here/guest_realm.bash"
begin 95
trap '[ ! -s "$work/ganesha.pid" ] || kill "$(cat "$work/ganesha.pid")" 2>/dev/null; finish' EXIT
cp -r "$project" "$work/project"
chmod -R a+rX "$work" "$work/project"
tar -C "$work/project" -cf "$work/project.tar" .

echo "choosing files that compile alone" >&2
(cd "$work/project" && find . -name '*.c' ! -name 'test*' ! -name '*_source.c' | sort) |
    xargs -P"$(nproc)" -I{} sh -c 'gcc -fsyntax-only -w -DHAVE_CONFIG_H -I"$1" "$1/$2" 2>/dev/null && echo "$2" || :' sh "$work/project" {} | sort >"$work/able"
all=$(wc -l <"$work/able")
[ "$files" -gt 0 ] && [ "$files" -lt "$all" ] || files=$all
awk -v all="$all" -v files="$files" 'int(NR * files / all) > int((NR - 1) * files / all)' "$work/able" >"$work/list"

realm_up
"$vouch" export --dir "$work/project" --state "$work/state" --listen "$address:20494" --keytab "$work/server.keytab" \
    --options ro,insecure,sec=sys:krb5p >"$work/export.log" 2>&1 &
pids+=($!)
"$vouch" keygen --out "$work/keys" >/dev/null
name=$("$vouch" publish "$work/project" --db "$work/db" --keys "$work/keys" --location "$address:20492" | grep -o -m1 '@[^ ]*')
"$vouch" serve --db "$work/db" --listen "$address:20492" >"$work/serve.log" 2>&1 &
pids+=($!)
cat >"$work/ganesha.conf" <<END
NFS_CORE_PARAM { NFS_Port = 20493; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; Bind_addr = $address; mount_path_pseudo = true; }
NFSv4 { Graceless = true; RecoveryRoot = "$work/ganesha"; Minor_Versions = 1,2; }
NFS_KRB5 { PrincipalName = "nfs@server.vouch.test"; KeytabPath = "$work/server.keytab"; CCacheDir = "$work/tickets"; Active_krb5 = true; }
EXPORT { Export_Id = 1; Path = $work/project; Pseudo = /export; Access_Type = RO; Squash = No_Root_Squash; SecType = sys, krb5p; Protocols = 4; Transports = TCP; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
END
mkdir "$work/ganesha" "$work/tickets"
ganesha.nfsd -f "$work/ganesha.conf" -L "$work/ganesha.log" -p "$work/ganesha.pid" -N EVENT
for port in 20492 20493 20494; do
    for _ in $(seq 300); do (: </dev/tcp/"$address"/$port) 2>/dev/null && continue 2; sleep 0.1; done
    tail -n 5 "$work"/*.log >&2
    exit 1
done

cat >"$work/script" <<'S'
set -eu
. ./gss.bash
gssd_up
busybox insmod "$MODULE" 2>/dev/null || modprobe fuse 2>/dev/null || :
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
mkdir -p /tmp/local /mnt/tree /tmp/objects
tar -C /tmp/local -xf "$JOB/project.tar"
compile() { # DIRECTORY PLACE CACHE
    local begun status=0 took
    begun=$(date +%s%N)
    while read -r file; do
        gcc -O1 -w -DHAVE_CONFIG_H -I"$1" -c -o /tmp/objects/object.o "$1/$file" || status=1
    done <"$JOB/list"
    took=$((($(date +%s%N) - begun) / 1000000))
    [ $status = 0 ] || fail "a file does not compile on $2"
    echo "round $round $2 $3: $took ms"
}
over_nfs() { # PLACE PORT FLAVOUR
    PORT=$2 attach 4.2 /export /mnt/e "ro,sec=$3" || fail "mount $1"
    compile /mnt/e "$1" cold
    compile /mnt/e "$1" warm
    umount /mnt/e
}
for round in $(seq 0 "$ROUNDS"); do
    # Compilers and headers are in the page cache from round 0 on, which does not count.
    compile /tmp/local 'local tmpfs' warm
    over_nfs 'vouch export sys' 20494 sys
    over_nfs 'vouch export krb5p' 20494 krb5p
    over_nfs 'NFS-Ganesha sys' 20493 sys
    over_nfs 'NFS-Ganesha krb5p' 20493 krb5p
    rm -rf /tmp/cache
    "$VOUCH" mount --background --log-file /tmp/mount.log --cache /tmp/cache "$NAME" /mnt/tree || fail "$(cat /tmp/mount.log)"
    compile /mnt/tree 'vouch mount' cold
    compile /mnt/tree 'vouch mount' warm
    "$VOUCH" umount /mnt/tree
done
S
# Idle loops: where the CPUs of a virtual machine fall asleep between the guest's steps, a compile
# takes three times as long.
for _ in $(seq "$(nproc)"); do
    chrt --idle 0 sh -c 'while :; do :; done' &
    pids+=($!)
done
module=$(echo /opt/vouch-guest/usr/lib/uml/modules/*/kernel/fs/fuse/fuse.ko)
"$here/../../script/guest/run" -i $index -k -m 1500M -t 7200 -e ROUNDS="$rounds" -e VOUCH="$vouch" -e NAME="$name" \
    -e MODULE="$module" "${guest_files[@]}" -f "$work/list" -f "$work/project.tar" "$work/script" | tee "$work/out" >&2

echo "# $(date +%F), Linux $(basename "$(dirname "$(dirname "$(dirname "$(dirname "$module")")")")") (User-Mode Linux, one CPU), NFS 4.2; $files of the $all C files of $(basename "$project") that compile alone, gcc $(gcc -dumpfullversion) -O1, one at a time"
echo "# bench/workloads/guest_compile.sh --files $files --rounds $rounds VOUCH PROJECT; load average $(cut -d' ' -f1 /proc/loadavg) on $(nproc) CPUs, with $(nproc) idle loops (chrt --idle) that keep the CPUs awake"
echo "# median of the rounds; the ratio is the median of the rounds' local time over the time, with its range"
awk -F': ' -v rounds="$rounds" '
    function sorted(list, count,   i, j, x) {
        for (i = 2; i <= count; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { x = list[j]; list[j] = list[j - 1]; list[j - 1] = x }
    }
    function middle(list, count) { return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2 }
    /^round / {
        split($1, words, " "); round = words[2]; place = substr($1, length("round " round) + 2)
        if (!(place in seen)) { seen[place]; order[++places] = place }
        ms[place, round] = $2 + 0
    }
    END {
        printf "%-26s %8s  %s\n", "sources on", "seconds", "ratio [range]"
        for (at = 1; at <= places; at++) {
            for (round = 1; round <= rounds; round++) { time[round] = ms[order[at], round]; ratio[round] = ms[order[1], round] / time[round] }
            sorted(time, rounds); sorted(ratio, rounds)
            printf "%-26s %8.2f  %.2f [%.2f-%.2f]\n", order[at], middle(time, rounds) / 1000, middle(ratio, rounds), ratio[1], ratio[rounds]
        }
    }' "$work/out"
