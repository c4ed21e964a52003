#!/bin/bash
# Guess: auparse of go-libaudit, the parser of Auditbeat, reads each line of auditd's own log. With `log_format = ENRICHED`, the
# value in the auditd.conf of Debian, auditd adds the byte 0x1D and names of users to a line. The kernel writes a long argument of a
# command in parts, a1[0] and a1[1], and a command name with a space in hexadecimal digits.
# Seen: the added text becomes a part of the last field. A LOGIN with res=1 so gets the result "fail", where the raw line gets
# "success"; CONFIG_CHANGE too. A record EXECVE with parts gives an error and no argument at all.
# `comm` stays in digits, while `exe` is decoded.
# github.com/elastic/go-libaudit 2.6.2, 2026-12-01. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/audit.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"fmt"

	"github.com/elastic/go-libaudit/v2/auparse"
)

func main() {
	const stamp = " msg=audit(1796083200.123:101): "
	const call = "type=SYSCALL" + stamp + "arch=c000003e syscall=257 success=yes exit=3 a0=ffffff9c a1=7ffd a2=0 a3=0 items=1 ppid=1 pid=2 auid=1000 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=(none) ses=1 "
	const login = "type=LOGIN" + stamp + "pid=1 uid=0 subj=unconfined old-auid=4294967295 auid=1000 tty=(none) old-ses=4294967295 ses=1 res=1"
	const change = "type=CONFIG_CHANGE" + stamp + "auid=1000 ses=1 op=add_rule key=\"files\" list=4 res=1"
	for _, line := range []string{
		login,
		login + "\x1dUID=\"root\" OLD-AUID=\"unset\" AUID=\"user\"",
		change,
		change + "\x1dAUID=\"user\"",
		call + "comm=\"cat\" exe=\"/usr/bin/cat\" subj=unconfined key=\"files\"",
		call + "comm=\"cat\" exe=\"/usr/bin/cat\" subj=unconfined key=\"files\"\x1dARCH=x86_64 SYSCALL=openat AUID=\"user\"",
		call + "comm=612062 exe=2F7372762F612062 subj=unconfined key=\"files\"",
		"type=EXECVE" + stamp + "argc=2 a0=\"cat\" a1=2F7372762F612062",
		"type=EXECVE" + stamp + "argc=2 a0=\"cat\" a1_len=32 a1[0]=2F7372762F612062 a1[1]=2F7372762F612062",
	} {
		message, err := auparse.ParseLogLine(line)
		if err != nil {
			panic(err)
		}
		fields, err := message.Data()
		shown := map[string]string{}
		for _, name := range []string{"result", "comm", "exe", "a1"} {
			if value, found := fields[name]; found && (name != "a1" || value != "7ffd") {
				shown[name] = value
			}
		}
		tags, _ := message.Tags()
		fmt.Printf("%s %q %q %v\n", message.RecordType, shown, tags, err)
	}
}
GO
{ go mod init finding && go get github.com/elastic/go-libaudit/v2@v2.6.2; } 2>go.log || { cat go.log; exit 1; }
go run . 2>build.log | tee seen
[ "$(cat seen)" = 'LOGIN map["result":"success"] [] <nil>
LOGIN map["result":"fail"] [] <nil>
CONFIG_CHANGE map["result":"success"] ["files"] <nil>
CONFIG_CHANGE map["result":"fail"] ["files"] <nil>
SYSCALL map["comm":"cat" "exe":"/usr/bin/cat" "result":"success"] ["files"] <nil>
SYSCALL map["comm":"cat" "exe":"/usr/bin/cat" "result":"success"] ["files"] <nil>
SYSCALL map["comm":"612062" "exe":"/srv/a b" "result":"success"] ["files"] <nil>
EXECVE map["a1":"/srv/a b"] [] <nil>
EXECVE map[] [] failed to find arg a1' ] || { cat build.log; exit 1; }
echo "as seen on 2026-12-01"
