# machine.sh PROGRAM NAME INDEX: installs the package of PROGRAM in a Debian 12 with systemd, boots
# it twice as guest INDEX, and tells how long it takes to the first byte of the tree NAME. A replica
# must serve NAME where the guest reaches it. Needs root. ROOT=DIR is a root to copy instead of
# making one by mmdebstrap.
set -euo pipefail
program=$(realpath "$1") name=$2 index=$3
here=$(realpath "$(dirname "$0")")
cd "$here/../../../../../.."
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
fail() { echo "FAILED: $1" >&2; exit 1; }

VOUCH_BINARY=$program script/package "$work" >/dev/null 2>"$work/log" || fail "package: $(cat "$work/log")"
if [ -n "${ROOT:-}" ]; then
    cp -a "$ROOT" "$work/root"
else
    mmdebstrap --quiet --variant=minbase \
        --include=mount,fuse3,systemd-sysv,udev,dbus,kmod,autofs,init-system-helpers bookworm "$work/root" 2>"$work/log" || fail "mmdebstrap: $(cat "$work/log")"
fi
script/guest/boot image "$work/root" "$work/image"
rm -rf --one-file-system "$work/root"
boot() { script/guest/boot run -i "$index" -t 500 -e "NAME=$name" -f "$here/units.sh" "$@"; }
boot -f "$work"/vouch_*.deb "$work/image" "$here/install.sh"
began=$(date +%s%N)
boot "$work/image" "$here/reboot.sh"
echo "second boot, checks and shutdown: $((($(date +%s%N) - began) / 1000000)) ms"
