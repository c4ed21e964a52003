# Reads files of a tree that stay open while their server changes.
set -eu
attach "$VERSION" /export /mnt/tree hard
exec python3 - <<'P'
import fcntl, os
os.chdir("/mnt/tree")
large, locked = os.open("large", os.O_RDONLY), os.open("locked", os.O_RDONLY)
fcntl.lockf(locked, fcntl.LOCK_SH)
before = os.fstat(large)
length = before.st_size

expected = [b"".join(b"%08x" % (at // 4096 + n) * 512 for n in range(256)) for at in range(0, length, 1 << 20)]
for turn in range(2):
    for piece, at in zip(expected, range(0, length, 1 << 20)):
        # Not from the cache.
        for file in large, locked:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(large, 1 << 20, at) == piece, at
        assert os.pread(locked, 7000, 0) == b"locked\n" * 1000
    assert sorted(os.listdir(".")) == ["large", "locked"]
after = os.stat("large")
assert (after.st_ino, after.st_dev, after.st_ctime_ns) == (before.st_ino, before.st_dev, before.st_ctime_ns)
fcntl.lockf(locked, fcntl.LOCK_UN)
print("ok: read", 2 * length, "bytes")
P
