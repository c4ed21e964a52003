#!/bin/bash
# Guess: a download that goes on after the file was replaced starts again. The client sends the old ETag in If-Range for this. If
# it "does not match exactly", the server "MUST ignore the Range header field" and sends the whole file (RFC 9110, 13.1.5).
# Seen: sirv and http-server of npm, and the static files of Tornado, aiohttp, Falcon and WhiteNoise, answer with 206 and the
# rest of the new file, though each sends ETags. The result has the first half of the old file, the second half of the new
# one, and the right length. aiohttp looks at a date in If-Range only, the others not at all. Tornado keeps the ETag of the old
# file besides, until it starts again, and says 304 to a client that has the old file. serve-static of Express,
# @fastify/static, Starlette and Flask send the whole new file.
# sirv 3.0.2, http-server 14.1.1, serve-static 2.2.1, fastify 5.12.8, @fastify/static 10.1.11 of npm, tornado 6.6.1, aiohttp
# 3.14.5, falcon 4.4.0, whitenoise 6.12.0, starlette 1.10.0, flask 3.1.3 of PyPI, 2026-12-01. Needs root, node >= 20, npm,
# python3 >= 3.11, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/range.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir files
npm install --silent --prefix node sirv@3.0.2 http-server@14.1.1 serve-static@2.2.1 fastify@5.12.8 @fastify/static@10.1.11
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check tornado==6.6.1 aiohttp==3.14.5 falcon==4.4.0 whitenoise==6.12.0 starlette==1.10.0 uvicorn==0.54.0 flask==3.1.3
cat >node/serve.mjs <<'JS'
import fastify from 'fastify'
import fastifyStatic from '@fastify/static'
import http from 'node:http'
import httpServer from 'http-server'
import serveStatic from 'serve-static'
import sirv from 'sirv'

const root = process.argv[2]
const listen = (port, handle) => http.createServer((request, response) => handle(request, response, () => response.writeHead(404).end())).listen(port, '127.0.0.1')
listen(8001, sirv(root, { dev: true, etag: true }))
httpServer.createServer({ root }).listen(8002, '127.0.0.1')
listen(8003, serveStatic(root))
fastify().register(fastifyStatic, { root }).listen({ port: 8004, host: '127.0.0.1' })
JS
cat >serve.py <<'PYTHON'
import asyncio
import logging
import sys
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, make_server

import falcon
import flask
import tornado.web
import uvicorn
from aiohttp import web
from starlette.staticfiles import StaticFiles
from whitenoise import WhiteNoise

root = sys.argv[1]
logging.disable()

class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass

def wsgi(port, application):
    Thread(target=make_server("127.0.0.1", port, application, handler_class=Quiet).serve_forever, daemon=True).start()

application = falcon.App()
application.add_static_route("/", root)
wsgi(8012, application)
wsgi(8013, WhiteNoise(None, root=root, autorefresh=True))
wsgi(8015, flask.Flask("files", static_folder=root, static_url_path="").wsgi_app)
Thread(target=uvicorn.run, args=(StaticFiles(directory=root),), kwargs={"port": 8014, "log_level": "critical"}, daemon=True).start()

async def main():
    tornado.web.Application([("/(.*)", tornado.web.StaticFileHandler, {"path": root})]).listen(8010, "127.0.0.1")
    application = web.Application()
    application.router.add_static("/", root)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 8011).start()
    await asyncio.Event().wait()

asyncio.run(main())
PYTHON
cat >test.py <<'PYTHON'
import os
import time
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

OLD, NEW = b"old " * 250, b"new " * 250

def write(data, seconds):
    with open("files/new name", "wb") as file:
        file.write(data)
    os.utime("files/new name", (seconds, seconds))
    os.rename("files/new name", "files/data.bin")

def get(port, **headers):
    for step in range(150):
        try:
            return urlopen(Request(f"http://127.0.0.1:{port}/data.bin", headers={name.replace("_", "-"): value for name, value in headers.items()}))
        except HTTPError as error:
            return error
        except URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.2)

for port, name in {8001: "sirv", 8002: "http-server", 8010: "Tornado", 8011: "aiohttp", 8012: "Falcon", 8013: "WhiteNoise",
                   8003: "serve-static", 8004: "@fastify/static", 8014: "Starlette", 8015: "Flask"}.items():
    write(OLD, 1790000000)
    answer = get(port, Range="bytes=0-499")
    etag, half = answer.headers["ETag"], answer.read()
    write(NEW, 1790001000)
    known = get(port, If_None_Match=etag).status
    answer = get(port, Range="bytes=500-", If_Range=etag)
    result = half + answer.read() if answer.status == 206 else answer.read()
    date = get(port, Range="bytes=500-", If_Range="Mon, 21 Sep 2026 14:13:20 GMT").status
    print(f"{name}: {answer.status}, {'new file' if result == NEW else 'mixed' if result == OLD[:500] + NEW[500:] else 'other'}, by date {date}, old ETag in If-None-Match {known}")
PYTHON
cat >inner <<'INNER'
ip link set lo up
node node/serve.mjs "$PWD/files" >node.log 2>&1 &
python/bin/python serve.py "$PWD/files" >python.log 2>&1 &
python/bin/python test.py
INNER
timeout -k 5 120 unshare --net --pid --fork --kill-child bash inner | tee seen
[ "$(cat seen)" = "sirv: 206, mixed, by date 206, old ETag in If-None-Match 200
http-server: 206, mixed, by date 206, old ETag in If-None-Match 200
Tornado: 206, mixed, by date 206, old ETag in If-None-Match 304
aiohttp: 206, mixed, by date 200, old ETag in If-None-Match 200
Falcon: 206, mixed, by date 206, old ETag in If-None-Match 200
WhiteNoise: 206, mixed, by date 206, old ETag in If-None-Match 200
serve-static: 200, new file, by date 200, old ETag in If-None-Match 200
@fastify/static: 200, new file, by date 200, old ETag in If-None-Match 200
Starlette: 200, new file, by date 200, old ETag in If-None-Match 200
Flask: 200, new file, by date 200, old ETag in If-None-Match 200" ] || { cat node.log python.log; exit 1; }
echo "as seen on 2026-12-01"
