#!/bin/bash
# Guess: on gocryptfs an open file that was removed, or replaced by a rename, stays usable through its descriptor, as POSIX
# demands and as other FUSE file systems do: bindfs keeps it under a hidden name.
# Seen: read, write, ftruncate and fstat work. fsync, fdatasync, fchmod, fchown, futimens and fgetxattr fail with
# ENOENT. A program that syncs its removed temporary file, or a file server whose client holds a file that another
# replaces, gets an error for a write that is there. setxattr of security.capability succeeds and listxattr
# shows it, but getxattr fails, so setcap(8) ends with 0 and the capability has no effect.
# gocryptfs 2.6.1, bindfs 1.18.4 of Debian sid, 2026-12-01. Needs root, /dev/fuse, mmdebstrap, python3, unshare(1). Exit 0: as
# seen.
set -eu
work=$(mktemp -d /var/tmp/gocryptfs.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=gocryptfs,bindfs,fuse3,python3 sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' gocryptfs bindfs
mkdir "$root/srv/stored" "$root/srv/gocryptfs" "$root/srv/below" "$root/srv/bindfs"
cat >"$root/srv/look.py" <<'PYTHON'
import errno, os, sys

for directory in sys.argv[1:]:
    def attempt(call, *arguments):
        try:
            call(*arguments)
            return "done"
        except OSError as error:
            return errno.errorcode[error.errno]

    def file(name):
        return os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o644)

    removed, replaced = file("removed"), file("replaced")
    os.setxattr(removed, "user.name", b"value")
    os.close(file("new"))
    os.unlink(directory + "/removed")
    os.rename(directory + "/new", directory + "/replaced")
    for what, opened in ("removed", removed), ("replaced", replaced):
        print(f"{directory}, {what}: write {attempt(os.write, opened, b'content')}, ftruncate {attempt(os.ftruncate, opened, 1)}, "
              f"fsync {attempt(os.fsync, opened)}, fdatasync {attempt(os.fdatasync, opened)}, fchmod {attempt(os.fchmod, opened, 0o600)}, "
              f"fchown {attempt(os.fchown, opened, 1, 1)}, futimens {attempt(os.utime, opened, (1, 1))}, fstat {os.fstat(opened).st_size}")
    print(f"{directory}, attribute of the removed file: {attempt(os.getxattr, removed, 'user.name')}")
    capability = bytes.fromhex("0100000280000000000000000000000000000000")
    os.close(file("program"))
    path = directory + "/program"
    print(f"{directory}, capability: set {attempt(os.setxattr, path, 'security.capability', capability)}, list {os.listxattr(path)}, "
          f"get {attempt(os.getxattr, path, 'security.capability')}")
PYTHON
cat >"$work/inner" <<'INNER'
set -eu
root=$1
touch "$root/dev/fuse"
mount --bind /dev/fuse "$root/dev/fuse"
mount -t proc proc "$root/proc"
exec chroot "$root" sh -c 'cd /srv; echo secret >password
gocryptfs -q -init -passfile password stored && gocryptfs -q -passfile password stored gocryptfs && bindfs below bindfs
python3 look.py gocryptfs bindfs; umount gocryptfs bindfs'
INNER
timeout -k 5 120 unshare --mount --pid --fork --kill-child sh "$work/inner" "$root" 2>"$work/errors" | tee "$work/seen"
[ "$(cat "$work/seen")" = "gocryptfs, removed: write done, ftruncate done, fsync ENOENT, fdatasync ENOENT, fchmod ENOENT, fchown ENOENT, futimens ENOENT, fstat 1
gocryptfs, replaced: write done, ftruncate done, fsync ENOENT, fdatasync ENOENT, fchmod ENOENT, fchown ENOENT, futimens ENOENT, fstat 1
gocryptfs, attribute of the removed file: ENOENT
gocryptfs, capability: set done, list ['security.capability'], get ENOTSUP
bindfs, removed: write done, ftruncate done, fsync done, fdatasync done, fchmod done, fchown done, futimens done, fstat 1
bindfs, replaced: write done, ftruncate done, fsync done, fdatasync done, fchmod done, fchown done, futimens done, fstat 1
bindfs, attribute of the removed file: done
bindfs, capability: set done, list ['security.capability'], get done" ] || { cat "$work/errors"; exit 1; }
echo "as seen on 2026-12-01"
