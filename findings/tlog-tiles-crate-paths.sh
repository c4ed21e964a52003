#!/bin/bash
# Guess: the crate tlog_tiles, "Implementation of the C2SP tlog-tiles and C2SP checkpoint specifications", writes and parses the
# paths of C2SP tlog-tiles: tile/0/x001/x234/067, tile/0/000.p/5, tile/entries/000. Torchwood and Tessera do.
# Seen: its paths are those of the Go checksum database, which have the height of tiles first and "data" for entries:
# tile/8/0/x001/x234/067, tile/8/data/000. It refuses each path of the specification; there is no option. A client made of it
# asks such a log for files that it does not have. Checkpoints with extension lines and with spaces in the origin are read.
# tlog_tiles 0.2.0 of crates.io, filippo.io/torchwood 0.10.0, 2026-12-01. Needs cargo, Go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/tiles.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"
[workspace]
[dependencies]
tlog_tiles = "=0.2.0"
TOML
cat >src/main.rs <<'RUST'
use tlog_tiles::{Checkpoint, Tile};

fn main() {
    println!("crate: {}, {}", Tile::new(8, 0, 1_234_067, 256, false).path(), Tile::new(8, 0, 0, 256, true).path());
    for path in ["tile/0/x001/x234/067", "tile/0/000.p/5", "tile/entries/000", "tile/8/0/000.p/5", "tile/8/data/000"] {
        println!("{path}: {}", if Tile::from_path(path).is_ok() { "taken" } else { "refused" });
    }
    let text = "log with spaces\n3\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\nextension\n";
    println!("checkpoint: {}", if Checkpoint::from_bytes(text.as_bytes()).is_ok() { "taken" } else { "refused" });
}
RUST
cat >main.go <<'GO'
package main

import (
	"fmt"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	fmt.Printf("torchwood: %s, %s\n", torchwood.TilePath(tlog.Tile{H: 8, L: 0, N: 1234067, W: 256}), torchwood.TilePath(tlog.Tile{H: 8, L: -1, N: 0, W: 256}))
}
GO
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
{ go mod init finding && go get filippo.io/torchwood@v0.10.0 golang.org/x/mod@v0.43.0; } 2>go.log || { cat go.log; exit 1; }
{ go run . && cargo run -q; } 2>build.log | tee seen
[ "$(cat seen)" = "torchwood: tile/0/x001/x234/067, tile/entries/000
crate: tile/8/0/x001/x234/067, tile/8/data/000
tile/0/x001/x234/067: refused
tile/0/000.p/5: refused
tile/entries/000: refused
tile/8/0/000.p/5: taken
tile/8/data/000: taken
checkpoint: taken" ] || { cat build.log; exit 1; }
echo "as seen on 2026-12-01"
