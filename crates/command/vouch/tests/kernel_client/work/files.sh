# Runs ordinary tools on a mount of $VERSION (/mnt/export), and compares the results with a local
# file system. HOLES=no: the server's file system neither allocates blocks nor shows holes.
set -eu
attach "$VERSION" /export /mnt/export
cd /mnt/export
say() { echo "ok: $*"; }

# cp -a and tar preserve a tree with all types of files.
mkdir -p /tmp/tree/deep/er && cd /tmp/tree
seq 20000 >numbers; head -c 3000000 /dev/urandom >noise; : >empty
ln numbers hard; ln -s deep/er symbolic; ln -s /nowhere dangling; mkfifo pipe
chmod 0640 numbers; chmod 1777 deep; chown 1234:2345 noise; touch -d '2001-02-03 04:05:06.789' empty
printf x >"deep/$(printf 'n%.0s' {1..255})"; printf y >$'deep/er/\xff\xfe not utf8'
cp -a /tmp/tree /mnt/export/copy
tar --format=posix -C /tmp -cf - tree | tar -C /mnt/export -xpf -
metadata() { (cd "$1" && find . -printf '%p %y %m %U %G %s %n %T@ %l\n' | sed -E 's/^(.* d [^ ]+ [^ ]+ [^ ]+) [0-9]+ [0-9]+/\1/' | sort); }
for there in copy tree; do
    diff -r --no-dereference -x pipe /tmp/tree /mnt/export/$there
    diff <(metadata /tmp/tree) <(metadata /mnt/export/$there)
done
say "cp -a and tar"

# git init, clone, commit and fsck.
export GIT_CONFIG_GLOBAL=/tmp/gitconfig
git config --global user.email a@b.c; git config --global user.name a; git config --global safe.directory '*'; git config --global gc.auto 0
mkdir /mnt/export/origin && cd /mnt/export/origin && git init -q . && cp -r /tmp/tree/deep /tmp/tree/numbers . && git add . && git commit -qm one
git clone -q /mnt/export/origin /mnt/export/clone
cd /mnt/export/clone && [ -z "$(git status --porcelain)" ] && echo more >>numbers && [ "$(git status --porcelain)" = " M numbers" ] && git commit -qam two && git fsck --no-progress
say "git"

# dd with and without O_DIRECT, with fsync.
cd /mnt/export
dd if=/tmp/tree/noise of=direct bs=64k oflag=direct conv=fsync status=none; cmp /tmp/tree/noise direct
dd if=direct of=/tmp/back bs=1M iflag=direct status=none; cmp /tmp/tree/noise /tmp/back
say "dd"

python3 - <<'P'
import errno, os, mmap, fcntl, time
os.chdir("/mnt/export")
def fails(code, f, *a, **k):
    try: f(*a, **k)
    except OSError as e: assert e.errno in (code if isinstance(code, tuple) else (code,)), (f, a, e)
    else: raise AssertionError((f, a, "did not fail"))
