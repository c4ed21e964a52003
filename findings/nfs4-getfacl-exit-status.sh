#!/bin/bash
# Guess: nfs4_getfacl ends with a status other than 0 if it can't show the ACL of a file, as getfacl(1) and
# nfs4_setfacl do, so that a script can save ACLs with it.
# Seen: it ends with 0 for a file that is not there, for a file system without NFSv4 ACLs, and for a list in
# which one file of several is missing. It only prints a line to standard error. nfs4_setfacl ends with 1.
# nfs4-acl-tools 0.4.2 of Debian sid, 2026-11-30. Needs root, mmdebstrap. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/nfs4acl.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${NFS4ACL_ROOT:-}" ]; then root=$NFS4ACL_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=nfs4-acl-tools,acl sid "$root" "deb $mirror sid main"
fi
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' nfs4-acl-tools acl
chroot "$root" bash -s <<'INNER' | tee "$work/seen"
for command in "getfacl /missing" "nfs4_getfacl /missing" "nfs4_getfacl /etc/passwd" "nfs4_getfacl --dacl /etc/passwd" \
    "nfs4_getfacl /etc/passwd /missing" "nfs4_setfacl -a A::EVERYONE@:r /etc/passwd" "nfs4_setfacl -a A::EVERYONE@:r /missing"; do
    status=0
    said=$($command 2>&1 >/dev/null) || status=$?
    echo "$command: $status, lines of errors: $(echo "$said" | grep -c .)"
done
INNER
[ "$(cat "$work/seen")" = "getfacl /missing: 1, lines of errors: 1
nfs4_getfacl /missing: 0, lines of errors: 1
nfs4_getfacl /etc/passwd: 0, lines of errors: 1
nfs4_getfacl --dacl /etc/passwd: 0, lines of errors: 1
nfs4_getfacl /etc/passwd /missing: 0, lines of errors: 2
nfs4_setfacl -a A::EVERYONE@:r /etc/passwd: 1, lines of errors: 1
nfs4_setfacl -a A::EVERYONE@:r /missing: 1, lines of errors: 1" ]
echo "as seen on 2026-11-30"
