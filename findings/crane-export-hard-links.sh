#!/bin/bash
# Guess: `crane export` and `crane flatten` give the files of a container that runs from the image. They apply
# whiteouts, so a file of a lower layer has the content that it had there.
# Seen: not if the file is a hard link whose first name a later layer replaces or removes, as upgrades of packages
# do. The entry "link to a" of the lower layer goes into the output as it is. There, b gets the new content of a
# instead of its own; and where a was removed, the archive links to a name that it does not have, and tar cannot
# extract it. Containers and umoci keep the old content. umoci cannot unpack the flattened image for this reason.
# github.com/google/go-containerregistry 0.22.1, github.com/opencontainers/umoci 0.6.0 of the Go module proxy,
# 2026-12-01. Needs Go, python3, tar, root (for umoci). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/crane.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
export GOTOOLCHAIN=go1.27.0 GOFLAGS=-mod=mod GOWORK=off
cat >layers.py <<'PYTHON'
import io, tarfile

def layer(name, *entries):
    with tarfile.open(name, "w") as archive:
        for path, content, first in entries:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            if first:
                entry.type, entry.linkname = tarfile.LNKTYPE, first
            archive.addfile(entry, io.BytesIO(content))

layer("lower.tar", ("a", b"old\n", ""), ("b", b"", "a"), ("c", b"old\n", ""), ("d", b"", "c"))
layer("upper.tar", ("a", b"new\n", ""), (".wh.c", b"", ""))
PYTHON
python3 layers.py
{ go mod init finding && go get github.com/google/go-containerregistry/cmd/crane@v0.22.1 github.com/opencontainers/umoci/cmd/umoci@v0.6.0 &&
    go build -o . github.com/google/go-containerregistry/cmd/crane github.com/opencontainers/umoci/cmd/umoci; } 2>go.log || { cat go.log; exit 1; }
./crane registry serve --address 127.0.0.1:0 >registry.log 2>&1 &
for _ in {1..100}; do grep -q "serving on" registry.log && break; sleep 0.1; done
image=127.0.0.1:$(sed -nE "s,.*serving on port ([0-9]+)$,\1,p" registry.log)/image
export DOCKER_CONFIG=$work
{ ./crane append --oci-empty-base -f lower.tar,upper.tar -t "$image:1" && ./crane mutate --set-platform linux/amd64 -t "$image:1" "$image:1" &&
    ./crane flatten "$image:1" -t "$image:flat" && ./crane pull --format=oci "$image:1" layout &&
    ./crane pull --format=oci "$image:flat" flat; } >crane.log 2>&1 || { cat crane.log; exit 1; }
./crane export "$image:1" export.tar
look() { # DIRECTORY: its files and their contents.
    (cd "$1" && for file in a b c d; do [ ! -e $file ] || echo "$file $(cat $file)"; done | paste -sd ,)
}
for layout in layout flat; do # umoci finds an image by its annotation.
    sed -i 's/"digest":/"annotations": {"org.opencontainers.image.ref.name": "latest"}, &/' $layout/index.json
done
./umoci unpack --image layout container >umoci.log 2>&1 || { cat umoci.log; exit 1; }
./umoci unpack --image flat flattened >umoci.log 2>&1 && status=0 || status=$?
mkdir export
LC_ALL=C tar -C export -xf export.tar 2>tar.log && code=0 || code=$?
{ echo "image: $(look container/rootfs)"; echo "export: $(look export), status $code: $(sed -n 1p tar.log)"; echo "flatten: status $status, $(grep -o "no such file or directory" umoci.log | head -n 1)"; } | tee seen
[ "$(cat seen)" = "image: a new,b old,d old
export: a new,b new, status 2: tar: d: Cannot hard link to 'c': No such file or directory
flatten: status 1, no such file or directory" ]
echo "as seen on 2026-12-01"
