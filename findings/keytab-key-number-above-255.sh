#!/bin/bash
# Guess: readers of keytabs know the 32-bit key number that MIT Kerberos writes after the key since 1.4,
# and without which numbers above 255 are cut to 8 bits (keytab file format, "vno"). Accounts of machines
# that change their password each month pass 255 in their lifetime, and randomized test keys do sooner.
# Seen: minikerberos and its fork kerbad read number 300 as 44. gokrb5 reads 300. Of Apache Kerby, the
# number is right, but an entry with AES-SHA2 (types 19 and 20, RFC 8009) has no key at all: null.
# minikerberos 0.4.9, kerbad 0.5.12, gokrb5 8.4.4, kerb-core and kerb-util 2.1.1, 2026-11-28. Needs
# python3, Go, Maven, Java. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/keytab.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check minikerberos==0.4.9 kerbad==0.5.12
cat >keytab.py <<'PYTHON'
import struct, sys
from importlib import import_module

def text(value):
    return struct.pack(">H", len(value)) + value

def entry(number, enctype, length):
    body = struct.pack(">H", 2) + text(b"EXAMPLE.COM") + text(b"nfs") + text(b"server.example.com")
    body += struct.pack(">IIBH", 1, 1795824000, number & 255, enctype) + text(bytes(length)) + struct.pack(">I", number)
    return struct.pack(">i", len(body)) + body

table = b"\x05\x02" + entry(3, 18, 32) + entry(300, 18, 32) + entry(300, 20, 32) + entry(300, 19, 16)
open("keytab", "wb").write(table)
for library in "minikerberos", "kerbad":
    read = import_module(library + ".common.keytab").Keytab.from_bytes(table)
    print(library + ":", [(e.key_version, e.enctype) for e in read.entries])
PYTHON
cat >main.go <<'GO'
package main

import (
	"fmt"

	"github.com/jcmturner/gokrb5/v8/keytab"
)

func main() {
	table, err := keytab.Load("keytab")
	if err != nil {
		panic(err)
	}
	fmt.Print("gokrb5:")
	for _, e := range table.Entries {
		fmt.Print(" ", e.KVNO, "/", e.Key.KeyType)
	}
	fmt.Println()
}
GO
cat >pom.xml <<'XML'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kerby</groupId><artifactId>kerb-util</artifactId><version>2.1.1</version></dependency></dependencies></project>
XML
cat >Read.java <<'JAVA'
import java.io.File;
import org.apache.kerby.kerberos.kerb.keytab.*;
import org.apache.kerby.kerberos.kerb.type.base.PrincipalName;

public class Read {
    public static void main(String[] arguments) throws Exception {
        Keytab table = Keytab.loadKeytab(new File("keytab"));
        System.out.print("Kerby:");
        for (PrincipalName name : table.getPrincipals())
            for (KeytabEntry entry : table.getKeytabEntries(name))
                System.out.print(" " + entry.getKvno() + "/" + (entry.getKey() == null ? "null" : entry.getKey().getKeyType().getValue()));
        System.out.println();
    }
}
JAVA
{ go mod init finding && go get github.com/jcmturner/gokrb5/v8@v8.4.4; } 2>go.log || { cat go.log; exit 1; }
mvn -q -B dependency:build-classpath -Dmdep.outputFile=classpath >mvn.log 2>&1 || { cat mvn.log; exit 1; }
javac -cp "$(cat classpath)" Read.java
{ python/bin/python keytab.py; go run .; java -cp "$(cat classpath):." Read 2>java.log; } | tee seen
[ "$(cat seen)" = "minikerberos: [(3, 18), (44, 18), (44, 20), (44, 19)]
kerbad: [(3, 18), (44, 18), (44, 20), (44, 19)]
gokrb5: 3/18 300/18 300/20 300/19
Kerby: 3/18 300/18 300/null 300/null" ]
echo "as seen on 2026-11-28"
