#!/usr/bin/env python3
"""csi_publish.py SOCKET DIR NAME PODS [REPLICA]: NodePublishVolume of `vouch csi`, as kubelet calls it.

As root, with grpcio. DIR is a new directory for targets. The tree NAME must not be mounted by the
driver yet. Prints the time of the first publication, which mounts the tree, of PODS further ones,
and the memory that the driver, the mount and the kernel's slab use for each further one.
"""
import glob
import os
import statistics
import sys
import time

import grpc

socket, directory, name, pods = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
replica = sys.argv[5] if len(sys.argv) > 5 else None

def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])

def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data

def entry(number, key, value):
    return field(number, field(1, key.encode()) + field(2, value.encode()))

def memory():
    """Kilobytes: proportional set sizes of the driver's and the mounts' processes; unreclaimable slab."""
    processes = 0
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
            if not words[0].endswith(b"vouch") or (b"csi" not in words and b"/csi" not in b" ".join(words)):
                continue
            rollup = open(os.path.dirname(path) + "/smaps_rollup").read()
        except OSError:
            continue
        processes += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    slab = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("SUnreclaim"))
    return processes, slab

capability = field(2, b"") + field(3, b"\x08\x03")
attributes = {"name": name} | ({"replica": replica, "onlyReplicas": "true"} if replica else {})
context = b"".join(entry(8, key, value) for key, value in attributes.items())
channel = grpc.insecure_channel("unix:" + socket, [("grpc.default_authority", "localhost")])
publish = channel.unary_unary("/csi.v1.Node/NodePublishVolume")
unpublish = channel.unary_unary("/csi.v1.Node/NodeUnpublishVolume")
grpc.channel_ready_future(channel).result(10)

def timed(pod):
    target = f"{directory}/{pod}/mount"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    request = field(1, f"volume-{pod}".encode()) + field(4, target.encode()) + field(5, capability)
    began = time.perf_counter()
    publish(request + varint(6 << 3) + b"\x01" + context)
    return time.perf_counter() - began

def removed(pod):
    unpublish(field(1, f"volume-{pod}".encode()) + field(2, f"{directory}/{pod}/mount".encode()))

first = timed("first")
for pod in range(20):
    timed(f"warm-{pod}")
time.sleep(1)
before = memory()
times = sorted(timed(pod) for pod in range(pods))
time.sleep(1)
after = memory()
print(f"first publication {first * 1e3:.1f} ms")
print(f"of a mounted tree: median {statistics.median(times) * 1e3:.2f} ms, "
      f"99% {times[len(times) * 99 // 100] * 1e3:.2f} ms, longest {times[-1] * 1e3:.2f} ms")
print(f"each further pod: {(after[0] - before[0]) / pods:.1f} KiB of processes, "
      f"{(after[1] - before[1]) / pods:.1f} KiB of unreclaimable slab")
for pod in ["first", *(f"warm-{pod}" for pod in range(20)), *range(pods)]:
    removed(pod)
