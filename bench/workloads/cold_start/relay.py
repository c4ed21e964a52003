#!/usr/bin/env python3
"""relay PORT TARGET_PORT MILLISECONDS: forwards TCP connections of this machine and delays what it
forwards: each way by half of MILLISECONDS, and a new connection by one round trip."""
import asyncio
import collections
import sys
import time

port, target, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 2000

async def pump(reader, writer):
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
            queue.append((time.monotonic() + delay, data))
            ready.set()
            if not data:
                break
        await task
    except Exception:
        task.cancel()
        writer.close()

async def serve(reader, writer):
    await asyncio.sleep(2 * delay)
    try:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", target, limit=1 << 20)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer), return_exceptions=True)

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20, backlog=512)
    async with server:
        await server.serve_forever()

asyncio.run(main())
