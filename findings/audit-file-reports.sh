#!/bin/bash
# Guess: `aureport --file` lists the files of each event, and `ausearch --format csv` writes CSV (RFC 4180), so a spreadsheet
# or Python's csv module reads it. A rename has two names.
# Seen: aureport lists one name of an event, the first. For a file that was created, removed or renamed that is the directory
# above it, so none of these files is in the report. In CSV a name with a comma is not quoted and becomes two columns, which
# moves all that follow. A rename has the old name only; `--format text` gives both.
# auditd 4.2.1 of Debian sid, 2026-12-01. Needs root, mmdebstrap, python3. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/audit.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=auditd sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W auditd
cat >"$work/records.py" <<'PYTHON'
def event(number, call, command, *paths):
    stamp = f"msg=audit({1796083200 + number}.123:{number}): "
    identity = " ".join(f"{name}=0" for name in "uid gid euid suid fsuid egid sgid fsgid".split())
    print(f"type=SYSCALL {stamp}arch=c000003e syscall={call} success=yes exit=0 a0=1 a1=2 a2=3 a3=4 items={len(paths)} ppid=1 pid=2 auid=0 {identity} tty=(none) ses=1 comm=\"{command}\" exe=\"/usr/bin/{command}\" subj=unconfined key=\"files\"")
    print(f'type=CWD {stamp}cwd="/srv"')
    for item, (kind, name) in enumerate(paths):
        mode = "040755" if kind == "PARENT" else "0100644"
        print(f'type=PATH {stamp}item={item} name="{name}" inode={item + 10} dev=fd:00 mode={mode} ouid=0 ogid=0 rdev=00:00 nametype={kind} cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0')

event(1, 257, "cat", ("NORMAL", "/srv/opened"))
event(2, 257, "cat", ("NORMAL", "/srv/with,comma"))
event(3, 257, "touch", ("PARENT", "/srv/"), ("CREATE", "/srv/created"))
event(4, 263, "rm", ("PARENT", "/srv/"), ("DELETE", "/srv/removed"))
event(5, 82, "mv", ("PARENT", "/srv/"), ("PARENT", "/srv/"), ("DELETE", "/srv/old"), ("CREATE", "/srv/new"))
PYTHON
python3 "$work/records.py" >"$root/root/audit.log"
{
    chroot "$root" aureport -if /root/audit.log --file | awk '/^[0-9]+\./ {print "aureport:", $4, $7}'
    chroot "$root" ausearch -if /root/audit.log --format csv >"$work/events.csv"
    python3 -c '
import csv, sys
for row in csv.DictReader(sys.stdin):
    print("csv:", row["ACTION"], row["OBJ_PRIME"], row["OBJ_KIND"], row["HOW"], row.get(None, []))
' <"$work/events.csv"
    chroot "$root" ausearch -if /root/audit.log --format text | grep -o 'renamed.* using'
} | tee "$work/seen"
[ "$(cat "$work/seen")" = "aureport: /srv/opened /usr/bin/cat
aureport: /srv/with,comma /usr/bin/cat
aureport: /srv/ /usr/bin/touch
aureport: /srv/ /usr/bin/rm
aureport: /srv/ /usr/bin/mv
csv: opened-file /srv/opened file /usr/bin/cat []
csv: opened-file /srv/with 10 file ['/usr/bin/cat']
csv: opened-file /srv/created file /usr/bin/touch []
csv: deleted /srv/removed file /usr/bin/rm []
csv: renamed /srv/old file /usr/bin/mv []
renamed /srv/old to /srv/new using" ]
echo "as seen on 2026-12-01"
