#!/bin/bash
# Guess: a SquashFS image shows the same files by squashfuse(1) as by the kernel: names of one file have one
# inode number, and each extended attribute that is listed can be read.
# Seen: squashfuse gives the two names of a hard link different inode numbers, beside a link count of 2, so tar
# and du take them for two files. squashfuse_ll gives one number. Both list an attribute with an empty value,
# and say ENODATA when it is read; the kernel gives the empty value.
# squashfuse 0.5.2, squashfs-tools 4.7.5 of Debian sid, 2026-11-30. Needs root, /dev/fuse, mmdebstrap,
# unshare(1), python3, a kernel with SquashFS. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/squash.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${SQUASHFUSE_ROOT:-}" ]; then root=$SQUASHFUSE_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=squashfuse,squashfs-tools,attr,fuse3 sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' squashfuse squashfs-tools
cat >"$work/inner" <<'INNER'
set -eu
work=$1 root=$2
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/mnt"
mkdir "$root/mnt/kernel" "$root/mnt/squashfuse" "$root/mnt/squashfuse_ll"
mount -o loop,ro -t squashfs "$work/image" "$root/mnt/kernel"
cp "$work/image" "$root/mnt/"
for reader in squashfuse squashfuse_ll; do chroot "$root" $reader /mnt/image /mnt/$reader; done
for reader in kernel squashfuse squashfuse_ll; do
    python3 - "$root/mnt/$reader" $reader <<'PYTHON'
import errno, os, sys
os.chdir(sys.argv[1])
one, two = os.stat("one"), os.stat("two")
def value(name):
    try:
        return os.getxattr("one", name)
    except OSError as error:
        return errno.errorcode[error.errno]
attributes = {name: value(name) for name in sorted(os.listxattr("one"))}
print(f"{sys.argv[2]}: links {one.st_nlink} and {two.st_nlink}, one inode number: {one.st_ino == two.st_ino}, {attributes}")
PYTHON
    umount "$root/mnt/$reader"
done
INNER
chroot "$root" bash -eu <<'FILES'
mkdir -p /srv/squash/files; cd /srv/squash
echo text >files/one; ln files/one files/two
setfattr -n user.full -v value files/one; setfattr -n user.empty files/one
mksquashfs files image -quiet -no-progress
FILES
mv "$root/srv/squash/image" "$work/image"; rm -r "$root/srv/squash"
timeout 100 unshare --mount --propagation private bash "$work/inner" "$work" "$root" | tee "$work/seen"
[ "$(cat "$work/seen")" = "kernel: links 2 and 2, one inode number: True, {'user.empty': b'', 'user.full': b'value'}
squashfuse: links 2 and 2, one inode number: False, {'user.empty': 'ENODATA', 'user.full': b'value'}
squashfuse_ll: links 2 and 2, one inode number: True, {'user.empty': 'ENODATA', 'user.full': b'value'}" ]
echo "as seen on 2026-11-30"
