# Mounts by mount(8), fstab(5) and autofs. Runs in a mount namespace of its own, as root, in a
# directory with a published tree that is served. Arguments: the program, the tree's name.
set -eu
[ -z "${TRACE:-}" ] || set -x
vouch=$1 name=$2 here=$PWD

fail() { echo "FAILED: $1" >&2; exit 1; }
settled() { for _ in $(seq 100); do "$@" && return; sleep 0.1; done; return 1; }
is_gone() { ! grep -q " $1 " /proc/self/mountinfo; }
has_no_process() { ! pgrep -f -- "--helper.*$1" >/dev/null; }

# The directories of mount helpers and programs, with ours on top, in this namespace only.
mkdir layer && mount -t tmpfs tmpfs layer
for dir in /usr/sbin /usr/bin; do
    mkdir -p "layer/up$dir" "layer/work$dir"
    mount -t overlay -o "lowerdir=$dir,upperdir=layer/up$dir,workdir=layer/work$dir" overlay "$dir"
    ln -sf "$vouch" "$dir/vouch"
done
ln -sf "$vouch" /usr/sbin/mount.vouch
mkdir software
cat >etc/vouch.toml <<END
[tree.tools]
name = "$name"
END

# A long name, with options of mount(8), of systemd and of `vouch mount`.
mount -t vouch "$name" "$here/software" -o ro,noexec,nofail,x-systemd.automount,cache="$here/cache",memory-cache=8M
[ "$(cat software/hello)" = "hello world" ] || fail "the tree is not mounted"
grep "$here/software" /proc/self/mountinfo | grep -q noexec || fail "noexec is lost"
[ -n "$(ls cache)" ] || fail "the cache is elsewhere"
# Again: nothing to do.
mount -t vouch "$name" "$here/software"
[ "$(grep -c "$here/software" /proc/self/mountinfo)" = 1 ] || fail "mounted twice"
umount software
settled has_no_process "$here/software" || fail "the process outlives its mount"

# Exit codes: 1 for the command line, 32 for the mount.
code=0; mount -t vouch tools "$here/software" -o cahce=/c 2>message || code=$?
[ $code = 1 ] && grep -q cahce message || fail "a wrong option: code $code, $(cat message)"
code=0; mount -t vouch tulls "$here/software" 2>message || code=$?
[ $code = 32 ] && grep -q "short names: tools" message || fail "a wrong name: code $code, $(cat message)"

# fstab(5) with a short name and with all trees.
mkdir all
cat >fstab <<END
tools  $here/software  vouch  ro,_netdev,nofail  0  0
auto   $here/all       vouch  defaults           0  0
END
mount --fstab fstab "$here/software"
mount --fstab fstab --all
mount --fstab fstab --all
[ "$(cat software/hello)" = "hello world" ] && [ "$(cat all/tools/hello)" = "hello world" ] || fail "fstab"
[ "$(grep " $here/" /proc/self/mountinfo | grep -c "vouch:")" = 2 ] || fail "mounted twice by fstab"
umount all

# A mount in use: refused, then lazily; an open file stays readable.
exec 3<software/hello
umount software 2>message && fail "a mount in use was unmounted"
umount --lazy software
is_gone "$here/software" || fail "lazy"
[ "$(cat <&3)" = "hello world" ] || fail "an open file after a lazy unmount"
exec 3<&-
settled has_no_process "$here/software" || fail "the process outlives its lazy unmount"

# Forced, with a process that does not answer.
mount --fstab fstab "$here/software"
process=$(pgrep -f -- "--helper.*$here/software")
kill -STOP $process
timeout 20 umount --force --lazy software || fail "forced"
is_gone "$here/software" || fail "forced, and still there"
kill -CONT $process
settled has_no_process "$here/software" || fail "the process outlives its forced unmount"
echo "mount(8): ok"

# autofs: the first use mounts, an unknown name does not exist, an idle mount goes.
command -v automount >/dev/null || exit 0
cp "$3" auto.vouch
echo "$here/vouch  program:$here/auto.vouch --timeout=1" >auto.master
mkdir vouch
# Its lock file is in /run.
mount -t tmpfs tmpfs /run
# In a group of its own: the kernel shows the bare directory to the group of the daemon.
setsid automount --foreground --debug --verbose --pid-file "$here/automount.pid" "$here/auto.master" >automount.log 2>&1 &
automount=$!
trap 'kill -KILL $automount 2>/dev/null' EXIT
settled grep -q " $here/vouch .* autofs " /proc/self/mountinfo || fail "automount: $(cat automount.log)"
[ "$(cat vouch/tools/hello)" = "hello world" ] || fail "autofs by the short name: $(cat automount.log; sh -x auto.vouch tools 2>&1)"
[ "$(cat "vouch/$name/hello")" = "hello world" ] || fail "autofs by the long name: $(cat automount.log)"
[ ! -e vouch/none ] || fail "an unknown name"
settled is_gone "$here/vouch/tools" || fail "an idle mount stays"
kill -TERM $automount
wait $automount || true
trap - EXIT
echo "autofs: ok"
