#!/bin/bash
# Guess: libraries that extract tar archives restore the sparse files of GNU tar --sparse, in its own format and in that of
# PAX, or end with an error. Python's tarfile, Go's archive/tar and Commons Compress read both.
# Seen: tar of npm leaves a sparse file of the GNU format out, without error or warning, with `strict: true` too; tar-fs of
# npm gives an error. Of the PAX format, tar and tar-fs of npm, and tar and astral-tokio-tar of
# crates.io make GNUSparseFile.NUMBER/NAME, with a map of holes before the data, and no error.
# tar 7.5.23, tar-fs 3.1.3 of npm, tar 0.4.46, astral-tokio-tar 0.7.0 of crates.io, 2026-12-01. Needs node, npm, cargo, tar,
# python3. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/sparse.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p files rust/src
python3 -c 'file = open("files/data", "wb"); file.seek(1 << 20); file.write(b"middle\n"); file.truncate(3 << 20)'
for format in gnu posix; do tar -C files --sparse --format=$format -cf $format.tar data; done
cat >rust/Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"
[workspace]
[dependencies]
tar = "=0.4.46"
astral = { package = "astral-tokio-tar", version = "=0.7.0" }
tokio = { version = "1", features = ["rt", "fs"] }
TOML
cat >rust/src/main.rs <<'RUST'
fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for format in ["gnu", "posix"] {
        let name = format!("{format}.tar");
        tar::Archive::new(std::fs::File::open(&name).unwrap()).unpack(format!("tar of Rust, {format}")).unwrap();
        runtime.block_on(async {
            let file = tokio::fs::File::open(&name).await.unwrap();
            astral::Archive::new(file).unpack(format!("astral-tokio-tar, {format}")).await.unwrap();
        });
    }
}
RUST
cargo run -q --manifest-path rust/Cargo.toml 2>cargo.log || { cat cargo.log; exit 1; }
npm install --silent --prefix node tar@7.5.23 tar-fs@3.1.3
cat >node/read.mjs <<'JS'
import { createReadStream, mkdirSync } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import * as tar from 'tar'
import { extract } from 'tar-fs'

for (const format of ['gnu', 'posix']) {
  const file = `${format}.tar`, directory = `tar of npm, ${format}`
  mkdirSync(directory)
  await tar.extract({ file, cwd: directory, strict: true, onwarn: (code, text) => console.log(`${directory}: ${text}`) })
  await pipeline(createReadStream(file), extract(`tar-fs, ${format}`)).catch(error => console.log(`tar-fs, ${format}: ${error.message.split(' for ')[0]}`))
}
JS
{
    node node/read.mjs
    for directory in *", gnu" *", posix"; do
        echo "$directory:$(cd "$directory" && find . -type f | while read -r file; do
            echo " ${file#./}" | sed -E 's/File\.[0-9]+/File.N/'; cmp -s "$file" "$work/files/data" && echo equal || echo differs; done | paste -sd ' ')"
    done
} | tee seen
[ "$(cat seen)" = "tar-fs, gnu: unsupported type
astral-tokio-tar, gnu: data equal
tar of Rust, gnu: data equal
tar of npm, gnu:
tar-fs, gnu:
astral-tokio-tar, posix: GNUSparseFile.N/data differs
tar of Rust, posix: GNUSparseFile.N/data differs
tar of npm, posix: GNUSparseFile.N/data differs
tar-fs, posix: GNUSparseFile.N/data differs" ]
echo "as seen on 2026-12-01"
