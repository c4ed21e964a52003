#!/bin/bash
# Guess: a .tlog-proof whose `extra` line holds 48 KiB is read by both Go libraries: C2SP tlog-proof sets
# no limit, and `extra` may hold "additional data necessary to reconstruct the record".
# Seen: torchwood reads it (1 MiB too). Tessera's `formats` reads lines up to 64 KiB in base64; a longer
# one ends its scanner without an error of its own: "tlog proof missing required index", though the index
# line is there.
# filippo.io/torchwood 0.10.0, transparency-dev/formats 0.1.1, 2026-11-28. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/proof.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"crypto/rand"
	"fmt"

	"filippo.io/torchwood"
	"github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	leaf := tlog.RecordHash([]byte("entry"))
	secret, vkey, _ := note.GenerateKey(rand.Reader, "log.example")
	signer, _ := note.NewSigner(secret)
	checkpoint, err := note.Sign(&note.Note{Text: fmt.Sprintf("log.example\n1\n%s\n", leaf)}, signer)
	if err != nil {
		panic(err)
	}
	policy, err := torchwood.ParsePolicy([]byte("log " + vkey + "\nquorum none\n"))
	if err != nil {
		panic(err)
	}
	for _, length := range []int{1000, 48 << 10, 1 << 20} {
		text := torchwood.FormatProofWithExtraData(0, make([]byte, length), nil, checkpoint)
		var parsed proof.TLogProof
		fmt.Printf("%d bytes: torchwood %v; formats %v\n", length, torchwood.VerifyProof(policy, leaf, text), parsed.Unmarshal(text))
	}
}
GO
{ go mod init finding && go get filippo.io/torchwood@v0.10.0 github.com/transparency-dev/formats@v0.1.1; } 2>go.log || { cat go.log; exit 1; }
go run . | tee seen
[ "$(cat seen)" = "1000 bytes: torchwood <nil>; formats <nil>
49152 bytes: torchwood <nil>; formats tlog proof missing required index
1048576 bytes: torchwood <nil>; formats tlog proof missing required index" ]
echo "as seen on 2026-11-28"
