# Shell functions for `run` and `boot`, which source this file: networks and kernels of guests.
# shellcheck shell=bash

fail() { echo "guest: $1" >&2; exit 252; }

# network_up N: creates the TAP device of guest N, with this machine's address on it.
network_up() {
    local tap=vouchtap$1 address=10.77.$1.1
    [ -e "/sys/class/net/$tap" ] || ip tuntap add dev "$tap" mode tap || return
    ip addr show dev "$tap" | grep -q "$address/" || ip addr add "$address/24" dev "$tap" || return
    ip link set "$tap" up
}

# start_kernel JOB N COMMAND...: starts a kernel in a process group of its own, as process $uml. Its
# console goes to JOB/console.
start_kernel() {
    local job=$1 index=$2
    shift 2
    mkdir -p "$job/uml"
    # For CPUs with more extended registers than User-Mode Linux supports: see registers.c.
    cc -O2 -Wall -Werror -shared -fPIC -o "$job/registers.so" "$(dirname "${BASH_SOURCE[0]}")/registers.c" ||
        fail "can't build registers.c: install a C compiler (package gcc)"
    setsid env "LD_PRELOAD=$job/registers.so" "$@" "umid=guest" "uml_dir=$job/uml/" con=null con0=null,fd:1 quiet \
        "vec0:transport=tap,ifname=vouchtap$index,depth=128,gro=1" </dev/null >"$job/console" 2>&1 &
    uml=$!
}

# wait_for_kernel SECONDS: waits until process $uml ends, and kills it after SECONDS.
wait_for_kernel() {
    local end=$((SECONDS + $1))
    while kill -0 "$uml" 2>/dev/null; do
        [ $SECONDS -lt $end ] || { echo "guest: killed, because it exceeded its time limit" >&2; kill -9 -- -"$uml"; break; }
        sleep 0.1
    done
}
