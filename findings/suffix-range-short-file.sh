#!/bin/bash
# Guess: a client reads the end of a file by `Range: bytes=-65536`, as readers of ZIP and Parquet over HTTP do. Of a shorter file
# it gets all: "If the selected representation is shorter than the specified suffix-length, the entire representation is
# used" (RFC 9110, 14.1.2).
# Seen: Express, @fastify/static and Flask answer 416, so remotezip opens larger archives on them, but none below 64 KiB.
# http-server of npm answers 416 for each suffix. sirv answers 206 with the first bytes of the file for each suffix, one more than
# asked for ("bytes=-4" gives "bytes 0-4/100"), so a reader takes wrong bytes for the end: it opens small archives, and calls
# larger ones damaged. Starlette, aiohttp and Falcon do as the RFC says.
# express 5.3.0, fastify 5.12.8, @fastify/static 10.1.11, http-server 14.1.1, sirv 3.0.2 of npm, flask 3.1.3, werkzeug 3.1.9,
# starlette 1.10.0, aiohttp 3.14.5, falcon 4.4.0, remotezip 0.12.6 of PyPI, 2026-12-01. Needs root, node >= 20, npm,
# python3 >= 3.11, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/range.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir files
npm install --silent --prefix node express@5.3.0 fastify@5.12.8 @fastify/static@10.1.11 http-server@14.1.1 sirv@3.0.2
python=${PYTHON:-$(ls "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3 2>/dev/null | tail -n 1 || true)}
"${python:-python3}" -m venv python
python/bin/pip install -q --disable-pip-version-check flask==3.1.3 werkzeug==3.1.9 starlette==1.10.0 uvicorn==0.54.0 aiohttp==3.14.5 falcon==4.4.0 remotezip==0.12.6
cat >node/serve.mjs <<'JS'
import express from 'express'
import fastify from 'fastify'
import fastifyStatic from '@fastify/static'
import http from 'node:http'
import httpServer from 'http-server'
import sirv from 'sirv'

const root = process.argv[2], host = '127.0.0.1'
const files = sirv(root, { dev: true })
express().use(express.static(root)).listen(8001, host)
fastify().register(fastifyStatic, { root }).listen({ port: 8002, host })
httpServer.createServer({ root }).listen(8003, host)
http.createServer((request, response) => files(request, response, () => response.writeHead(404).end())).listen(8004, host)
JS
cat >serve.py <<'PYTHON'
import logging
import sys
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, make_server

import falcon
import flask
import uvicorn
from aiohttp import web
from starlette.staticfiles import StaticFiles

root = sys.argv[1]
logging.disable()

class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass

def wsgi(port, application):
    Thread(target=make_server("127.0.0.1", port, application, handler_class=Quiet).serve_forever, daemon=True).start()

wsgi(8005, flask.Flask("files", static_folder=root, static_url_path="").wsgi_app)
application = falcon.App()
application.add_static_route("/", root)
wsgi(8008, application)
Thread(target=uvicorn.run, args=(StaticFiles(directory=root),), kwargs={"port": 8006, "log_level": "critical"}, daemon=True).start()
application = web.Application()
application.router.add_static("/", root)
web.run_app(application, host="127.0.0.1", port=8007, print=None)
PYTHON
cat >test.py <<'PYTHON'
import os
import time
import zipfile

import requests
from remotezip import RemoteZip

with open("files/data", "wb") as file:
    file.write(b"0123456789" * 10)
for name, size in ("small", 100), ("large", 100000):
    with zipfile.ZipFile(f"files/{name}.zip", "w") as archive:
        archive.writestr("member", os.urandom(size))

def get(port, suffix):
    for step in range(150):
        try:
            answer = requests.get(f"http://127.0.0.1:{port}/data", headers={"Range": f"bytes=-{suffix}"})
            return f"{answer.status_code} {answer.headers.get('Content-Range') if answer.status_code == 206 else ''}".strip()
        except requests.ConnectionError:
            time.sleep(0.2)

def members(port, name):
    try:
        with RemoteZip(f"http://127.0.0.1:{port}/{name}.zip") as archive:
            return "opens" if len(archive.read("member")) else "empty"
    except Exception as error:
        return type(error).__name__

for port, name in enumerate("Express,@fastify/static,http-server,sirv,Flask,Starlette,aiohttp,Falcon".split(","), 8001):
    print(f"{name}: -4 {get(port, 4)}, -1000 {get(port, 1000)}, archives: small {members(port, 'small')}, large {members(port, 'large')}")
PYTHON
cat >inner <<'INNER'
ip link set lo up
node node/serve.mjs "$PWD/files" >node.log 2>&1 &
python/bin/python serve.py "$PWD/files" >python.log 2>&1 &
python/bin/python test.py
INNER
timeout -k 5 120 unshare --net --pid --fork --kill-child bash inner | tee seen
[ "$(cat seen)" = "Express: -4 206 bytes 96-99/100, -1000 416, archives: small RemoteIOError, large opens
@fastify/static: -4 206 bytes 96-99/100, -1000 416, archives: small RemoteIOError, large opens
http-server: -4 416, -1000 416, archives: small RemoteIOError, large RemoteIOError
sirv: -4 206 bytes 0-4/100, -1000 206 bytes 0-99/100, archives: small opens, large BadZipFile
Flask: -4 206 bytes 96-99/100, -1000 416, archives: small RemoteIOError, large opens
Starlette: -4 206 bytes 96-99/100, -1000 206 bytes 0-99/100, archives: small opens, large opens
aiohttp: -4 206 bytes 96-99/100, -1000 206 bytes 0-99/100, archives: small opens, large opens
Falcon: -4 206 bytes 96-99/100, -1000 206 bytes 0-99/100, archives: small opens, large opens" ] || { cat node.log python.log; exit 1; }
echo "as seen on 2026-12-01"
