"""idmapped_mount FROM TO ID SHIFT: mounts FROM on TO, with ID shown as ID + SHIFT (mount_setattr(2))."""

import ctypes
import os
import signal
import sys

OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
CLONE_NEWUSER, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP = 0x10000000, 1, 4, 0x100000

libc = ctypes.CDLL(None, use_errno=True)


def call(name, number, *args):
    result = libc.syscall(number, *args)
    if result < 0:
        sys.exit(f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


source, target, first, shift = sys.argv[1].encode(), sys.argv[2].encode(), int(sys.argv[3]), int(sys.argv[4])
child = os.fork()
if child == 0:
    libc.unshare(CLONE_NEWUSER)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, os.WUNTRACED)
for kind in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{kind}", "w") as f:
        f.write(f"{first} {first + shift} 1\n")
namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
tree = call("open_tree", OPEN_TREE, AT_FDCWD, source, OPEN_TREE_CLONE | os.O_CLOEXEC)
attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_IDMAP, 0, 0, namespace)
call("mount_setattr", MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, ctypes.sizeof(attributes))
call("move_mount", MOVE_MOUNT, tree, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
