#!/bin/bash
# Guess: Augeas, by which Puppet and other tools change configuration files, reads each line of /etc/exports that exports(5)
# describes. Its lens Exports is made for this file.
# Seen: it does not read default options after a dash, a quoted path with a space, an entry that continues after a
# backslash, and a comment at the end of a line. One of these lines hides the whole file: `print` shows nothing, augtool
# ends with 0, and the only sign is a node below /augeas.
# augeas-tools 1.15.0 of Debian sid, 2026-12-01. Needs root, mmdebstrap. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/augeas.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=augeas-tools sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W augeas-tools
read_file() {
    printf '/srv/first client.example.org(ro)\n%b\n' "$2" >"$root/etc/exports"
    chroot "$root" augtool -A --transform "Exports.lns incl /etc/exports" match /files/etc/exports/dir >"$work/entries"
    status=$?
    chroot "$root" augtool -A --transform "Exports.lns incl /etc/exports" get /augeas/files/etc/exports/error/line >"$work/line"
    echo "$1: $(grep -c '/dir' "$work/entries" || true) entries, status $status, error in line $(sed -n 's/.* = //p' "$work/line" | grep . || echo none)"
}
{
    read_file "two clients" '/srv/second 192.0.2.0/24(rw,sync) @group(ro)'
    read_file "IPv6" '/srv/second 2001:db8::/64(rw,sec=krb5p)'
    read_file "comment line" '# remark\n/srv/second 192.0.2.0/24(rw)'
    read_file "default options" '/srv/second -ro,sync 192.0.2.1 192.0.2.2(rw)'
    read_file "quoted path" '"/srv/with space" 192.0.2.0/24(rw)'
    read_file "continued entry" '/srv/second 192.0.2.1(rw) \\\n    192.0.2.2(rw)'
    read_file "comment at the end" '/srv/second 192.0.2.0/24(rw) # remark'
} | tee "$work/seen"
[ "$(cat "$work/seen")" = "two clients: 2 entries, status 0, error in line none
IPv6: 2 entries, status 0, error in line none
comment line: 2 entries, status 0, error in line none
default options: 0 entries, status 0, error in line 2
quoted path: 0 entries, status 0, error in line 2
continued entry: 0 entries, status 0, error in line 2
comment at the end: 0 entries, status 0, error in line 2" ]
echo "as seen on 2026-12-01"
