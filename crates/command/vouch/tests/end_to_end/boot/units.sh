# units.sh: what both boots check.
# shellcheck shell=bash
set -o pipefail

UNITS=(vouch-pull@tools.service vouch-publish@own.timer vouch-serve.socket vouch-serve.service vouch-export.socket
    vouch-export.service vouch-gateway@tools.service vouch-mount@srv-mounted.service opt-tools.mount)

fail() {
    echo "FAILED: $1"
    systemctl list-units --plain --no-legend --state=failed
    exit 1
}
settled() { for _ in $(seq 300); do "$@" && return; sleep 0.1; done; return 1; }
reads() { [ "$(cat "$1" 2>/dev/null)" = "hello world" ]; }
processes() { grep -l '^vouch$' /proc/[0-9]*/comm 2>/dev/null; }
main_pid() { systemctl show --value --property=MainPID "$1"; }

wait_for_boot() {
    local state
    state=$(systemctl is-system-running --wait) || fail "the system is $state"
}

# http PORT PATH: the body.
http() {
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
    sed '1,/^\r$/d' <&3
    exec 3>&-
}

check_units() {
    local unit place text heading
    for unit in "${UNITS[@]}" software.mount first-byte.service; do
        [ "$unit" = first-byte.service ] || systemctl is-active --quiet "$unit" || fail "$unit: $(systemctl status "$unit" 2>&1)"
        systemctl is-failed --quiet "$unit" && fail "$unit: $(systemctl status "$unit" 2>&1)"
    done
    # fstab, a unit of type mount, a shipped unit, autofs.
    for place in /software /opt/tools /srv/mounted /vouch/tools; do
        reads "$place/hello" || fail "$place is not mounted: $(ls -l "$place" 2>&1)"
        [ "$(stat -f -c %T "$place")" = fuseblk ] || [ "$(stat -f -c %T "$place")" = fuse ] || fail "$place: $(stat -f -c %T "$place")"
    done
    [ "$(vouch cat own/file)" = own ] || fail "the tree that vouch-publish@own has published"
    [ "$(http 8080 /hello)" = "hello world" ] || fail "the gateway: $(http 8080 /hello)"
    vouch export status >status.txt || fail "vouch export status"
    text=$(vouch status)
    for heading in MOUNTS CACHES "SERVED TREES" GATEWAYS EXPORTS /software /opt/tools /srv/mounted /srv/data; do
        [[ $text = *$heading* ]] || fail "vouch status does not show $heading: $text"
    done
    [[ $text != *"NO ANSWER"* && $text != *"no status"* ]] || fail "vouch status: $text"
    vouch check >check.txt || fail "vouch check: $(cat check.txt)"
    echo "units are active, four mounts read, status and check agree: ok"
}

# Reload and restart under an open file.
check_upgrade() {
    local before after
    exec 4</srv/mounted/hello
    before=$(main_pid vouch-mount@srv-mounted)
    systemctl reload vouch-mount@srv-mounted || fail "reload of vouch-mount: $(systemctl status vouch-mount@srv-mounted)"
    after=$(main_pid vouch-mount@srv-mounted)
    [ "$before" = "$after" ] || fail "the supervisor has changed"
    [ "$(cat <&4)" = "hello world" ] || fail "an open file after a reload"
    exec 4<&-
    systemctl reload vouch-export || fail "reload of vouch-export: $(systemctl status vouch-export)"
    systemctl restart vouch-serve vouch-export
    systemctl is-active --quiet vouch-serve vouch-export vouch-serve.socket vouch-export.socket || fail "restart of services with sockets"
    [ "$(vouch cat --no-cache "@127.0.0.1,${NAME#*,}/hello")" = "hello world" ] || fail "the replica after its restart"
    echo "reload and restart under open files: ok"
}
