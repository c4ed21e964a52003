#!/bin/bash
# Guess: mkcomposefs keeps the hard links of the directory that it describes. Its dump format can say that a
# name is another name of a file ("@"), and composefs shows such names with one inode and their count.
# Seen: each name of a file becomes a file of its own with a link count of 1, so tar, du and rsync -H of the mounted
# image count its content twice. The same names in a dump, by --from-file, keep the count of 2.
# composefs 1.0.8 of Debian sid, 2026-11-30. Needs root, mmdebstrap, unshare(1). Exit 0: as
# seen.
set -eu
work=$(mktemp -d /var/tmp/composefs.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${COMPOSEFS_ROOT:-}" ]; then root=$COMPOSEFS_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=composefs sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' composefs
unshare --mount --propagation private sh -c 'mount -t proc proc "$0/proc"; exec chroot "$0" bash -eu' "$root" <<'INNER' | tee "$work/seen"
mkdir -p /srv/composefs/files; cd /srv/composefs
echo text >files/one; ln files/one files/two
echo "in the directory: $(stat -c '%n %h' files/one files/two | tr '\n' ' ')"
mkcomposefs files image
echo "from the directory: $(composefs-info dump image | awk '$1 != "/" {print $1, $3, $4}' | tr '\n' ' ')"
printf '/ 4096 40755 2 0 0 0 0.0 - - -\n/one 5 100644 2 0 0 0 0.0 - text\\n -\n/two 0 @120000 - - - - 0.0 /one - -\n' >dump
mkcomposefs --from-file dump image
echo "from the dump: $(composefs-info dump image | awk '$1 != "/" {print $1, $3, $4}' | tr '\n' ' ')"
rm -r /srv/composefs
INNER
[ "$(sed 's/ $//' "$work/seen")" = "in the directory: files/one 2 files/two 2
from the directory: /one 100644 1 /two 100644 1
from the dump: /one 100644 2 /two @100644 2" ]
echo "as seen on 2026-11-30"
