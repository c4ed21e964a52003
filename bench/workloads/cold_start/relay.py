#!/usr/bin/env python3
"""relay PORT TARGET_PORT MILLISECONDS [COUNTS]: forwards TCP connections of this machine and delays
what it forwards: each way by half of MILLISECONDS, and a new connection by one round trip. It limits
no rate. The file COUNTS has the bytes from the target, the bytes to it, and the connections."""
import asyncio
import collections
import os
import sys
import time

port, target, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 2000
counts_path = sys.argv[4] if len(sys.argv) > 4 else None
FROM_TARGET, TO_TARGET, CONNECTIONS = range(3)
counts = [0, 0, 0]

async def pump(reader, writer, direction):
    queue = collections.deque()
    ready, room = asyncio.Event(), asyncio.Event()
    room.set()

    async def send():
        while True:
            while not queue:
                ready.clear()
                await ready.wait()
            due, data = queue.popleft()
            if len(queue) < 256:
                room.set()
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.close()
    task = asyncio.create_task(send())
    try:
        while True:
            if len(queue) >= 256:
                room.clear()
                await room.wait()
            data = await reader.read(1 << 18)
            counts[direction] += len(data)
            queue.append((time.monotonic() + delay, data))
            ready.set()
            if not data:
                break
        await task
    except Exception:
        task.cancel()
        writer.close()

async def serve(reader, writer):
    counts[CONNECTIONS] += 1
    await asyncio.sleep(2 * delay)
    try:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", target, limit=1 << 20)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, up_writer, TO_TARGET), pump(up_reader, writer, FROM_TARGET),
                         return_exceptions=True)

async def write_counts():
    while True:
        with open(counts_path + ".new", "w") as file:
            print(*counts, file=file)
        os.replace(counts_path + ".new", counts_path)
        await asyncio.sleep(0.1)

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20, backlog=512)
    async with server:
        counter = asyncio.create_task(write_counts()) if counts_path else None
        await server.serve_forever()

asyncio.run(main())
