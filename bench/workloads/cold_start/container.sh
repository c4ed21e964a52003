#!/usr/bin/env bash
# container.sh ROUNDS WAY...: a container from a cold machine, until it prints its first line.
#
# As root, with podman. An image is in a registry, and published as the revision TAG of the tree NAME
# (vouch publish --from-image). relay.py delays both servers and writes its counts:
#   relay.py 5911 4340 20 tree.counts; relay.py 5901 5000 20 registry.counts
# Ways: tree      vouch mount, podman run --rootfs
#       crun      vouch mount, crun run, as a cluster's runtime starts a container
#       podman    podman run of REGISTRY/TAG, which pulls
#       chunked   the same of REGISTRY/CHUNKED, with partial pulls of zstd:chunked
# SHARED="TAG ..." are images that the machine has run before. The time is that of TAG alone.
set -eu
: "${NAME:?}" "${TAG:?}" "${REPLICA:=127.0.0.1:5911}" "${REGISTRY:=127.0.0.1:5901}" "${VOUCH:=vouch}"
: "${CHUNKED:=}" "${SHARED:=}" "${COUNTS:=.}" "${DIR:=$PWD/container}"
[ -n "${COMMAND:-}" ] || COMMAND='import scipy.linalg; print(scipy.linalg.det([[2, 1], [1, 3]]))'
export VOUCH_STATE=$DIR/state VOUCH_CACHE=$DIR/cache VOUCH_CONFIG=/dev/null
export CONTAINERS_STORAGE_CONF=$DIR/storage.conf
rounds=$1; shift

bytes() { sleep 0.3; cut -d' ' -f1 "$COUNTS/$1.counts"; }
podman() { command podman --root "$DIR/store" --runroot "$DIR/run" "$@"; }
options=(--rm --network=host --cgroups=disabled --log-driver=none)
mount_tree() {
    "$VOUCH" mount --background --log-file "$DIR/mount.log" --only-replicas --replica "$REPLICA" \
        --tag "$1" "$NAME" "$DIR/mnt" >/dev/null
}
crun_tree() {
    mkdir -p "$DIR/bundle"
    [ -e "$DIR/bundle/config.json" ] || (cd "$DIR/bundle" && crun spec)
    python='["python3", "-c", $command]'
    jq --arg command "$COMMAND" --arg root "$DIR/mnt" ".root = {path: \$root, readonly: true} |
        .process.terminal = false | .process.args = $python | .linux.namespaces |= map(select(.type != \"network\"))" \
        "$DIR/bundle/config.json" >"$DIR/bundle/new" && mv "$DIR/bundle/new" "$DIR/bundle/config.json"
    crun --cgroup-manager=disabled run -b "$DIR/bundle" "cold$$"
}
start() { # WAY TAG
    case $1 in
    tree) mount_tree "$2" && podman run "${options[@]}" --rootfs "$DIR/mnt:O" python3 -c "$COMMAND" ;;
    crun) mount_tree "$2" && crun_tree ;;
    podman) podman run "${options[@]}" --tls-verify=false -q "$REGISTRY/$2:1" python3 -c "$COMMAND" ;;
    chunked) podman run "${options[@]}" --tls-verify=false -q "$REGISTRY/${CHUNKED:-$2}:1" python3 -c "$COMMAND" ;;
    esac
}
finish() {
    ! mountpoint -q "$DIR/mnt" || "$VOUCH" umount "$DIR/mnt" >/dev/null
}
trap finish EXIT
clear_all() {
    podman system reset -f >/dev/null 2>&1 || true
    rm -rf --one-file-system "$DIR"
    mkdir -p "$DIR/mnt" "$DIR/run"
    printf '[storage]\ndriver = "overlay"\n[storage.options.pull_options]\nenable_partial_images = "%s"\n' \
        "$1" >"$CONTAINERS_STORAGE_CONF"
}
for round in $(seq "$rounds"); do
    for way in "$@"; do
        clear_all "$([ "$way" = chunked ] && echo true || echo false)"
        counter=registry
        case $way in tree | crun) counter=tree ;; esac
        for tag in $SHARED; do start "$way" "$tag" >/dev/null; finish; done
        sync; echo 3 >/proc/sys/vm/drop_caches
        before=$(bytes $counter)
        began=$EPOCHREALTIME
        { read -r line || true; end=$EPOCHREALTIME; cat >/dev/null; } < <(start "$way" "$TAG")
        after=$(bytes $counter)
        finish
        awk -v w="$way" -v s="$(echo "$end $began" | awk '{print $1 - $2}')" -v b=$((after - before)) -v l="$line" -v r="$round" \
            'BEGIN {printf "%d %-8s %7.2f s %8.1f MB  %s\n", r, w, s, b / 1e6, l}'
    done
done
