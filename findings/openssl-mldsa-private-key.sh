#!/bin/bash
# Guess: the private key that `openssl genpkey -algorithm ML-DSA-44` writes can be read by other libraries
# that sign with ML-DSA: PKCS#8 (RFC 9881) has three forms of it, and readers know all of them.
# Seen: OpenSSL writes the form with seed and expanded key. Go, RustCrypto's `ml-dsa` and Python's
# `cryptography` take the form with the seed alone: `-provparam ml-dsa.output_formats=seed-only`, or
# `openssl pkey` with the same option for keys that exist. Go's error says so, the two others call the key
# malformed. OpenSSL reads theirs.
# OpenSSL 3.6.5 of Debian sid, Go 1.27.0, ml-dsa 0.1.2, cryptography 50.0.2, 2026-11-28. Needs root,
# mmdebstrap, Go, Cargo, python3. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/mldsa.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${OPENSSL_ROOT:-}" ]; then root=$OPENSSL_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=openssl sid "$root" "deb $mirror sid main"
fi
export GOTOOLCHAIN=go1.27.0 GOWORK=off CARGO_TARGET_DIR=$work/target
cd "$work"
chroot "$root" openssl version
chroot "$root" openssl genpkey -algorithm ML-DSA-44 >default.pem
chroot "$root" openssl genpkey -algorithm ML-DSA-44 -provparam ml-dsa.output_formats=seed-only >seed-only.pem
chroot "$root" openssl pkey -provparam ml-dsa.output_formats=seed-only <default.pem >converted.pem
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check cryptography==50.0.2
cat >read.py <<'PYTHON'
import sys
from cryptography.hazmat.primitives.serialization import load_pem_private_key
try:
    load_pem_private_key(sys.stdin.buffer.read(), None)
    print("yes")
except ValueError:
    print("no")
PYTHON
mkdir -p src go
cat >go/main.go <<'GO'
package main

import (
	"crypto/mldsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		key, _ := mldsa.GenerateKey(mldsa.MLDSA44())
		der, _ := x509.MarshalPKCS8PrivateKey(key)
		pem.Encode(os.Stdout, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
		return
	}
	text, _ := io.ReadAll(os.Stdin)
	block, _ := pem.Decode(text)
	if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
		fmt.Println("no")
		fmt.Fprintln(os.Stderr, err)
	} else {
		fmt.Println("yes")
	}
}
GO
(cd go && go mod init finding 2>/dev/null && go build -o ../read .)
cat >Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.1.0"
edition = "2021"
[dependencies]
ml-dsa = { version = "=0.1.2", features = ["alloc", "pkcs8"] }
pkcs8 = { version = "0.11", features = ["alloc", "pem"] }
[workspace]
TOML
cat >src/main.rs <<'RUST'
use pkcs8::DecodePrivateKey;
fn main() {
    let text = std::io::read_to_string(std::io::stdin()).unwrap();
    let key = ml_dsa::SigningKey::<ml_dsa::MlDsa44>::from_pkcs8_pem(&text);
    println!("{}", if key.is_ok() { "yes" } else { "no" });
}
RUST
cargo build -q
./read write >go.pem
for form in default seed-only converted go; do
    openssl=$(chroot "$root" openssl pkey -noout <$form.pem && echo yes)
    echo "$form: OpenSSL $openssl, Go $(./read <$form.pem), ml-dsa $(target/debug/finding <$form.pem), cryptography $(python/bin/python read.py <$form.pem)"
done | tee seen
[ "$(cat seen)" = "default: OpenSSL yes, Go no, ml-dsa no, cryptography no
seed-only: OpenSSL yes, Go yes, ml-dsa yes, cryptography yes
converted: OpenSSL yes, Go yes, ml-dsa yes, cryptography yes
go: OpenSSL yes, Go yes, ml-dsa yes, cryptography yes" ]
echo "as seen on 2026-11-28"
