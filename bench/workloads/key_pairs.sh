#!/usr/bin/env bash
# key_pairs.sh DIR: opening trees of Ed25519 keys without a log beside those with a log, and beside
# trees of key pairs with a log, in one run. The first kind is what earlier publishers made.
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
pids=() kinds=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
port=4820
for kind in without-log classic pairs; do
    port=$((port + 1))
    case $kind in pairs) more= ;; *) more=--classic ;; esac
    databases=()
    : >"$dir/$kind.names"
    for number in $(seq "$trees"); do
        tree=$dir/$kind-$number
        if ! [ -e "$tree/db/manifest" ]; then
            mkdir -p "$tree"
            "$programs/vouch" keygen $more --out "$tree/keys" >/dev/null
            [ "$kind" != without-log ] || rm "$tree"/keys/log.*
            "$programs/vouch" publish --db "$tree/db" --keys "$tree/keys" --location "127.0.0.1:$port" "$dir/source" >/dev/null
        fi
        "$programs/vouch" name "$tree/keys" --location "127.0.0.1:$port" >>"$dir/$kind.names"
        databases+=(--db "$tree/db")
    done
    "$programs/vouch" serve "${databases[@]}" --listen "127.0.0.1:$port" >"$dir/$kind.log" 2>&1 &
    pids+=($!)
    kinds+=(--kind "$kind" "$dir/$kind.names" "$!")
    until grep -q "serving on" "$dir/$kind.log"; do sleep 0.1; done
done
"$programs/key_pairs" "${kinds[@]}"
