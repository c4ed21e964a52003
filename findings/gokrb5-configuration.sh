#!/bin/bash
# Guess: gokrb5 reads each krb5.conf that is valid for MIT Kerberos, "the same krb5.conf configuration file format" (its
# USAGE.md), or ends with an error. krb5.conf(5) has `include`, families of encryption types such as `aes`, and
# `dns_canonicalize_hostname = fallback`.
# Seen: a file with that value, with the boolean `on` or with the list "17, 16, 15, 14" of preferred_preauth_types is refused, so
# no client starts. Other lines lose their meaning without an error. `include` is skipped. `default_tkt_enctypes = aes`
# makes a request without any encryption type. A second section [realms] replaces the first. Quotes stay in the value.
# github.com/jcmturner/gokrb5 8.4.4, 2026-12-01. Needs Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/gokrb5.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

func main() {
	os.WriteFile("part.conf", []byte("[libdefaults]\n default_realm = EXAMPLE.COM\n"), 0o644)
	directory, _ := os.Getwd()
	for _, text := range []string{
		"[libdefaults]\n default_realm = EXAMPLE.COM\n",
		"include " + directory + "/part.conf\n",
		"[libdefaults]\n default_realm = \"EXAMPLE.COM\"\n",
		"[libdefaults]\n dns_canonicalize_hostname = fallback\n",
		"[libdefaults]\n forwardable = on\n",
		"[libdefaults]\n preferred_preauth_types = 17, 16, 15, 14\n",
		"[libdefaults]\n default_tkt_enctypes = aes256-sha2 aes256-sha1\n",
		"[libdefaults]\n default_tkt_enctypes = aes\n",
		"[realms]\n A = {\n  kdc = a\n }\n[libdefaults]\n default_realm = A\n[realms]\n B = {\n  kdc = b\n }\n",
	} {
		loaded, err := config.NewFromString(text)
		if err != nil {
			fmt.Println("refused:", err)
			continue
		}
		request, err := messages.NewASReqForTGT("EXAMPLE.COM", loaded, types.NewPrincipalName(1, "user"))
		if err != nil {
			panic(err)
		}
		realms := ""
		for _, realm := range loaded.Realms {
			realms += realm.Realm
		}
		fmt.Printf("realm %q, realms %q, %d encryption types\n", loaded.LibDefaults.DefaultRealm, realms, len(request.ReqBody.EType))
	}
}
GO
{ go mod init finding && go get github.com/jcmturner/gokrb5/v8@v8.4.4; } 2>go.log || { cat go.log; exit 1; }
go run . 2>build.log | sed 's/.*libdefaults section line/refused:/' | tee seen
[ "$(cat seen)" = 'realm "EXAMPLE.COM", realms "", 3 encryption types
realm "", realms "", 3 encryption types
realm "\"EXAMPLE.COM\"", realms "", 3 encryption types
refused: (dns_canonicalize_hostname = fallback): invalid boolean value
refused: (forwardable = on): invalid boolean value
refused: (preferred_preauth_types = 17, 16, 15, 14): strconv.ParseInt: parsing " 16": invalid syntax
realm "", realms "", 2 encryption types
realm "", realms "", 0 encryption types
realm "A", realms "B", 3 encryption types' ] || { cat build.log; exit 1; }
echo "as seen on 2026-12-01"
