#!/usr/bin/env bash
# client_cache.sh: what the page cache and the delegations of one Linux client save. Each round
# mounts, reads 500 files of 5 kB and one of 64 MB three times, and unmounts; with delegations and
# without, under each flavour. NFS calls are counted since the mount (/proc/self/mountstats).
#
#   bench/workloads/client_cache.sh [--sec LIST] [--rounds N] VOUCH
#
# Needs root and packages: script/install-needs user-mode-linux nfs-common busybox-static iproute2
# gcc krb5-kdc krb5-admin-server krb5-user. The default of --sec is sys,krb5p. The table goes to
# standard output.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
flavours=sys,krb5p rounds=4
while [ $# -gt 1 ]; do
    case $1 in
        --sec) flavours=$2; shift 2 ;;
        --rounds) rounds=$2; shift 2 ;;
        *) break ;;
    esac
done
[ $# = 1 ] && [ -x "$1" ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
vouch=$(readlink -f "$1")
. "$here/guest_realm.bash"
begin 96
realm_up
mkdir "$work/export"
(cd "$work/export" && head -c 2500000 /dev/urandom | split -b 5000 -a 3 - file && head -c 64000000 /dev/urandom >large)
for delegations in on off; do
    options=(--keytab "$work/server.keytab")
    port=20496
    [ $delegations = on ] || { options+=(--no-delegations); port=20495; }
    "$vouch" export --dir "$work/export" --state "$work/$delegations" --listen "$address:$port" "${options[@]}" \
        --options "ro,insecure,sec=${flavours//,/:}" >"$work/$delegations.log" 2>&1 &
    pids+=($!)
    until (: </dev/tcp/"$address"/$port) 2>/dev/null; do kill -0 $! || { cat "$work/$delegations.log" >&2; exit 1; }; sleep 0.1; done
done

cat >"$work/script" <<'S'
set -eu
. ./gss.bash
gssd_up
calls() {
    awk -v names="READ OPEN CLOSE GETATTR ACCESS" '
        / mounted on \/mnt\/e / {ours = 1}
        ours {sub("_NOATTR", "", $1); count[$1] += $2}
        END {split(names, all); for (at = 1; at in all; at++) printf " %s %d", all[at], count[all[at] ":"]}' /proc/self/mountstats
}
seconds() { local begun=$(date +%s%N); "$@" >/dev/null; local took=$((($(date +%s%N) - begun) / 1000000)); printf '%d.%03d' $((took / 1000)) $((took % 1000)); }
many() { cat /mnt/e/file*; }
for round in $(seq "$ROUNDS"); do
    for flavour in ${FLAVOURS//,/ }; do
        for delegations in on off; do
            [ $delegations = on ] && export PORT=20496 || export PORT=20495
            attach 4.2 /export /mnt/e "sec=$flavour" || fail "mount $flavour"
            for read in cold warm warm2; do
                many=$(seconds many)
                large=$(seconds md5sum /mnt/e/large)
                echo "round $round $flavour delegations $delegations $read: 500 x 5 kB $many s, 64 MB $large s; so far$(calls)"
            done
            umount /mnt/e
        done
    done
done
S
echo "# $(date +%F), Linux $(linux.uml --version) (User-Mode Linux), NFS 4.2, vouch export of $(stat -f -c %T "$work") with and without --no-delegations"
echo "# bench/workloads/client_cache.sh --sec $flavours --rounds $rounds VOUCH; load average $(cut -d' ' -f1 /proc/loadavg) on $(nproc) CPUs"
"$here/../../script/guest/run" -i $index -t 3600 -e ROUNDS="$rounds" -e FLAVOURS="$flavours" "${guest_files[@]}" "$work/script"
