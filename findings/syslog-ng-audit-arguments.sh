#!/bin/bash
# Guess: linux-audit-parser() of syslog-ng gives the fields of auditd's records as they are, and names that the kernel wrote in
# hexadecimal digits as text, as ausearch --interpret does. The arguments a0 to a3 of a SYSCALL are numbers, in such digits too.
# Seen: it takes the numbers of a SYSCALL for names, as it takes a0 and a1 of an EXECVE. The size of a read of 4096 bytes (a2=1000)
# becomes the byte 0x10 and a tab, and 32 (a3=20) becomes a space, while 4141 stays. Of the real names, `comm` and `name`
# are decoded; `cwd`, `exe` and `key` stay in digits. The parts of a long argument, a1[0] and a1[1], become a part of the
# field before them. No record gives an error.
# syslog-ng 4.12.0 of Debian sid, 2026-12-01. Needs root, mmdebstrap. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/audit.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=syslog-ng-core sid "$root" "deb $mirror sid main"
chroot "$root" dpkg-query -W syslog-ng-core
cat >"$root/srv/conf" <<'CONF'
@version: current
source records { file("/srv/audit.log" flags(no-parse)); };
parser audit { linux-audit-parser(prefix("audit.")); };
destination seen { file("/srv/seen" template("$(format-json --scope none --rekey audit.* --shift 6 --key audit.* --exclude audit.msg)\n")); };
log { source(records); parser(audit); destination(seen); };
CONF
cat >"$root/srv/audit.log" <<'LOG'
type=SYSCALL msg=audit(1796083200.123:101): arch=c000003e syscall=0 success=yes exit=32 a0=3 a1=7ffd a2=1000 a3=20 comm="cat" exe="/srv/cat" key="files"
type=SYSCALL msg=audit(1796083200.123:102): arch=c000003e syscall=0 success=yes exit=32 a0=3 a1=7ffd a2=4141 a3=a0 comm=612062 exe=2F7372762F612062 key=612062
type=CWD msg=audit(1796083200.123:102): cwd=2F7372762F612062
type=PATH msg=audit(1796083200.123:102): item=0 name=2F7372762F612062 inode=1 nametype=NORMAL
type=EXECVE msg=audit(1796083200.123:103): argc=2 a0="cat" a1=2F7372762F612062
type=EXECVE msg=audit(1796083200.123:104): argc=2 a0="cat" a1_len=16 a1[0]=2F737276 a1[1]=2F612062
LOG
timeout -k 5 60 chroot "$root" syslog-ng --foreground --no-caps --cfgfile /srv/conf --persist-file /srv/persist --control /srv/control --pidfile /srv/pid 2>"$work/log" &
for _ in $(seq 100); do
    [ "$(cat "$root/srv/seen" 2>/dev/null | wc -l)" = 6 ] && break
    sleep 0.2
done
kill $! || true
wait || true
tee "$work/seen" <"$root/srv/seen"
[ "$(cat "$work/seen")" = '{"type":"SYSCALL","syscall":"0","success":"yes","key":"files","exit":"32","exe":"/srv/cat","comm":"cat","arch":"c000003e","a3":" ","a2":"\u0010\t","a1":"7ffd","a0":"3"}
{"type":"SYSCALL","syscall":"0","success":"yes","key":"612062","exit":"32","exe":"2F7372762F612062","comm":"a b","arch":"c000003e","a3":"a0","a2":"4141","a1":"7ffd","a0":"3"}
{"type":"CWD","cwd":"2F7372762F612062"}
{"type":"PATH","nametype":"NORMAL","name":"/srv/a b","item":"0","inode":"1"}
{"type":"EXECVE","argc":"2","a1":"/srv/a b","a0":"cat"}
{"type":"EXECVE","argc":"2","a1_len":"16 a1[0]=2F737276 a1[1]=2F612062","a0":"cat"}' ] || { cat "$work/log"; exit 1; }
echo "as seen on 2026-12-01"
