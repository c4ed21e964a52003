#!/bin/bash
# Guess: the readers of witness policies agree on comments. C2SP tlog-policy, like Sigsum's format, knows
# only whole lines that start with "#", so `quorum w  # ours` is an error and `w#1` is a name.
# Seen: torchwood and Tessera's `formats` cut each line at the first "#": they take the remark at the end
# of a line, and refuse the witness `w#1` as incomplete. sigsum-go does the opposite in both cases.
# filippo.io/torchwood 0.10.0, transparency-dev/formats 0.1.1, sigsum.org/sigsum-go 1.0.0, 2026-11-28.
# Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/comment.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"crypto/ed25519"
	"fmt"
	"strings"

	"filippo.io/torchwood"
	"github.com/transparency-dev/formats/witness"
	"sigsum.org/sigsum-go/pkg/policy"
)

func main() {
	secret := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	signer, err := torchwood.NewCosignatureSigner("witness.example", secret)
	if err != nil {
		panic(err)
	}
	vkey, hex := signer.Verifier().String(), fmt.Sprintf("%x", []byte(secret.Public().(ed25519.PublicKey)))
	taken := func(err error) string {
		if err != nil {
			return "refused"
		}
		return "taken"
	}
	for _, text := range []string{
		"# ours\nwitness w KEY https://witness.example\nquorum w\n",
		"witness w KEY https://witness.example # ours\nquorum w\n",
		"witness w KEY https://witness.example\nquorum w # ours\n",
		"witness w#1 KEY https://witness.example\nquorum w#1\n",
	} {
		_, err1 := torchwood.ParsePolicy([]byte(strings.Replace(text, "KEY", vkey, 1)))
		_, err2 := witness.ParsePolicy([]byte(strings.Replace(text, "KEY", vkey, 1)))
		_, err3 := policy.ParseConfig(strings.NewReader(strings.Replace(text, "KEY", hex, 1)))
		fmt.Printf("%q: torchwood %s, formats %s, sigsum-go %s\n", text, taken(err1), taken(err2), taken(err3))
	}
}
GO
{ go mod init finding && go get filippo.io/torchwood@v0.10.0 github.com/transparency-dev/formats@v0.1.1 sigsum.org/sigsum-go@v1.0.0; } 2>go.log || { cat go.log; exit 1; }
go run . | tee seen
[ "$(sed 's/.*: torchwood/torchwood/' seen)" = "torchwood taken, formats taken, sigsum-go taken
torchwood taken, formats taken, sigsum-go refused
torchwood taken, formats taken, sigsum-go refused
torchwood refused, formats refused, sigsum-go taken" ]
echo "as seen on 2026-11-28"
