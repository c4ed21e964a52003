#!/bin/bash
# Guess: `kinit -R` with the KDC of Apache Kerby gives a ticket that lives as long again as the old one, within the
# renewable time (RFC 4120, 3.3.3). So k5start, SSSD and schedulers of jobs keep a ticket for hours with a life of minutes.
# Seen: kinit -R ends with 0 and the new ticket expires when the old one did. Its renewable time is cut to the same moment,
# so no later renewal can help. A ticket with a life of five minutes is gone after five minutes.
# kerb-simplekdc 2.1.1 of Maven Central, 2026-12-01. Needs Java >= 17, Maven, kinit and klist of MIT Kerberos. Exit 0: as seen.
set -eu
command -v kinit >/dev/null || apt-get install -y -qq krb5-user
work=$(mktemp -d /var/tmp/kerby.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
cat >pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kerby</groupId><artifactId>kerb-simplekdc</artifactId><version>2.1.1</version></dependency>
</dependencies></project>
POM
cat >Realm.java <<'JAVA'
import java.io.File;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

public class Realm {
    public static void main(String[] arguments) throws Exception {
        int port;
        try (var socket = new ServerSocket(0)) {
            port = socket.getLocalPort();
        }
        var realm = new SimpleKdcServer();
        realm.setWorkDir(new File("."));
        realm.setKdcHost("127.0.0.1");
        realm.setKdcRealm("EXAMPLE.COM");
        realm.setAllowUdp(false);
        realm.setKdcTcpPort(port);
        realm.init();
        realm.createPrincipal("alice", "password");
        realm.exportPrincipal("alice", new File("alice.keytab"));
        realm.start();
        Files.writeString(Path.of("port"), port + "\n");
        Thread.sleep(60_000);
        realm.stop();
    }
}
JAVA
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >mvn.log || { cat mvn.log; exit 1; }
java -cp 'lib/*' Realm.java >kdc.log 2>&1 &
for _ in {1..300}; do [ -s port ] && break; sleep 0.1; done
cat >krb5.conf <<CONF
[libdefaults]
default_realm = EXAMPLE.COM
dns_lookup_kdc = false
[realms]
EXAMPLE.COM = {
  kdc = 127.0.0.1:$(cat port)
}
CONF
export KRB5_CONFIG=$work/krb5.conf KRB5CCNAME=FILE:$work/cache LC_ALL=C TZ=UTC
times() { # Seconds: the end of the ticket and of its renewable time.
    klist | sed -nE 's/^[^ ]+ [^ ]+  ([^ ]+ [^ ]+)  krbtgt.*/\1/p; s/.*renew until ([^ ]+ [^ ,]+).*/\1/p' | while read -r time; do date -d "$time" +%s; done
}
kinit -l 5m -r 1h -kt alice.keytab alice
mapfile -t first < <(times)
sleep 3
kinit -R && status=0 || status=$?
mapfile -t renewed < <(times)
{
    echo "renewable for $((first[1] - first[0])) s longer than the ticket"
    echo "kinit -R: $status, expires $((renewed[0] - first[0])) s later, then renewable for $((renewed[1] - renewed[0])) s longer"
} | tee seen
[ "$(cat seen)" = "renewable for 3300 s longer than the ticket
kinit -R: 0, expires 0 s later, then renewable for 0 s longer" ]
echo "as seen on 2026-12-01"
