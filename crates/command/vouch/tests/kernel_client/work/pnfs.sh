# Reads a tree of $VERSION through layouts, twice. In between, the test kills one of the servers.
set -eu
attach "$VERSION" /export /mnt/tree hard
python3 -c 'import sys
for n in range(int(sys.argv[1]) // 4096): sys.stdout.buffer.write(b"%08x" % n * 512)' "$LENGTH" >"$JOB/expected"

# calls NAME: the number of these operations of the mount.
calls() { awk -v name="$1:" '/^device /{mounted = $5 == "/mnt/tree"} mounted && $1 == name {print $2}' /proc/self/mountstats; }

grep -q 'pnfs=LAYOUT_FLEX_FILES' /proc/self/mountstats
cmp /mnt/tree/large "$JOB/expected"
# The layout of the first part comes with OPEN.
[ "$(calls LAYOUTGET)" -ge 5 ]
[ "$(calls GETDEVICEINFO)" -ge 2 ]
exec 9<>"/dev/tcp/$SERVER/$SIGNAL"
# Ends when the other server is gone.
cat <&9 >/dev/null
echo 3 >/proc/sys/vm/drop_caches
cmp /mnt/tree/large "$JOB/expected"
echo "ok: read again"
