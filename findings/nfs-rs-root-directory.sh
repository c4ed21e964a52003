#!/bin/bash
# Guess: `client.listdir("/")` of nfs-rs lists the exported directory over NFSv4.1, as it lists directories
# below.
# Seen: it fails for "/", "." and "" with "bad name": the client sends LOOKUP of the name ".", which a server of
# NFSv4 must refuse (RFC 8881, 18.13.3). So does scandir. "/below" is listed, and stat works.
# nfs-rs 0.8.7 of PyPI, NFS-Ganesha 15.2 of Debian sid, 2026-12-01. Needs root, mmdebstrap, python3 >= 3.11, unshare(1).
# Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/nfs-rs.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=nfs-ganesha,nfs-ganesha-vfs sid "$root" "deb $mirror sid main"
chroot "$root" ganesha.nfsd -v | head -n 1
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv "$work/python"
"$work/python/bin/pip" install -q --disable-pip-version-check nfs-rs==0.8.7
cat >"$work/client.py" <<'PYTHON'
import nfs_rs, time

def attempt(name, call):
    try:
        print(f"{name}: {call()}")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")

for step in range(100):
    try:
        client = nfs_rs.Client.connect("nfs://127.0.0.1/export?version=4.1")
        break
    except Exception as error:
        failure = error
        time.sleep(0.2)
else:
    raise failure
for path in "/", ".", "", "/below":
    attempt(f"listdir {path!r}", lambda: client.listdir(path))
attempt("scandir '/'", lambda: len(list(client.scandir("/"))))
attempt("stat '/file'", lambda: client.stat("/file").size)
PYTHON
cat >"$work/inner" <<'INNER'
set -u
work=$1 root=$2
ip link set lo up; ip addr add 192.0.2.1/32 dev lo
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs none "$root/run"
mkdir -p "$root/run/ganesha" "$root/run/dbus" "$root/srv/export"; mount --bind "$root/srv/export" "$root/srv/export"; mkdir "$root/srv/export/below"
echo content >"$root/srv/export/file"; echo content >"$root/srv/export/below/other"
cat >"$root/run/ganesha.conf" <<'CONF'
NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; allow_set_io_flusher_fail = true; }
NFSv4 { Graceless = true; RecoveryRoot = "/run/ganesha"; }
EXPORT { Export_Id = 1; Path = /srv/export; Pseudo = /export; Protocols = 4; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; FSAL { Name = VFS; } }
CONF
: >"$root/run/log"
chroot "$root" ganesha.nfsd -F -f /run/ganesha.conf -L /run/log -p /run/ganesha.pid >"$work/ganesha.log" 2>&1 &
"$work/python/bin/python" "$work/client.py"
status=$?
[ "$status" = 0 ] || grep CRIT "$root/run/log"
exit $status
INNER
timeout -k 5 120 unshare --net --mount --pid --fork --kill-child bash "$work/inner" "$work" "$root" | tee "$work/seen"
[ "$(cat "$work/seen")" = "listdir '/': NfsProtocolError: NFS4 error: bad name
listdir '.': NfsProtocolError: NFS4 error: bad name
listdir '': NfsProtocolError: NFS4 error: bad name
listdir '/below': ['other']
scandir '/': NfsProtocolError: NFS4 error: bad name
stat '/file': 8" ]
echo "as seen on 2026-12-01"
