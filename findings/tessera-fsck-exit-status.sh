#!/bin/bash
# Guess: Tessera's fsck ends with a status other than 0 when it finds a fault, as fsck(8) and `git fsck`
# do, so that a script or a timer can use it.
# Seen: it prints "fsck failed: …" and ends with 0, for a wrong tile as for entries that are gone. A check
# must look for "Successfully fsck'd log" in what it prints.
# github.com/transparency-dev/tessera/cmd/fsck 1.0.4, 2026-11-28. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/fsck.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"crypto/rand"
	"os"

	"golang.org/x/mod/sumdb/note"
)

func main() {
	secret, public, _ := note.GenerateKey(rand.Reader, "log.example")
	os.WriteFile("key", []byte(secret), 0o600)
	os.WriteFile("key.pub", []byte(public), 0o644)
}
GO
{ go mod init finding && go get github.com/transparency-dev/tessera/cmd/fsck@v1.0.4 github.com/transparency-dev/tessera/cmd/examples/posix-oneshot@v1.0.4 &&
    go build -o . github.com/transparency-dev/tessera/cmd/fsck github.com/transparency-dev/tessera/cmd/examples/posix-oneshot && go run .; } 2>go.log || { cat go.log; exit 1; }
mkdir entries
for number in 1 2 3; do echo "entry $number" >entries/$number; done
./posix-oneshot --private_key key --storage_dir whole --entries 'entries/*' 2>posix.log
cp -a whole wrong
cp -a whole short
printf '\1' | dd of=wrong/tile/0/000.p/3 bs=1 conv=notrunc 2>/dev/null
rm -r short/tile/entries
for log in whole wrong short; do
    ./fsck --ui=false --storage_url "file://$work/$log/" --public_key key.pub >said 2>&1 && status=0 || status=$?
    echo "$log: status $status, $(grep -oE "Successfully fsck'd|fsck failed" said | head -n 1)"
done | tee seen
[ "$(cat seen)" = "whole: status 0, Successfully fsck'd
wrong: status 0, fsck failed
short: status 0, fsck failed" ]
echo "as seen on 2026-11-28"
