#!/bin/bash
# Guess: Augeas reads the example of krb5.conf(5) of MIT Kerberos, `auth_to_local = RULE:[2:$1;$2](^.*;admin$)s/;admin$//`,
# and can write it. There, comments are lines that begin with "#" or ";". A ";" within a value belongs to it.
# Seen: its lens takes the first ";" for the start of a comment. The value is "RULE:[2:$1", without an error, and what follows
# is a comment below it. A tool that sets the rule cannot save the file: "saving failed".
# augeas-tools 1.15.0 of Debian sid, 2026-12-01. Needs root, mmdebstrap. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/augeas.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=augeas-tools sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W augeas-tools
configuration() {
    printf '[realms]\n EXAMPLE.ORG = {\n  kdc = kdc.example.org\n  auth_to_local = %s\n }\n' "$1" >"$root/etc/krb5.conf"
}
augeas() {
    chroot "$root" augtool -A --transform "Krb5.lns incl /etc/krb5.conf" "$@" 2>&1
}
{
    configuration 'RULE:[2:$1;$2](^.*;admin$)s/;admin$//'
    augeas print /files/etc/krb5.conf/realms/realm/auth_to_local
    configuration DEFAULT
    for rule in 'RULE:[1:$1]' 'RULE:[2:$1;$2](^.*;admin$)s/;admin$//'; do
        printf '%s\n' "set /files/etc/krb5.conf/realms/realm/auth_to_local '$rule'" save "print /augeas/files/etc/krb5.conf/error" |
            augeas | sed -n '/rror/p; /aved/p' | head -2
        grep auth_to_local "$root/etc/krb5.conf"
    done
} | tee "$work/seen"
[ "$(cat "$work/seen")" = '/files/etc/krb5.conf/realms/realm/auth_to_local = "RULE:[2:$1"
/files/etc/krb5.conf/realms/realm/auth_to_local/#comment = "$2](^.*;admin$)s/;admin$//"
Saved 1 file(s)
  auth_to_local = RULE:[1:$1]
error: Failed to execute command
saving failed (run '"'errors'"' for details)
  auth_to_local = RULE:[1:$1]' ]
echo "as seen on 2026-12-01"
