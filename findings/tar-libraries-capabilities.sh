#!/bin/bash
# Guess: libraries that read tar archives give the file capabilities that GNU tar --xattrs, Docker and buildah stored
# in them, as SCHILY.xattr.security.capability. The value is binary; each PAX record begins with its length.
# Seen: the crate tar cuts the records at line ends. It loses each value that has a byte 10, as that of
# cap_dac_override,cap_fowner, without an error. tokio-tar restores no attribute, though asked to. Apache Commons
# Compress and tar-stream of npm decode the value as UTF-8. The byte 128 becomes three others, as in the cap_setuid
# of newuidmap, and a program that copies the entry stores that. astral-tokio-tar keeps all.
# tar 0.4.46, tokio-tar 0.3.1, astral-tokio-tar 0.7.0 of crates.io, tar-stream 3.2.2 of npm, commons-compress 1.28.0 of Maven
# Central, 2026-12-01. Needs root, cargo, node, npm, Maven, Java >= 17, python3, tar, attributes in /var/tmp. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/capabilities.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >files.py <<'PYTHON'
import os, struct
os.mkdir("files")
for name, permitted in ("both", 1 << 1 | 1 << 3), ("setuid", 1 << 7), ("raw", 1 << 13):
    open("files/" + name, "w").close()
    os.setxattr("files/" + name, "security.capability", struct.pack("<5I", 0x02000001, permitted, 0, 0, 0))
    os.setxattr("files/" + name, "user.later", b"yes")
PYTHON
cat >show.py <<'PYTHON'
import os, sys
for directory in sys.argv[1:]:
    for name in sorted(os.listdir(directory)):
        print(directory, name, *(f"{key}={os.getxattr(f'{directory}/{name}', key).hex()}" for key in sorted(os.listxattr(f"{directory}/{name}"))))
PYTHON
python3 files.py
tar -C files --xattrs --xattrs-include='*' --format=posix -cf files.tar both setuid raw
mkdir -p gnu rust/src java
tar -C gnu --xattrs --xattrs-include='*' -xf files.tar

cat >rust/Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"
[workspace]
[dependencies]
tar = "=0.4.46"
tokio-tar = "=0.3.1"
astral = { package = "astral-tokio-tar", version = "=0.7.0" }
tokio = { version = "1", features = ["rt", "fs"] }
TOML
cat >rust/src/main.rs <<'RUST'
use tokio::fs::File;

fn main() {
    let file = std::fs::File::open("files.tar").unwrap();
    let mut archive = tar::Archive::new(file);
    archive.set_unpack_xattrs(true);
    archive.unpack("tar").unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let file = File::open("files.tar").await.unwrap();
        tokio_tar::ArchiveBuilder::new(file).set_unpack_xattrs(true).build().unpack("tokio-tar").await.unwrap();
        let file = File::open("files.tar").await.unwrap();
        astral::ArchiveBuilder::new(file).set_unpack_xattrs(true).build().unpack("astral").await.unwrap();
    });
}
RUST
cargo run -q --manifest-path rust/Cargo.toml 2>cargo.log || { cat cargo.log; exit 1; }

cat >java/pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.commons</groupId><artifactId>commons-compress</artifactId><version>1.28.0</version></dependency>
</dependencies></project>
POM
cat >java/Read.java <<'JAVA'
import java.io.FileInputStream;
import java.util.HexFormat;
import org.apache.commons.compress.archivers.tar.TarArchiveInputStream;

public class Read {
    public static void main(String[] arguments) throws Exception {
        try (var archive = new TarArchiveInputStream(new FileInputStream("files.tar"))) {
            for (var entry = archive.getNextEntry(); entry != null; entry = archive.getNextEntry()) {
                String value = entry.getExtraPaxHeader("SCHILY.xattr.security.capability");
                System.out.println("commons-compress " + entry.getName() + " " + HexFormat.of().formatHex(value.getBytes("UTF-8")));
            }
        }
    }
}
JAVA
mvn -q -f java/pom.xml dependency:copy-dependencies -DoutputDirectory=lib >mvn.log || { cat mvn.log; exit 1; }
npm install --silent --prefix node tar-stream@3.2.2
cat >node/read.mjs <<'JS'
import { createReadStream } from 'node:fs'
import { extract } from 'tar-stream'
const archive = extract()
archive.on('entry', (header, content, next) => {
  console.log('tar-stream', header.name, Buffer.from(header.pax['SCHILY.xattr.security.capability']).toString('hex'))
  content.on('end', next).resume()
})
createReadStream('files.tar').pipe(archive)
JS
{ python3 show.py gnu tar tokio-tar astral; java -cp 'java/lib/*' java/Read.java; node node/read.mjs; } | tee seen
[ "$(cat seen)" = "gnu both security.capability=010000020a000000000000000000000000000000 user.later=796573
gnu raw security.capability=0100000200200000000000000000000000000000 user.later=796573
gnu setuid security.capability=0100000280000000000000000000000000000000 user.later=796573
tar both user.later=796573
tar raw security.capability=0100000200200000000000000000000000000000 user.later=796573
tar setuid security.capability=0100000280000000000000000000000000000000 user.later=796573
tokio-tar both
tokio-tar raw
tokio-tar setuid
astral both security.capability=010000020a000000000000000000000000000000 user.later=796573
astral raw security.capability=0100000200200000000000000000000000000000 user.later=796573
astral setuid security.capability=0100000280000000000000000000000000000000 user.later=796573
commons-compress both 010000020a000000000000000000000000000000
commons-compress setuid 01000002efbfbd000000000000000000000000000000
commons-compress raw 0100000200200000000000000000000000000000
tar-stream both 010000020a000000000000000000000000000000
tar-stream setuid 01000002efbfbd000000000000000000000000000000
tar-stream raw 0100000200200000000000000000000000000000" ]
echo "as seen on 2026-12-01"
