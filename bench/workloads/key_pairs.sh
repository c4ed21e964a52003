#!/usr/bin/env bash
# key_pairs.sh DIR: opening trees of Ed25519 keys beside trees of key pairs, in one run.
#
# DIR gets keys and databases; a second run uses them again. TREES is the number of trees of each
# kind. PROFILE=debug uses a development build.
set -euo pipefail
[ $# = 1 ] || { echo "usage: key_pairs.sh DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
trees=${TREES:-40}
profile=${PROFILE:-release}
programs=${CARGO_TARGET_DIR:-target}/$profile
flags=()
[ "$profile" = debug ] || flags=(--release)
cargo build "${flags[@]}" --locked -q --workspace --bin vouch --bin key_pairs
export VOUCH_CONFIG=/dev/null VOUCH_STATE=$dir/state

mkdir -p "$dir/source"
echo hello >"$dir/source/hello"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
for kind in classic pairs; do
    case $kind in classic) port=4821 more=--classic ;; *) port=4822 more= ;; esac
    databases=()
    : >"$dir/$kind.names"
    for number in $(seq "$trees"); do
        tree=$dir/$kind-$number
        if ! [ -e "$tree/db/manifest" ]; then
            mkdir -p "$tree"
            "$programs/vouch" keygen $more --out "$tree/keys" >/dev/null
            "$programs/vouch" publish --db "$tree/db" --keys "$tree/keys" --location "127.0.0.1:$port" "$dir/source" >/dev/null
        fi
        "$programs/vouch" name "$tree/keys" --location "127.0.0.1:$port" >>"$dir/$kind.names"
        databases+=(--db "$tree/db")
    done
    "$programs/vouch" serve "${databases[@]}" --listen "127.0.0.1:$port" >"$dir/$kind.log" 2>&1 &
    pids+=($!)
    until grep -q "serving on" "$dir/$kind.log"; do sleep 0.1; done
done
"$programs/key_pairs" --classic "$dir/classic.names" --classic-pid "${pids[0]}" \
    --pairs "$dir/pairs.names" --pairs-pid "${pids[1]}"
