#!/bin/bash
# Guess: versitygw, the S3 gateway for directories, keeps "logs//day" and "logs/day" apart, as S3 does, or refuses the first:
# a file system has no such name. It refuses "logs/day/more" after "logs/day" for that reason (ObjectParentIsFile).
# Seen: it stores "logs//day" as "logs/day", with 200. The object of the other name has the new bytes and there is no error.
# Reads by both names agree. The list has one name, and the list of the prefix "logs//" is empty. So a copy between
# two buckets loses one of two objects, and a tool that compares lists sends the other again at each run.
# versitygw 1.8.0 of the Go module proxy, boto3 1.44.8 of PyPI, 2026-12-01. Needs root, Go, python3 >= 3.10, unshare(1), extended
# attributes of users. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/versitygw.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
cd "$work"
mkdir -m 700 store
GOBIN=$work GOFLAGS= GOWORK=off go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
python3 -m venv python
python/bin/pip install -q --disable-pip-version-check boto3==1.44.8
cat >test.py <<'PYTHON'
import time

import boto3
from botocore.exceptions import BotoCoreError, ClientError

client = boto3.client("s3", endpoint_url="http://127.0.0.1:7070", aws_access_key_id="access", aws_secret_access_key="secret-of-a-test", region_name="us-east-1")
for step in range(50):
    try:
        client.create_bucket(Bucket="files")
        break
    except BotoCoreError:
        time.sleep(0.2)

def names(prefix):
    return [entry["Key"] for entry in client.list_objects_v2(Bucket="files", Prefix=prefix).get("Contents", [])]

for key in "logs/day", "logs//day", "logs/./day", "logs/day/more":
    try:
        answer = client.put_object(Bucket="files", Key=key, Body=f"written as {key}".encode())
        print(f"PUT {key}:", answer["ResponseMetadata"]["HTTPStatusCode"])
    except ClientError as error:
        print(f"PUT {key}:", error.response["Error"]["Code"])
    print("GET logs/day:", client.get_object(Bucket="files", Key="logs/day")["Body"].read().decode())
print("list of logs/:", names("logs/"))
print("list of logs//:", names("logs//"))
PYTHON
cat >inner <<'INNER'
set -u
ip link set lo up
ROOT_ACCESS_KEY=access ROOT_SECRET_KEY=secret-of-a-test ./versitygw --port 127.0.0.1:7070 posix "$PWD/store" >log 2>&1 &
python/bin/python test.py
INNER
timeout -k 5 120 unshare --net --pid --fork --kill-child bash inner | tee seen
[ "$(cat seen)" = "PUT logs/day: 200
GET logs/day: written as logs/day
PUT logs//day: 200
GET logs/day: written as logs//day
PUT logs/./day: 200
GET logs/day: written as logs/./day
PUT logs/day/more: ObjectParentIsFile
GET logs/day: written as logs/./day
list of logs/: ['logs/day']
list of logs//: []" ] || { cat log; exit 1; }
echo "as seen on 2026-12-01"
