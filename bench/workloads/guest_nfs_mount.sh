#!/usr/bin/env bash
# guest_nfs_mount.sh: one guest mounts one export by the kernel's client and by `vouch nfs-mount`, in turn,
# under sys and krb5p.
#
#   bench/workloads/guest_nfs_mount.sh [--root DIR] [--rounds N] VOUCH
#
# Each work follows a new mount, so that its cache is empty, unless it says "again". Files are in memory on
# this machine. DIR is the guest's system; the default is that of `VOUCH_PEERS_SUITE=sid
# script/install-needs newest-guest`. Needs root, user-mode-linux, nfs-common, busybox-static, iproute2,
# krb5-kdc, krb5-admin-server and krb5-user. Each time goes to standard error, and lines for
# bench/figures.jsonl to standard output.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=5 root=/opt/vouch-guest-sid
while [ $# -gt 1 ]; do
    case $1 in
        --root) root=$2; shift 2 ;;
        --rounds) rounds=$2; shift 2 ;;
        *) break ;;
    esac
done
[ $# = 1 ] && [ -x "$1" ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
vouch=$(readlink -f "$1")
. "$here/guest_realm.bash"
begin 94
realm_up
mkdir -m 1777 "$work/export"
"$vouch" export --dir "$work/export" --state "$work/state" --listen "$address:20490" --keytab "$work/server.keytab" \
    --options rw,insecure,sec=sys:krb5p >"$work/export.log" 2>&1 &
pids+=($!)
until (: </dev/tcp/"$address"/20490) 2>/dev/null; do kill -0 $! || { cat "$work/export.log" >&2; exit 1; }; sleep 0.1; done

cat >"$work/work.py" <<'P'
import os, random, sys, time
place, part = sys.argv[1:]
names, block = [f"small/{n}" for n in range(500)], bytes(1 << 20)
def write():
    with open("large", "wb", 0) as file:
        for _ in range(128): file.write(block)
        os.fsync(file.fileno())
def read():
    with open("large", "rb", 0) as file:
        while file.read(1 << 20): pass
def read_randomly():
    order = random.Random(1)
    with open("large", "rb", 0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(1000): os.pread(file.fileno(), 4096, order.randrange(32768) * 4096)
def create():
    os.mkdir("small")
    for name in names:
        with open(name, "wb", 0) as file: file.write(block[:5000])
def list_all():
    for entry in os.scandir("small"): entry.stat(follow_symlinks=False)
def read_all():
    for name in names:
        with open(name, "rb", 0) as file: file.read(8192)
def rename():
    for name in names: os.rename(name, name + "-new")
def remove():
    for name in names: os.unlink(name + "-new")
    os.rmdir("small")
parts = {
    "write": [("write 128 MiB and fsync", write)],
    "read": [("read 128 MiB", read), ("read 128 MiB again", read)],
    "random": [("1,000 random reads of 4 KiB", read_randomly)],
    "create": [("create 500 files of 5 kB", create)],
    "list": [("list and stat 500 files", list_all)],
    "small": [("open, read and close 500 files", read_all), ("the same again", read_all)],
    "names": [("rename 500 files", rename), ("remove 500 files", remove)],
}
for name, run in parts[part]:
    begun = time.monotonic()
    run()
    print(f"{place}|{name}|{time.monotonic() - begun:.3f}", flush=True)
P
cat >"$work/script" <<'S'
set -eu
. ./gss.bash
gssd_up
busybox insmod "/usr/lib/uml/modules/$(uname -r)/kernel/fs/fuse/fuse.ko" || modprobe fuse
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
kinit -k -t "$JOB/machine.keytab" -c FILE:/tmp/krb5cc_0 host/client.vouch.test
export PORT=20490 KRB5CCNAME=FILE:/tmp/krb5cc_0
mkdir -p /mnt/e
for round in $(seq 0 "$ROUNDS"); do
    for flavour in sys krb5p; do
        for client in kernel nfs-mount; do
            for part in write read random create list small names; do
                if [ $client = kernel ]; then
                    attach 4.2 /export /mnt/e "sec=$flavour"
                else
                    ./vouch nfs-mount --background --log-file /tmp/mount.log --port $PORT --sec $flavour "$SERVER:/export" /mnt/e >/dev/null || fail "$(cat /tmp/mount.log)"
                fi
                (cd /mnt/e && python3 "$JOB/work.py" "$round|$flavour|$client" $part)
                umount /mnt/e
            done
        done
    done
done
S
cp "$vouch" "$work/vouch"
"$here/../../script/guest/run" -i $index -r "$root" -m 1G -t 1800 -e ROUNDS="$rounds" "${guest_files[@]}" \
    -f "$work/work.py" -f "$work/vouch" "$work/script" | tee "$work/out" >&2

# Round 0 fills the caches of programs, and does not count.
python3 - "$work/out" "$rounds" <<'P'
import json, statistics, sys, time
times = {}
for line in open(sys.argv[1]):
    fields = line.strip().split("|")
    if len(fields) == 5 and fields[0] != "0":
        times.setdefault((fields[1], fields[3], fields[2]), []).append(float(fields[4]))
run = time.strftime("%Y-%m-%d-guest-nfs-mount")
for (flavour, work, client), values in times.items():
    values.sort()
    figure = {"median": round(statistics.median(values), 3), "low": values[0], "high": values[-1], "values": len(values)}
    print(json.dumps({"run": run, "panel": f"clients in one guest, {flavour}", "name": work, "label": client, "unit": "s", "figure": figure}, separators=(",", ":")))
P
