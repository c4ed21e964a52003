#!/bin/bash
# Guess: `crane export` keeps a file that a layer brings together with a whiteout of its name, in any order of the two: "Files that
# are present in the same layer as a whiteout file can only be hidden by whiteout files in subsequent layers" (OCI image
# specification, layer.md). A layer that replaces a directory may have ".wh.NAME" and the new NAME.
# Seen: if the whiteout comes first in the archive, crane leaves the new file out, and a new directory with all that is in it.
# Nothing says so. With the whiteout last they are there. umoci, which unpacks an image for a container, has all of them.
# github.com/google/go-containerregistry 0.22.1, github.com/opencontainers/umoci 0.6.0 of the Go module proxy,
# 2026-12-01. Needs Go, python3, tar, root (for umoci). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/crane.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >layers.py <<'PYTHON'
import io, tarfile

def layer(name, *paths):
    with tarfile.open(name, "w") as archive:
        for path in paths:
            entry = tarfile.TarInfo(path)
            entry.mode = 0o755
            if path.endswith("/"):
                entry.type = tarfile.DIRTYPE
            content = b"" if path.startswith(".wh.") or path.endswith("/") else name.encode()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

layer("lower", "first", "last", "first.d/", "first.d/old", "last.d/", "last.d/old")
layer("upper", ".wh.first", "first", "last", ".wh.last", ".wh.first.d", "first.d/", "first.d/new", "last.d/", "last.d/new", ".wh.last.d")
PYTHON
python3 layers.py
{ go mod init finding && go get github.com/google/go-containerregistry/cmd/crane@v0.22.1 github.com/opencontainers/umoci/cmd/umoci@v0.6.0 &&
    go build -o . github.com/google/go-containerregistry/cmd/crane github.com/opencontainers/umoci/cmd/umoci; } 2>go.log || { cat go.log; exit 1; }
./crane registry serve --address 127.0.0.1:0 >registry.log 2>&1 &
for _ in {1..100}; do grep -q "serving on" registry.log && break; sleep 0.1; done
image=127.0.0.1:$(sed -nE "s,.*serving on port ([0-9]+)$,\1,p" registry.log)/image
export DOCKER_CONFIG=$work
{ ./crane append --oci-empty-base -f lower,upper -t "$image:1" && ./crane mutate --set-platform linux/amd64 -t "$image:1" "$image:1" &&
    ./crane pull --format=oci "$image:1" layout && ./crane export "$image:1" export.tar; } >crane.log 2>&1 || { cat crane.log; exit 1; }
# umoci finds an image by its annotation.
sed -i 's/"digest":/"annotations": {"org.opencontainers.image.ref.name": "latest"}, &/' layout/index.json
./umoci unpack --image layout container >umoci.log 2>&1 || { cat umoci.log; exit 1; }
mkdir export
tar -C export -xf export.tar
for directory in container/rootfs export; do
    (cd $directory && echo "$directory: $(find . -type f | LC_ALL=C sort | while read -r file; do echo "${file#./} $(cat "$file")"; done | paste -sd ,)")
done | tee seen
[ "$(cat seen)" = "container/rootfs: first upper,first.d/new upper,last upper,last.d/new upper
export: last upper,last.d/new upper" ]
echo "as seen on 2026-12-01"
