#!/bin/bash
# Guess: aics-tlog, a Python library for C2SP logs, verifies each checkpoint of the Go checksum database,
# the oldest log of this kind. C2SP tlog-checkpoint only recommends an origin line without spaces: readers
# "MUST NOT assume that the origin is following this format".
# Seen: it refuses the origin line "go.sum database tree" as it refuses such key names: "origin contains
# Unicode spaces". aics-witness refuses to add such a log, and a checkpoint that it gets. The note itself is
# verified, and an origin without spaces passes.
# aics-tlog 0.2.1, aics-witness 0.1.0 of PyPI, 2026-11-28. Needs Python >= 3.12 (variable PYTHON, else
# python3.13 or python3). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/aics.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[3-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check aics-tlog==0.2.1 aics-witness==0.1.0
cat >read.py <<'PYTHON'
import hashlib
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from aics_tlog import note
from aics_tlog.checkpoint import verify_checkpoint

secret = Ed25519PrivateKey.from_private_bytes(bytes(32))
key = note.vkey_from_ed25519("sum.example.org", secret.public_key())
open("vkey", "w").write(note.format_vkey(key))
for origin in "sum.example.org", "go.sum database tree":
    text = f"{origin}\n1\n{note.b64_encode(hashlib.sha256(b'\0entry').digest())}\n"
    signed = note.parse_note(note.Note(text, (note.sign_note(text, secret, key.name),)).to_bytes())
    result = verify_checkpoint(signed, key)
    print(f"{origin}: note {note.verify_note(signed, [key])}, checkpoint {result.ok}, {result.error}")
PYTHON
python/bin/python read.py | tee seen
python/bin/aics-witness init -c witness.json --name witness.example --listen 127.0.0.1:17382 >/dev/null 2>&1
for origin in "sum.example.org" "go.sum database tree"; do
    python/bin/aics-witness add-log -c witness.json --origin "$origin" --vkey "$(cat vkey)" >said 2>&1 && said=added || said=$(grep -o 'origin contains a space' said)
    echo "$origin: witness: $said"
done | tee -a seen
[ "$(cat seen)" = "sum.example.org: note True, checkpoint True, None
go.sum database tree: note True, checkpoint False, invalid checkpoint: origin contains Unicode spaces
sum.example.org: witness: added
go.sum database tree: witness: origin contains a space" ]
echo "as seen on 2026-11-28"
