#!/bin/bash
# Guess: to write a parameter of NFS-Ganesha with its documented default changes nothing: `Bind_addr`
# is 0.0.0.0 by default (ganesha-core-config(8)).
# Seen: where only the loopback interface has an address, as in a new network namespace or a container
# without network, the server starts without the line and ends at once with it: "No IP address found
# for 0.0.0.0". The numeric address goes through getaddrinfo(3) with AI_ADDRCONFIG, which ignores
# loopback addresses. `Bind_addr = 127.0.0.1` ends in the same way.
# NFS-Ganesha 15.2 of Debian sid, 2026-11-28. Needs root, mmdebstrap, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/ganesha.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${GANESHA_ROOT:-}" ]; then root=$GANESHA_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=nfs-ganesha,nfs-ganesha-vfs sid "$root" "deb $mirror sid main"
fi
chroot "$root" ganesha.nfsd -v | head -n 1
cat >"$work/inner" <<'INNER'
set -u
work=$1 root=$2
ip link set lo up
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs none "$root/run"; mount -t tmpfs none "$root/tmp"
outcome() {
    mkdir -p "$root/run/ganesha" "$root/run/dbus"
    printf 'NFS_CORE_PARAM { %s NFS_Port = 2049; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; allow_set_io_flusher_fail = true; }\nNFSv4 { Graceless = true; RecoveryRoot = "/run/ganesha"; }\n' "$1" >"$root/tmp/ganesha.conf"
    : >"$root/tmp/log"
    chroot "$root" ganesha.nfsd -F -f /tmp/ganesha.conf -L /tmp/log -p /run/ganesha.pid -N EVENT >/dev/null 2>&1 & pid=$!
    for step in $(seq 150); do
        grep -q 'NFS SERVER INITIALIZED' "$root/tmp/log" && { echo starts; kill -9 "$pid"; wait "$pid" 2>/dev/null; return; }
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    grep -o 'No IP address found for [0-9.]*' "$root/tmp/log" || echo "another end"
    kill -9 "$pid" 2>/dev/null; wait "$pid" 2>/dev/null
}
for line in '' 'Bind_addr = 0.0.0.0;' 'Bind_addr = 127.0.0.1;'; do echo "line '$line': $(outcome "$line")"; done >"$work/seen"
INNER
unshare --mount --net bash "$work/inner" "$work" "$root"
cat "$work/seen"
[ "$(cat "$work/seen")" = "line '': starts
line 'Bind_addr = 0.0.0.0;': No IP address found for 0.0.0.0
line 'Bind_addr = 127.0.0.1;': No IP address found for 127.0.0.1" ]
