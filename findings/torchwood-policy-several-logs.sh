#!/bin/bash
# Guess: a policy file with two `log` lines accepts a checkpoint of either log: "a checkpoint is
# considered valid if it is signed by any one of the listed logs" (C2SP tlog-policy). A second line serves
# for a move to a new log.
# Seen: torchwood wants the signatures of all listed logs, each with its own origin line, so a policy with
# two logs accepts no checkpoint at all: "only 1/2 policy components satisfied". With one log it accepts.
# The parsers of Tessera's `formats` (which skips `log` lines) and of sigsum-go take the two lines.
# filippo.io/torchwood 0.10.0, transparency-dev/formats 0.1.1, 2026-11-28. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/policy.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"

	"filippo.io/torchwood"
	"github.com/transparency-dev/formats/witness"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	leaf := tlog.RecordHash([]byte("entry"))
	oldSecret, oldKey, _ := note.GenerateKey(rand.Reader, "old.example/log")
	newSecret, newKey, _ := note.GenerateKey(rand.Reader, "new.example/log")
	_, secret, _ := ed25519.GenerateKey(rand.Reader)
	cosigner, _ := torchwood.NewCosignatureSigner("witness.example", secret)
	checkpoint := func(origin, secret string) []byte {
		signer, _ := note.NewSigner(secret)
		signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n1\n%s\n", origin, leaf)}, signer, cosigner)
		if err != nil {
			panic(err)
		}
		return signed
	}
	both := [][]byte{checkpoint("old.example/log", oldSecret), checkpoint("new.example/log", newSecret)}
	end := fmt.Sprintf("witness w %s https://witness.example\nquorum w\n", cosigner.Verifier())
	for _, logs := range []string{"log " + oldKey + "\n", "log " + newKey + "\n", "log " + oldKey + "\nlog " + newKey + "\n"} {
		policy, err := torchwood.ParsePolicy([]byte(logs + end))
		if err != nil {
			panic(err)
		}
		group, err := witness.ParsePolicy([]byte(logs + end))
		if err != nil {
			panic(err)
		}
		_, _, errOld := torchwood.VerifyCheckpoint(both[0], policy)
		_, _, errNew := torchwood.VerifyCheckpoint(both[1], policy)
		fmt.Printf("torchwood: old log %v, new log %v; formats: %v, %v\n", errOld, errNew, group.Satisfied(both[0]), group.Satisfied(both[1]))
	}
}
GO
go mod init finding 2>go.log && go get filippo.io/torchwood@v0.10.0 github.com/transparency-dev/formats@v0.1.1 2>>go.log || { cat go.log; exit 1; }
go run . | tee seen
failed='note verification failed: only'
[ "$(cat seen)" = "torchwood: old log <nil>, new log $failed 1/2 policy components satisfied; formats: true, true
torchwood: old log $failed 1/2 policy components satisfied, new log <nil>; formats: true, true
torchwood: old log $failed 1/2 policy components satisfied, new log $failed 1/2 policy components satisfied; formats: true, true" ]
echo "as seen on 2026-11-28"
