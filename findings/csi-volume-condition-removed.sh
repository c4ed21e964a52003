#!/bin/bash
# Guess: an alpha field of the Container Storage Interface stays readable when its successor comes: the
# volume condition in the answer to NodeGetVolumeStats (since 1.3) is still there in 1.13, beside
# NodeGetVolumeHealth.
# Seen: 1.13 removed it. VOLUME_CONDITION is a reserved number in the capabilities of node and controller,
# the message VolumeCondition is gone, and field 2 of NodeGetVolumeStatsResponse is reserved. A driver of
# 1.13 can't report a condition to a caller of 1.12, and a caller of 1.13 sees nothing of a driver of 1.12.
# github.com/container-storage-interface/spec 1.12.0 and 1.13.0 of the Go module proxy, 2026-11-29. Needs
# go. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/csi.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
go mod init peer >/dev/null 2>&1
for version in v1.12.0 v1.13.0; do
    directory=$(go mod download -json github.com/container-storage-interface/spec@$version | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    python3 - "$version" "$directory/csi.proto" <<'PYTHON'
import re, sys
version, text = sys.argv[1], open(sys.argv[2]).read()
message = lambda name: (re.search(rf"^message {name} {{.*?^}}", text, re.S | re.M) or [""])[0]
capability = message("NodeServiceCapability")
print(version,
      "condition:", bool(message("VolumeCondition")),
      "capability:", bool(re.search(r"VOLUME_CONDITION = 4", capability)),
      "reserved:", bool(re.search(r"reserved 4;", capability)),
      "field:", bool(re.search(r"VolumeCondition volume_condition = 2", message("NodeGetVolumeStatsResponse"))),
      "health:", bool(message("NodeGetVolumeHealthResponse")))
PYTHON
done | tee seen
[ "$(cat seen)" = "v1.12.0 condition: True capability: True reserved: False field: True health: False
v1.13.0 condition: False capability: False reserved: True field: False health: True" ]
echo "as seen on 2026-11-29"