# O_EXCL creates a file only once.
os.close(os.open("once", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)); fails(errno.EEXIST, os.open, "once", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
assert os.stat("once").st_mode & 0o7777 == 0o600
# An unlinked open file stays usable (silly rename). The client removes the temporary name soon
# after close.
os.mkdir("silly"); f = open("silly/f", "w+b"); f.write(b"still here"); f.flush(); os.fsync(f.fileno()); os.unlink("silly/f")
assert "f" not in os.listdir("silly"); f.seek(0); assert f.read() == b"still here"; f.close()
end = time.time() + 60
while os.listdir("silly") and time.time() < end: time.sleep(0.05)
assert os.listdir("silly") == [], os.listdir("silly")
# Rename over an open file: the open file keeps its content.
open("old", "w").write("old bytes"); o = open("old"); open("new", "w").write("new bytes"); os.rename("new", "old")
assert open("old").read() == "new bytes" and o.read() == "old bytes"; o.close()
# Rename: over a directory, into itself, across directories.
os.makedirs("r/a/b"); os.makedirs("r/c/d"); fails((errno.ENOTEMPTY, errno.EEXIST), os.rename, "r/a", "r/c"); fails(errno.EINVAL, os.rename, "r/a", "r/a/b/x")
os.rename("r/a/b", "r/c/d/b"); assert os.listdir("r/a") == [] and os.listdir("r/c/d") == ["b"]
# Sparse files: a hole reads as zeros; truncate extends and shortens.
with open("sparse", "w+b") as s:
    s.seek(10 << 20); s.write(b"end"); s.flush(); s.seek(5 << 20); assert s.read(4) == bytes(4); s.truncate(7); assert os.fstat(s.fileno()).st_size == 7; s.truncate(70000); s.seek(0); assert s.read() == bytes(70000)
# Shared mmap.
with open("mapped", "w+b") as s:
    s.truncate(8192); m = mmap.mmap(s.fileno(), 8192); m[4090:4100] = b"0123456789"; m.flush(); m.close(); os.fsync(s.fileno())
assert open("mapped", "rb").read()[4090:4100] == b"0123456789"
# Times, modes, names.
os.utime("once", ns=(1_000_000_001, 2_000_000_002)); st = os.stat("once"); assert (st.st_atime_ns, st.st_mtime_ns) == (1_000_000_001, 2_000_000_002), st
os.chmod("once", 0o4755); assert os.stat("once").st_mode & 0o7777 == 0o4755
fails(errno.ENAMETOOLONG, open, "x" * 256); fails(errno.ENOENT, os.stat, "none"); fails(errno.ENOTDIR, os.stat, "once/x"); fails(errno.EISDIR, open, "r", "w"); fails(errno.ELOOP, os.open, "../export/self", os.O_RDONLY) if os.symlink("self", "self") is None else 0
fails(errno.ENOTEMPTY, os.rmdir, "r"); fails(errno.EEXIST, os.mkdir, "r")
# Appends through two open files of the same client.
a, b = open("log", "ab", 0), open("log", "ab", 0)
for i in range(50): a.write(b"a%03d\n" % i); b.write(b"b%03d\n" % i)
a.close(); b.close(); assert len(open("log").read().split()) == 100
# Locks within one client.
with open("lock", "w+b") as l:
    fcntl.lockf(l, fcntl.LOCK_EX, 10, 0); fcntl.lockf(l, fcntl.LOCK_SH, 5, 2); fcntl.lockf(l, fcntl.LOCK_UN); fcntl.flock(l, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(l, fcntl.LOCK_UN)
st = os.statvfs("."); assert st.f_blocks > 0 and st.f_bfree <= st.f_blocks and st.f_namemax == 255
P
say "system calls"

# Permissions: root is not squashed, and another user has only its own permissions.
chmod 0755 .; mkdir -m 0777 open; echo mine >private; chmod 0600 private
setpriv --reuid=1234 --regid=2345 --clear-groups bash -c '! cat private 2>/dev/null && ! touch here 2>/dev/null && echo x >open/theirs && ! chown 0 open/theirs 2>/dev/null'
[ "$(stat -c %u:%g open/theirs)" = 1234:2345 ]
echo grouped >grouped; chown 0:3456 grouped; chmod 0640 grouped
setpriv --reuid=1234 --regid=2345 --groups=3456 cat grouped | grep -q grouped
say "permissions"

if [ "$VERSION" = 4.2 ]; then
    setfattr -n user.colour -v blue once; [ "$(getfattr --only-values -n user.colour once)" = blue ]; getfattr -d once | grep -q user.colour; setfattr -x user.colour once; refused getfattr -n user.colour once
    say "extended attributes"
    if [ "${HOLES-yes}" = yes ]; then
        fallocate -l 3M reserved; [ "$(stat -c %s reserved)" = 3145728 ]; dd if=/dev/urandom of=reserved bs=64k count=48 conv=notrunc,fsync status=none
        fallocate -p -o 1M -l 1M reserved; cmp -n 1048576 -i 1048576:0 reserved /dev/zero
        python3 - <<'P'
import os
f = os.open("/mnt/export/reserved", os.O_RDONLY); assert os.lseek(f, 0, os.SEEK_HOLE) == 1 << 20 and os.lseek(f, 1 << 20, os.SEEK_DATA) == 2 << 20, (os.lseek(f, 0, os.SEEK_HOLE), os.lseek(f, 1 << 20, os.SEEK_DATA))
P
    fi
    python3 - <<'P'
import os
s = os.open("/mnt/export/direct", os.O_RDONLY); d = os.open("/mnt/export/copied", os.O_CREAT | os.O_RDWR, 0o644); size = os.fstat(s).st_size; done = 0
while done < size:
    n = os.copy_file_range(s, d, size - done, done, done); assert n > 0; done += n
os.fsync(d)
P
    cmp direct copied
    cp --reflink=auto direct reflinked; cmp direct reflinked
    say "holes, copies"
fi
cd /; umount /mnt/export
attach "$VERSION" /export /mnt/export ro
cmp /tmp/tree/noise /mnt/export/copy/noise; refused touch /mnt/export/no
say "a second mount sees the same"
