#!/bin/bash
# Guess: dissect.target, a toolkit for incidents that reads many kinds of logs, reads each record of an audit.log that auditd
# wrote. With `name_format = hostname` in auditd.conf, and in the file of a server that collects others' records, each
# line begins with `node=NAME` (auditd.conf(5)); ausearch reads both forms.
# Seen: it skips each line with a node, and no record of it is in the output. A warning names the file for each, "unrecognized
# format", and the plugin goes on. Lines without a node are read.
# dissect.target 3.25.1 of PyPI, 2026-12-01. Needs python3 >= 3.10. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/dissect.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check dissect.target==3.25.1
mkdir -p machine/var/log/audit
cat >machine/var/log/audit/audit.log <<'LOG'
type=SYSCALL msg=audit(1796000000.243:101): arch=c000003e syscall=257 success=yes exit=3 items=1 ppid=1 pid=20 auid=1000 uid=0 comm="cat" exe="/usr/bin/cat" key="plan"
type=PATH msg=audit(1796000000.243:101): item=0 name="/srv/plan" inode=12 dev=fd:00 mode=0100600 nametype=NORMAL
node=server.example.com type=SYSCALL msg=audit(1796000001.243:102): arch=c000003e syscall=257 success=yes exit=3 items=1 ppid=1 pid=21 auid=1000 uid=0 comm="cat" exe="/usr/bin/cat" key="plan"
node=server.example.com type=PATH msg=audit(1796000001.243:102): item=0 name="/srv/plan" inode=12 dev=fd:00 mode=0100600 nametype=NORMAL
LOG
cat >read.py <<'PYTHON'
import logging, pathlib
from dissect.target import Target
from dissect.target.filesystems.dir import DirectoryFilesystem
from dissect.target.plugins.os.unix.log.audit import AuditPlugin

logging.basicConfig(format="warning: %(message)s")
target = Target()
target.fs.mount("/", DirectoryFilesystem(pathlib.Path("machine")))
for record in AuditPlugin(target).audit():
    print(record.audit_type, record.audit_id)
PYTHON
python/bin/python read.py 2>warnings | tee seen
grep -o 'unrecognized format' warnings | tee -a seen
[ "$(cat seen)" = "SYSCALL 101
PATH 101
unrecognized format
unrecognized format" ]
echo "as seen on 2026-12-01"
