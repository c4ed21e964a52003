#!/bin/bash
# Guess: litewitness cosigns a checkpoint that already carries four ML-DSA-44 cosignatures of other
# witnesses. A log sends such a checkpoint if it asks its witnesses one after another. C2SP signed-note: readers "MUST
# accept at least up to 16 signatures. Remember that post-quantum signatures can be up to nearly 5kB in
# size."
# Seen: a request of more than 10 KiB gets 500 "http: request body too large", not 413 or 400, so a client
# that retries server errors repeats it for ever. Three such cosignatures of 3.2 kB pass, four do not.
# filippo.io/torchwood/cmd/litewitness 0.10.0, 2026-11-28. Needs Go, ssh-agent. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/litewitness.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/mldsa"
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

type log struct{ key ed25519.PrivateKey }

func (log) Name() string                      { return "log.example" }
func (l log) Verifier() note.Verifier         { return must(note.NewVerifier(must(note.NewEd25519VerifierKey("log.example", l.key.Public().(ed25519.PublicKey))))) }
func (l log) KeyHash() uint32                 { return l.Verifier().KeyHash() }
func (l log) Sign(text []byte) ([]byte, error) { return ed25519.Sign(l.key, text), nil }

func main() {
	own := log{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	if len(os.Args) == 1 {
		fmt.Println(must(note.NewEd25519VerifierKey("log.example", own.key.Public().(ed25519.PublicKey))))
		return
	}
	secret := must(mldsa.NewPrivateKey(mldsa.MLDSA44(), make([]byte, mldsa.PrivateKeySize)))
	root, old := tlog.RecordHash([]byte("entry")), 0
	for count := range 5 {
		signers := []note.Signer{own}
		for number := range count {
			signers = append(signers, must(torchwood.NewCosignatureSigner(fmt.Sprintf("witness%d.example", number), secret)))
		}
		signed := must(note.Sign(&note.Note{Text: fmt.Sprintf("log.example\n1\n%s\n", root)}, signers...))
		answer := must(http.Post(os.Args[1]+"/add-checkpoint", "", strings.NewReader(fmt.Sprintf("old %d\n\n%s", old, signed))))
		text := must(io.ReadAll(answer.Body))
		if cosignature := []byte("— this.example "); bytes.HasPrefix(text, cosignature) {
			text = []byte("a cosignature")
		}
		fmt.Printf("%d ML-DSA-44 cosignatures, %d bytes: %d %s\n", count, len(signed)+7, answer.StatusCode, bytes.TrimSpace(text))
		old = 1
	}
}
GO
{ go mod init finding && go get filippo.io/torchwood/cmd/litewitness@v0.10.0 filippo.io/torchwood/cmd/witnessctl@v0.10.0 &&
    go build -o . filippo.io/torchwood/cmd/litewitness filippo.io/torchwood/cmd/witnessctl && go build -o ask .; } 2>go.log || { cat go.log; exit 1; }
ssh-keygen -q -t ed25519 -N '' -f key
ssh-agent -D -a "$work/agent" >/dev/null &
./witnessctl add-log -db db -origin log.example 2>log
./witnessctl add-key -db db -origin log.example -key "$(./ask)" 2>>log
for step in $(seq 50); do [ ! -S agent ] || break; sleep 0.1; done
SSH_AUTH_SOCK=$work/agent ssh-add -q key
./litewitness -name this.example -db db -ssh-agent agent -key "$(ssh-keygen -lf key | awk '{print $2}')" -listen 127.0.0.1:27380 >>log 2>&1 &
for step in $(seq 100); do ! grep -q listening log || break; sleep 0.1; done
./ask http://127.0.0.1:27380 | tee seen
[ "$(sed 's/, .* bytes//' seen)" = "0 ML-DSA-44 cosignatures: 200 a cosignature
1 ML-DSA-44 cosignatures: 200 a cosignature
2 ML-DSA-44 cosignatures: 200 a cosignature
3 ML-DSA-44 cosignatures: 200 a cosignature
4 ML-DSA-44 cosignatures: 500 http: request body too large" ]
echo "as seen on 2026-11-28"
