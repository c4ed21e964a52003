# Reads snapshots with the kernel's client of $VERSION, over a restart of the server and the removal
# of one snapshot. The test writes `restarted` and `removed` when it has done so.
set -eu
attach "$VERSION" /export /mnt/export actimeo=1
cd /mnt/export
wait_for() { until [ -e "/mnt/export/$1" ]; do sleep 0.1; done; }
snapshots() { ls .snapshot | sort | tr '\n' ' '; }

[ "$(ls -A)" = dir ] && [ "$(snapshots)" = "one two " ]
[ "$(cat dir/file)" = live ] && [ "$(cat .snapshot/one/dir/file)" = first ] && [ "$(cat dir/.snapshot/two/file)" = second ]
ls -l /mnt/export/.snapshot/one/dir | grep -q ' file$'

# Each snapshot is a device of its own, so no tool takes its inodes for those of the live files.
device() { stat -c %d "$1/."; }
[ "$(device .snapshot/one)" != "$(device .)" ] && [ "$(device .snapshot/one)" != "$(device .snapshot/two)" ]
find dir .snapshot/ dir/.snapshot/ >/tmp/found
[ "$(grep -c '/file$' /tmp/found)" = 5 ]
diff -r .snapshot/one/dir dir/.snapshot/one
tar -cf - .snapshot/two | tar -tf - | grep -q '^.snapshot/two/dir/file$'
cp -a dir/.snapshot/one/file restored && [ "$(cat restored)" = first ] && rm restored

refused() {
    if "${@:2}" 2>/tmp/why; then echo "done: ${*:2}"; exit 1; fi
    grep -q "$1" /tmp/why || { cat /tmp/why; exit 1; }
}
refused "Read-only file system" touch .snapshot/one/new
refused "Read-only file system" mkdir dir/.snapshot/new
refused "Read-only file system" rm .snapshot/one/dir/file
refused "Read-only file system" chmod 700 dir/.snapshot/two/file
refused "Read-only file system" truncate -s 0 dir/.snapshot/two/file
refused "Invalid cross-device link" ln .snapshot/one/dir/file linked
refused "File exists" mkdir .snapshot
[ "$(ls -A)" = dir ]

# Open files and working directories survive a restart of the server.
exec 3<.snapshot/one/dir/file 4<dir/.snapshot/two/file
(
    cd .snapshot/one/dir
    touch /mnt/export/ready
    wait_for restarted
    [ "$(cat file)" = first ] && [ "$(cat <&3)" = first ] && [ "$(cat <&4)" = second ]
    touch /mnt/export/survived
    # Only what was in the removed snapshot is gone.
    wait_for removed
    until ls -l . 2>&1 | grep -q "Stale file handle"; do sleep 0.1; done
)
exec 3<&- 4<&-
[ "$(cat dir/.snapshot/two/file)" = second ] && [ "$(cat dir/file)" = live ]
# A new snapshot shows in the same mount.
until [ "$(snapshots)" = "three two " ]; do sleep 0.1; done
[ "$(cat .snapshot/three/dir/file)" = third ]
echo "ok: a new snapshot shows"
