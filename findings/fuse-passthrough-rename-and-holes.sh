#!/bin/bash
# Guess: FUSE file systems that show another directory pass lseek(SEEK_DATA) and
# renameat2(RENAME_NOREPLACE) on to it; the protocol has both since Linux 4.5, and libfuse 3 hands both to
# the file system.
# Seen: bindfs, mergerfs and fuse-overlayfs all show a sparse file as one piece of data, though its
# st_blocks are right, so programs read the holes as zeros. bindfs and mergerfs refuse a rename to a free
# name with EINVAL if it must not replace; with a name that exists all give EEXIST, by the kernel.
# fuse-overlayfs passes the rename on.
# bindfs 1.18.4, mergerfs 2.40.2, fuse-overlayfs 1.14 of Debian sid, 2026-11-28. Needs root, /dev/fuse,
# mmdebstrap, python3, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/passthrough.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${FUSE_ROOT:-}" ]; then root=$FUSE_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=bindfs,mergerfs,fuse-overlayfs,fuse3 sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' bindfs mergerfs fuse-overlayfs
cat >"$work/look.py" <<'PYTHON'
import ctypes, errno, os, sys

libc = ctypes.CDLL(None, use_errno=True)

def rename(old, new):  # renameat2(AT_FDCWD, old, AT_FDCWD, new, RENAME_NOREPLACE)
    failed = libc.renameat2(-100, old.encode(), -100, new.encode(), 1)
    return errno.errorcode[ctypes.get_errno()] if failed else "done"

for name in sys.argv[1:]:
    sparse = os.open(name + "/sparse", os.O_RDONLY)
    data, blocks = os.lseek(sparse, 0, os.SEEK_DATA), os.fstat(sparse).st_blocks
    for file in "one", "two":
        open(f"{name}/{file}", "w").close()
    taken = rename(name + "/one", name + "/two")
    print(f"{name}: first data at {data}, {blocks} blocks; rename to a name that exists: {taken}, to a free name: {rename(name + '/one', name + '/three')}")
PYTHON
cat >"$work/inner" <<'INNER'
set -eu
work=$1 root=$2
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/mnt"
cd "$root/mnt"
for name in plain bindfs mergerfs fuse-overlayfs; do
    mkdir -p lower/$name
    truncate -s 1M lower/$name/sparse; printf x | dd of=lower/$name/sparse bs=1 seek=917504 conv=notrunc 2>/dev/null
done
mkdir bindfs mergerfs fuse-overlayfs upper work
ln -s lower/plain plain
chroot "$root" bindfs /mnt/lower/bindfs /mnt/bindfs
chroot "$root" mergerfs -o minfreespace=0 /mnt/lower/mergerfs /mnt/mergerfs
chroot "$root" fuse-overlayfs -o lowerdir=/mnt/lower/fuse-overlayfs,upperdir=/mnt/upper,workdir=/mnt/work /mnt/fuse-overlayfs 2>/dev/null
for name in bindfs mergerfs fuse-overlayfs; do
    for step in $(seq 50); do [ ! -e $name/sparse ] || break; sleep 0.1; done
done
python3 "$work/look.py" plain bindfs mergerfs fuse-overlayfs >"$work/seen" || true
umount bindfs mergerfs fuse-overlayfs
INNER
timeout 60 unshare --mount --pid --fork --kill-child --propagation private bash "$work/inner" "$work" "$root"
cat "$work/seen"
[ "$(cat "$work/seen")" = "plain: first data at 917504, 8 blocks; rename to a name that exists: EEXIST, to a free name: done
bindfs: first data at 0, 8 blocks; rename to a name that exists: EEXIST, to a free name: EINVAL
mergerfs: first data at 0, 8 blocks; rename to a name that exists: EEXIST, to a free name: EINVAL
fuse-overlayfs: first data at 0, 8 blocks; rename to a name that exists: EEXIST, to a free name: done" ]
echo "as seen on 2026-11-28"
