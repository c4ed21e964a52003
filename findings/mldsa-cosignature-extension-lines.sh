#!/bin/bash
# Guess: an ML-DSA-44 cosignature over a checkpoint with an extension line is valid in both Go libraries
# or in none. C2SP tlog-cosignature says that the line is not signed and that logs SHOULD have none.
# Seen: Tessera's `formats` makes and verifies it. torchwood takes the same cosignature for a false one,
# and note.Open then refuses the whole note, although the log's own Ed25519 signature is valid. Users of
# torchwood who trust this witness cannot read a log with extension lines.
# filippo.io/torchwood 0.10.0, transparency-dev/formats 0.1.1, 2026-11-28. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/extension.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"crypto/rand"
	"fmt"

	"filippo.io/torchwood"
	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	secret, vkey, _ := note.GenerateKey(rand.Reader, "log.example")
	log := must(note.NewSigner(secret))
	secret, witness, _ := formats.GenerateMLDSAKey("witness.example")
	cosigner := must(formats.NewMLDSASigner(secret))
	for _, extension := range []string{"", "an extension line\n"} {
		text := fmt.Sprintf("log.example\n1\n%s\n%s", tlog.RecordHash(nil), extension)
		signed := must(note.Sign(&note.Note{Text: text}, log, cosigner))
		own := must(note.NewVerifier(vkey))
		opens := func(verifiers ...note.Verifier) string {
			opened, err := note.Open(signed, note.VerifierList(verifiers...))
			if err != nil {
				return "refused"
			}
			return fmt.Sprintf("%d verified", len(opened.Sigs))
		}
		fmt.Printf("extension %q: log's key alone: %s; with the witness by formats: %s; by torchwood: %s\n", extension, opens(own),
			opens(own, must(formats.NewMLDSAVerifier(witness))), opens(own, must(torchwood.NewCosignatureVerifier(witness))))
	}
}
GO
{ go mod init finding && go get filippo.io/torchwood@v0.10.0 github.com/transparency-dev/formats@v0.1.1; } 2>go.log || { cat go.log; exit 1; }
go run . | tee seen
[ "$(cat seen)" = 'extension "": log'"'"'s key alone: 1 verified; with the witness by formats: 2 verified; by torchwood: 2 verified
extension "an extension line\n": log'"'"'s key alone: 1 verified; with the witness by formats: 2 verified; by torchwood: refused' ]
echo "as seen on 2026-11-28"
