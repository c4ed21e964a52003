#!/bin/bash
# Guess: minikerberos and its fork kerbad read each entry of a keytab that klist(1) shows, also after `ktremove` of kadmin has
# taken a principal out. MIT Kerberos marks the place of a removed entry with a negative length, and readers skip it.
# Seen: both stop at the first removed entry and give the entries before it, without an error. The entries after it are
# missing. impacket and gokrb5 read all of them.
# minikerberos 0.4.9, kerbad 0.5.12, impacket 0.13.1 of PyPI, gokrb5 8.4.4, 2026-12-01. Needs kadmin.local and kdb5_util of MIT
# Kerberos, klist, python3, Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/keytab.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export KRB5_CONFIG=$work/krb5.conf KRB5_KDC_PROFILE=$work/kdc.conf GOFLAGS=-mod=mod GOWORK=off
printf '[libdefaults]\ndefault_realm = EXAMPLE.ORG\n' >krb5.conf
printf '[realms]\nEXAMPLE.ORG = {\ndatabase_name = %s/principal\nkey_stash_file = %s/stash\nsupported_enctypes = aes256-cts:normal\n}\n' "$work" "$work" >kdc.conf
kdb5_util create -s -P password -r EXAMPLE.ORG >/dev/null
for name in a b c; do
    kadmin.local addprinc -randkey nfs/$name.example.org >/dev/null 2>&1
    kadmin.local ktadd -k "$work/keytab" nfs/$name.example.org >/dev/null
done
kadmin.local ktremove -k "$work/keytab" nfs/b.example.org all >/dev/null
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check minikerberos==0.4.9 kerbad==0.5.12 impacket==0.13.1
cat >read.py <<'PYTHON'
import importlib

from impacket.krb5.keytab import Keytab

with open("keytab", "rb") as file:
    data = file.read()

def text(value):
    value = getattr(value, "data", value)
    return value.decode() if isinstance(value, bytes) else value

for library in "minikerberos", "kerbad":
    keytab = importlib.import_module(f"{library}.common.keytab").Keytab.from_bytes(data)
    print(f"{library}:", *("/".join(str(text(part)) for part in entry.principal.components) for entry in keytab.entries))
names = [entry.main_part["principal"].prettyPrint().decode().split("@")[0] for entry in Keytab(data).entries if not entry.deleted]
print("impacket:", *names)
PYTHON
mkdir go
cat >go/main.go <<'GO'
package main

import (
	"fmt"

	"github.com/jcmturner/gokrb5/v8/keytab"
)

func main() {
	read, err := keytab.Load("keytab")
	if err != nil {
		panic(err)
	}
	fmt.Print("gokrb5:")
	for _, entry := range read.Entries {
		fmt.Printf(" %s/%s", entry.Principal.Components[0], entry.Principal.Components[1])
	}
	fmt.Println()
}
GO
(cd go && go mod init finding && go get github.com/jcmturner/gokrb5/v8@v8.4.4 && go build -o ../read .) >go.log 2>&1 || { cat go.log; exit 1; }
{
    echo "klist:" $(klist -k keytab | sed -n 's/^ *[0-9]* \(nfs.*\)@.*/\1/p')
    python/bin/python read.py
    ./read
} | tee seen
[ "$(cat seen)" = "klist: nfs/a.example.org nfs/c.example.org
minikerberos: nfs/a.example.org
kerbad: nfs/a.example.org
impacket: nfs/a.example.org nfs/c.example.org
gokrb5: nfs/a.example.org nfs/c.example.org" ]
echo "as seen on 2026-12-01"
