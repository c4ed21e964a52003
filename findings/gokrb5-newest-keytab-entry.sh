#!/bin/bash
# Guess: gokrb5 takes the key with the highest number of a keytab when it asks for a ticket: "If the kvno
# is zero then the latest kvno will be returned" (Keytab.GetEncryptionKey, which its AS exchange calls
# with 0).
# Seen: it takes the entry with the newest time stamp, and the first of those that were written in one
# second. A keytab into which an older key was merged later, or both keys at once, gives the old key,
# which the KDC no longer takes. MIT Kerberos compares the numbers.
# github.com/jcmturner/gokrb5 8.4.4, 2026-11-28. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/gokrb5.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"fmt"
	"time"

	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/types"
)

func main() {
	start := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		what  string
		later time.Duration // of key 1 after key 2
		first uint8
	}{{"key 2 is newer", -time.Hour, 1}, {"key 1 was merged later", time.Hour, 2}, {"both in one second, key 1 first", 0, 1}, {"both in one second, key 2 first", 0, 2}} {
		table := keytab.New()
		for _, number := range []uint8{test.first, 3 - test.first} {
			written := start
			if number == 1 {
				written = start.Add(test.later)
			}
			if err := table.AddEntry("nfs/server.example.com", "EXAMPLE.COM", fmt.Sprint("password", number), written, number, 18); err != nil {
				panic(err)
			}
		}
		_, number, err := table.GetEncryptionKey(types.NewPrincipalName(3, "nfs/server.example.com"), "EXAMPLE.COM", 0, 18)
		fmt.Println(test.what+":", number, err)
	}
}
GO
{ go mod init finding && go get github.com/jcmturner/gokrb5/v8@v8.4.4; } 2>go.log || { cat go.log; exit 1; }
go run . | tee seen
[ "$(cat seen)" = "key 2 is newer: 2 <nil>
key 1 was merged later: 1 <nil>
both in one second, key 1 first: 1 <nil>
both in one second, key 2 first: 2 <nil>" ]
echo "as seen on 2026-11-28"
