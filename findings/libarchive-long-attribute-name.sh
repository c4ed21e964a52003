#!/bin/bash
# Guess: bsdtar restores each extended attribute that GNU tar stored with --xattrs; Linux allows names of 255
# bytes. Samba's streams_xattr makes long names, user.DosStream.NAME:$DATA, of the names of streams.
# Seen: an attribute whose name has 200 bytes is left out; 120 bytes pass. bsdtar says no more than "(null)" and
# ends with 1, also for `bsdtar -tf`. mke2fs -d, which reads archives by the same libarchive, makes no file
# system: "cannot read archive header: (null)". GNU tar restores the attribute.
# libarchive 3.8.10, e2fsprogs 1.47.4, tar 1.35 of Debian sid, 2026-11-30. Needs root, mmdebstrap, and
# extended attributes in /var/tmp. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/attr.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${ATTR_ROOT:-}" ]; then root=$ATTR_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=libarchive-tools,e2fsprogs,attr sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' libarchive-tools e2fsprogs tar
cat >"$work/inner" <<'INNER'
set -u
mkdir "$1"; cd "$1"
for length in 64 120 200; do
    mkdir files gnu bsd; echo x >files/x
    setfattr -n user.DosStream.short:'$DATA' -v short files/x
    setfattr -n "user.DosStream.$(printf "%0$((length - 21))d" 0):\$DATA" -v long files/x
    tar -C files --format=pax --xattrs -cf tar .
    tar -C gnu --xattrs -xpf tar
    bsdtar -tf tar >/dev/null 2>said; listed="$? $(head -n 1 said)"
    bsdtar -C bsd --xattrs -xpf tar 2>/dev/null; status=$?
    truncate -s 20M ext4; mke2fs -q -F -d tar ext4 >said 2>&1; made="$? $(sed -n 's/.*\(cannot read .*\)/\1/p' said)"
    count() { getfattr --absolute-names -d -m user "$1/x" | grep -c DosStream; }
    echo "$length bytes: tar restores $(count gnu), bsdtar restores $(count bsd) and ends with $status; bsdtar -t $listed; mke2fs -d $made"
    rm -r files gnu bsd
done
cd /; rm -r "$1"
INNER
chroot "$root" bash -s /srv/attr <"$work/inner" | sed 's/ *;/;/g; s/ *$//' | tee "$work/seen"
[ "$(cat "$work/seen")" = '64 bytes: tar restores 2, bsdtar restores 2 and ends with 0; bsdtar -t 0; mke2fs -d 0
120 bytes: tar restores 2, bsdtar restores 2 and ends with 0; bsdtar -t 0; mke2fs -d 0
200 bytes: tar restores 2, bsdtar restores 1 and ends with 1; bsdtar -t 1 bsdtar: (null); mke2fs -d 1 cannot read archive header: "(null)"' ]
echo "as seen on 2026-11-30"
