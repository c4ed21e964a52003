# Functions for mounts whose session has several connections.

# transports DIR: the number of the mount's connections that have carried calls.
transports() {
    awk -v dir="$1" '/^device /{mounted = $5 == dir} mounted && $1 == "xprt:" && $8 > 0 {count++} END {print count + 0}' /proc/self/mountstats
}

# addresses: the server's addresses of all connections, once each.
addresses() { cat /sys/kernel/sunrpc/xprt-switches/*/xprt-*/dstaddr | sort -u; }

# work DIR: parallel writes and reads, which use all connections in turn.
work() {
    local at
    for at in 1 2 3 4 5 6 7 8; do
        dd if=/dev/urandom of="$1/file$at" bs=64k count=16 conv=fsync 2>/dev/null
    done
    for at in 1 2 3 4 5 6 7 8; do
        dd if="$1/file$at" of="$JOB/copy$at" bs=64k iflag=direct 2>/dev/null &
    done
    wait
    for at in 1 2 3 4 5 6 7 8; do cmp "$1/file$at" "$JOB/copy$at"; done
}

# hold DIR: until the test has seen the server's status.
hold() {
    : >"$1/begun"
    until [ -e "$1/enough" ]; do sleep 0.1; done
}
