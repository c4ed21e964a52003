#!/bin/bash
# Guess: a program that writes a file by PUT, or deletes it, through a caching HTTP client sees its own write in the next GET, as
# users of WebDAV and S3 need. A cache "MUST invalidate the target URI" after a PUT, POST or DELETE without an error (RFC
# 9111, 4.4).
# Seen: got, "RFC compliant caching" by its readme, and axios-cache-interceptor of npm, and aiohttp-client-cache and requests-cache of
# PyPI with cache_control=True, give the old file until its max-age ends, and a deleted file too. CacheControl does so after a POST.
# undici and make-fetch-happen of npm, and hishel with rfc=True, give what is there.
# got 14.6.6, axios-cache-interceptor 1.12.3, axios 1.21.1, undici 7.30.2, make-fetch-happen 15.0.6 of npm,
# aiohttp-client-cache 0.15.0, CacheControl 0.14.4, requests-cache 1.3.3, hishel 2.0.0 of PyPI, 2026-12-01. Needs root,
# node >= 20, npm, python3 >= 3.11, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/caches.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --prefix node got@14.6.6 axios@1.21.1 axios-cache-interceptor@1.12.3 undici@7.30.2 make-fetch-happen@15.0.6
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check "hishel[httpx]==2.0.0" aiohttp-client-cache==0.15.0 requests-cache==1.3.3 CacheControl==0.14.4
cat >origin.py <<'PYTHON'
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files = {}

    def log_message(self, *arguments):
        pass

    def answer(self, status, content=b""):
        self.send_response(status)
        self.send_header("Cache-Control", "max-age=600")
        self.send_header("Content-Length", len(content))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        content = self.files.get(self.path)
        self.answer(200 if content else 404, content or b"none")

    def do_PUT(self):
        self.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    do_POST = do_PUT

    def do_DELETE(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        del self.files[self.path]
        self.answer(200)

ThreadingHTTPServer(("127.0.0.1", 9000), Origin).serve_forever()
PYTHON
cat >clients.py <<'PYTHON'
import asyncio
import time
from urllib.request import Request, urlopen

import requests
import requests_cache
from aiohttp_client_cache import CacheBackend, CachedSession
from cachecontrol import CacheControl
from hishel import SqliteStorage
from hishel.httpx import CacheClient

async def run(name, call):
    print(f"{name}:", end="")
    for method in "PUT", "POST", "DELETE":
        url = f"http://127.0.0.1:9000/{name}/{method}"
        urlopen(Request(url, method="PUT", data=b"old"))
        await call("GET", url, None)
        await call(method, url, b"new")
        print(f" {method} {await call('GET', url, None)}", end="")
    print()

async def main():
    async with CachedSession(cache=CacheBackend(cache_control=True)) as session:
        async def call(method, url, data):
            async with session.request(method, url, data=data) as answer:
                return await answer.text()
        await run("aiohttp-client-cache", call)
    def blocking(function):
        async def call(method, url, data):
            return function(method, url, data).text
        return call
    client = CacheClient(storage=SqliteStorage(database_path="hishel.db"), rfc=True)
    await run("hishel", blocking(lambda method, url, data: client.request(method, url, content=data)))
    session = requests_cache.CachedSession(backend="memory", cache_control=True)
    await run("requests-cache", blocking(lambda method, url, data: session.request(method, url, data=data)))
    cached = CacheControl(requests.Session())
    await run("CacheControl", blocking(lambda method, url, data: cached.request(method, url, data=data)))

for step in range(100):
    try:
        urlopen(Request("http://127.0.0.1:9000/", method="PUT", data=b"old"))
        break
    except OSError:
        time.sleep(0.2)
asyncio.run(main())
PYTHON
cat >node/clients.mjs <<'JS'
import axios from 'axios'
import { setupCache } from 'axios-cache-interceptor'
import { got } from 'got'
import fetch from 'make-fetch-happen'
import { Agent, cacheStores, interceptors, request } from 'undici'

const store = new Map(), cached = setupCache(axios.create({ validateStatus: null }))
const dispatcher = new Agent().compose(interceptors.cache({ store: new cacheStores.MemoryCacheStore() }))
const clients = {
  got: async (method, url, body) => (await got(url, { method, body, cache: store, throwHttpErrors: false })).body,
  'axios-cache-interceptor': async (method, url, data) => (await cached.request({ method, url, data, responseType: 'text' })).data,
  undici: async (method, url, body) => (await request(url, { method, body, dispatcher })).body.text(),
  'make-fetch-happen': async (method, url, body) => (await fetch(url, { method, body, cachePath: 'cache' })).text()
}
for (const [name, call] of Object.entries(clients)) {
  const seen = []
  for (const method of ['PUT', 'POST', 'DELETE']) {
    const url = `http://127.0.0.1:9000/${name}/${method}`
    await (await globalThis.fetch(url, { method: 'PUT', body: 'old' })).text()
    await call('GET', url)
    await call(method, url, 'new')
    seen.push(`${method} ${await call('GET', url)}`)
  }
  console.log(`${name}:`, ...seen)
}
process.exit(0)
JS
cat >inner <<'INNER'
ip link set lo up
python/bin/python origin.py 2>origin.log &
python/bin/python clients.py
node node/clients.mjs
INNER
timeout -k 5 120 unshare --net --pid --fork --kill-child bash inner | tee seen
[ "$(cat seen)" = "aiohttp-client-cache: PUT old POST old DELETE old
hishel: PUT new POST new DELETE none
requests-cache: PUT old POST old DELETE old
CacheControl: PUT new POST old DELETE none
got: PUT old POST old DELETE old
axios-cache-interceptor: PUT old POST old DELETE old
undici: PUT new POST new DELETE none
make-fetch-happen: PUT new POST new DELETE none" ] || { cat origin.log; exit 1; }
echo "as seen on 2026-12-01"
