#!/bin/bash
# Guess: a list of a tree in the format mtree(5) that bsdtar wrote is confirmed by mtree(8) for the same tree,
# and bsdtar finds each file of a list that mtree wrote.
# Seen: for a file with a POSIX ACL bsdtar writes not its mode but one with the rights of the owning group in
# place of the mask, by default as with --acls, so mtree reports each such file as changed. --no-acls gives the
# mode. In the other direction, bsdtar does not decode "\#" and "\M-C\M-<", as mtree writes "#" and letters
# beyond ASCII, and names files that are not there.
# libarchive-tools 3.8.10, mtree-netbsd 20180822 of Debian sid, 2026-11-30. Needs root, mmdebstrap, and POSIX
# ACLs in /var/tmp. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/mtree.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${MTREE_ROOT:-}" ]; then root=$MTREE_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=libarchive-tools,mtree-netbsd,acl sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' libarchive-tools mtree-netbsd
chroot "$root" env LC_ALL=C.UTF-8 bash -s <<'INNER' | tee "$work/seen"
set -u
mkdir -p /srv/mtree/files; cd /srv/mtree/files
echo x >file; chmod 640 file; setfacl -m u:1234:rw file
echo "mode $(stat -c %a file)"
for option in --acls --no-acls; do
    bsdtar $option -cf ../list --format=mtree --options='!all,type,mode,sha256' .
    mtree -p . -f ../list >../said; status=$?
    echo "$option: $(sed -n 's/^.\/file .*\(mode=[0-7]*\).*/\1/p' ../list); mtree ends with $status $(grep permissions ../said)"
done
rm file; touch a b c d e f 'part#1' 'ü'
mtree -c -k type,mode,uid,gid,nlink,size,time,link,sha256 -p . >../list
mtree -p . -f ../list; echo "own list: mtree ends with $?"
bsdtar -tf ../list >../names; echo "bsdtar of it: ends with $?, names: $(grep -v '^\.$' ../names | sort | tr '\n' ' ')"
rm -r /srv/mtree
INNER
[ "$(cat "$work/seen")" = 'mode 660
--acls: mode=640; mtree ends with 2 file:   permissions (0640, 0660)
--no-acls: mode=660; mtree ends with 0 
own list: mtree ends with 0
bsdtar of it: ends with 0, names: \\M-C\\M-< a b c d e f part\\#1 ' ]
echo "as seen on 2026-11-30"
