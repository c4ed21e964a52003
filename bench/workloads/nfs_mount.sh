#!/usr/bin/env bash
# nfs_mount.sh PROGRAM [ROUNDS]: work in a local directory, and on the same directory through `vouch export`
# and `vouch nfs-mount` on this machine, in turn. Needs root, FUSE and fio. Prints seconds, and reads a second,
# of each round. The mount is made anew before each reading, so that its cache is empty.
set -euo pipefail
program=$(realpath "$1") rounds=${2:-3} port=20599
work=$(mktemp -d /var/tmp/vouch-nfs-mount.XXXXXX)
export VOUCH_STATE=$work/state VOUCH_RUNTIME_DIR=$work/run HOME=$work
mkdir "$work/data" "$work/mnt"
echo "$work/data 127.0.0.1(rw,insecure,no_root_squash,sync)" >"$work/exports"
"$program" export --exports "$work/exports" --state "$work/server" --listen "127.0.0.1:$port" >/dev/null 2>&1 &
server=$!
trap 'umount "$work/mnt" 2>/dev/null; kill $server; rm -rf "$work"' EXIT
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.1; done

mount_anew() {
    [ "$place" = mount ] || return 0
    ! mountpoint -q "$work/mnt" || "$program" umount "$work/mnt"
    "$program" nfs-mount --background --port $port "127.0.0.1:$work/data" "$work/mnt" >/dev/null
}
seconds() {
    local began=$EPOCHREALTIME
    "$@" >/dev/null 2>&1
    echo "$EPOCHREALTIME - $began" | bc
}
create() { for ((i = 0; i < 2000; i++)); do head -c 5000 /dev/zero >"$1/$i"; done; }

for ((round = 1; round <= rounds; round++)); do
    for place in local mount; do
        directory=$work/data
        [ "$place" = local ] || directory=$work/mnt
        mount_anew
        write=$(seconds dd if=/dev/zero of="$directory/large" bs=1M count=1024 conv=fsync)
        mount_anew
        read=$(seconds dd if="$directory/large" of=/dev/null bs=1M)
        mount_anew
        random=$(fio --name=r --filename="$directory/large" --rw=randread --bs=4k --ioengine=psync --runtime=5 --time_based --invalidate=0 --output-format=json | python3 -c 'import json, sys; print(round(json.load(sys.stdin)["jobs"][0]["read"]["iops"]))')
        mkdir "$directory/small"
        created=$(seconds create "$directory/small")
        mount_anew
        listed=$(seconds ls -l "$directory/small")
        shown=$(seconds cat -- "$directory/small"/*)
        removed=$(seconds rm -r "$directory/small" "$directory/large")
        echo "$place: write 1 GiB $write, read 1 GiB $read, random 4 KiB/s $random, create 2000 $created, ls -l $listed, cat 2000 $shown, rm $removed"
        [ "$place" = local ] || "$program" umount "$work/mnt"
    done
done
