#!/bin/bash
# Guess: obstore's LocalStore, the local file system of the Rust crate object_store, lists each file of a
# directory, and refuses a name that it does not take, as it does for control characters.
# Seen: a file whose name ends with "#" and digits is left out of list() without a word, since the crate uses
# such names for unfinished uploads. head(), get() and put() refuse it: "Filenames containing trailing
# '/#\d+/' are not supported". So a copy of all that list() gives lacks "invoice #12", but has "invoice #12.pdf".
# obstore 0.12.1 of PyPI, 2026-11-30. Needs python3 >= 3.11. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/obstore.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check obstore==0.12.1
mkdir files
touch files/invoice files/'invoice #12' files/'invoice #12.pdf' files/'run#7' files/'run#7b' files/'run#'
cat >list.py <<'PYTHON'
import os
from obstore.store import LocalStore

store = LocalStore("files")
listed = {entry["path"] for batch in store.list() for entry in batch}
for name in sorted(os.listdir("files")):
    said = []
    for call in store.head, store.get, lambda name: store.put(name, b"x"):
        try:
            call(name)
            said.append("done")
        except Exception as error:
            said.append("refused" if "#\\d+" in str(error) else str(error))
    print(f"{name!r}: listed {name in listed}, head {said[0]}, get {said[1]}, put {said[2]}")
PYTHON
python/bin/python list.py | tee seen
[ "$(cat seen)" = "'invoice': listed True, head done, get done, put done
'invoice #12': listed False, head refused, get refused, put refused
'invoice #12.pdf': listed True, head done, get done, put done
'run#': listed True, head done, get done, put done
'run#7': listed False, head refused, get refused, put refused
'run#7b': listed True, head done, get done, put done" ]
echo "as seen on 2026-11-30"
