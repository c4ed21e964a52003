#!/bin/bash
# Guess: sigsum-witness cosigns a checkpoint that a log has signed with its old and its new Ed25519 key
# under one name, as during a change of keys. C2SP tlog-witness: "MUST ignore signatures from unknown
# keys", and tlog-checkpoint says that this "enables, for example, log key rotation".
# Seen: 400 "duplicate log signature on line 2: %!s(<nil>)", in either order. A second signature of the
# same name with ML-DSA-44 is ignored as it should be: only signatures of the length of Ed25519 are
# counted.
# sigsum.org/sigsum-go 1.0.0 (cmd/sigsum-witness), 2026-11-28. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/sigsum.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/mldsa"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

type log struct {
	name string
	key  ed25519.PrivateKey
}

func (l log) Name() string { return l.name }
func (l log) KeyHash() uint32 {
	return must(note.NewVerifier(must(note.NewEd25519VerifierKey(l.name, l.key.Public().(ed25519.PublicKey))))).KeyHash()
}
func (l log) Sign(text []byte) ([]byte, error) { return ed25519.Sign(l.key, text), nil }

func main() {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	if len(os.Args) == 1 {
		fmt.Printf("%x\n", []byte(key.Public().(ed25519.PublicKey)))
		return
	}
	name := fmt.Sprintf("sigsum.org/v1/tree/%x", sha256.Sum256(key.Public().(ed25519.PublicKey)))
	known := log{name, key}
	next := log{name, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))}
	lattice := must(torchwood.NewCosignatureSigner(name, must(mldsa.NewPrivateKey(mldsa.MLDSA44(), make([]byte, mldsa.PrivateKeySize)))))
	old := 0
	for _, try := range []struct {
		what    string
		signers []note.Signer
	}{
		{"known key", []note.Signer{known}}, {"known and next Ed25519 key", []note.Signer{known, next}},
		{"next and known Ed25519 key", []note.Signer{next, known}}, {"known key and ML-DSA-44", []note.Signer{known, lattice}},
	} {
		signed := must(note.Sign(&note.Note{Text: fmt.Sprintf("%s\n1\n%s\n", name, tlog.RecordHash([]byte("entry")))}, try.signers...))
		answer := must(http.Post(os.Args[1]+"/add-checkpoint", "", strings.NewReader(fmt.Sprintf("old %d\n\n%s", old, signed))))
		text := strings.TrimSpace(string(must(io.ReadAll(answer.Body))))
		if strings.HasPrefix(text, "— sigsum.org/v1/witness/") {
			text = "a cosignature"
		}
		fmt.Printf("%s: %d %s\n", try.what, answer.StatusCode, text)
		old = 1
	}
}
GO
{ go mod init finding && go get sigsum.org/sigsum-go/cmd/sigsum-witness@v1.0.0 sigsum.org/sigsum-go/cmd/sigsum-key@v1.0.0 filippo.io/torchwood@v0.10.0 &&
    go build -o . sigsum.org/sigsum-go/cmd/sigsum-witness sigsum.org/sigsum-go/cmd/sigsum-key && go build -o ask .; } 2>go.log || { cat go.log; exit 1; }
./sigsum-key generate -o key
./ask | ./sigsum-key from-hex -o log.pub
./sigsum-witness -k key --log-key log.pub --state-file state 127.0.0.1:27381 &
for step in $(seq 100); do ! (: </dev/tcp/127.0.0.1/27381) 2>/dev/null || break; sleep 0.1; done
./ask http://127.0.0.1:27381 | tee seen
refused='400 (400) duplicate log signature on line 2: %!s(<nil>)'
[ "$(cat seen)" = "known key: 200 a cosignature
known and next Ed25519 key: $refused
next and known Ed25519 key: $refused
known key and ML-DSA-44: 200 a cosignature" ]
echo "as seen on 2026-11-28"
