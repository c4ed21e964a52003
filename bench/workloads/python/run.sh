#!/usr/bin/env bash
# run.sh DIR ROUNDS MILLISECONDS WAY...: Python reads a Parquet data set and imports modules by several ways, with the same nginx behind
# all of them: vouch (the database's directory), mount (the same by `vouch mount`), http (the files). s3 is another
# server of the same files, versitygw. MILLISECONDS: round trip, which relay.py adds; 0 is without relay.
#
# VOUCH is the command, PYTHON an interpreter with vouch[fsspec], pyarrow, aiohttp and s3fs. SIZE_MIB: bytes of the data set,
# which is made in DIR at the first run. Prints way, work,
# milliseconds, rows, then seconds of the first and the second read, for each round. WORKS: see read.py.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
rounds=$2 delay=$3
shift 3
: "${VOUCH:=vouch}" "${PYTHON:=python3}" "${SIZE_MIB:=4096}" "${WORKS:=modules row_groups columns all}"
export VOUCH_STATE=$PWD/state VOUCH_CACHE=$PWD/cache VOUCH_CONFIG=/dev/null
free_port() { "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
wait_for() { for _ in $(seq 200); do (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.05; done; exit 1; }
started=()
trap '"$VOUCH" umount mnt >/dev/null 2>&1 || true; kill "${started[@]}" 2>/dev/null || true; wait' EXIT

if [ ! -e www/db/manifest ]; then
    "$PYTHON" - "$SIZE_MIB" <<'PYTHON'
import os, sys
import numpy, pyarrow, pyarrow.parquet
os.makedirs("www/data")
# 16 columns of numbers that do not compress, in row groups of 128 Ki rows: a column chunk of 1 MiB.
rows = int(sys.argv[1]) * (1 << 20) // (8 * 16 * 8)
for part in range(8):
    order = numpy.random.default_rng(part)
    table = pyarrow.table({f"c{n}": order.random(rows) for n in range(16)})
    pyarrow.parquet.write_table(table, f"www/data/{part}.parquet", row_group_size=1 << 17, use_dictionary=False)
PYTHON
    mkdir -p www/data/site/sample
    for n in $(seq 0 999); do printf 'N = %s\n\n\ndef double():\n    """Twice the number of this module."""\n    return 2 * N\n' "$n" >"www/data/site/sample/m$n.py"; done
    : >www/data/site/sample/__init__.py
    "$VOUCH" keygen --out keys >/dev/null
    "$VOUCH" publish www/data --db www/db --keys keys --location localhost --duration 365d >/dev/null
fi
name=$("$VOUCH" name keys --location localhost)
server=$(free_port) port=$(free_port)
cat >nginx.conf <<NGINX
daemon off; worker_processes 2; pid $PWD/nginx.pid; error_log $PWD/nginx.log;
events { worker_connections 1024; }
http {
    access_log off; sendfile on; keepalive_requests 100000; client_body_temp_path $PWD/tmp; proxy_temp_path $PWD/tmp;
    fastcgi_temp_path $PWD/tmp; uwsgi_temp_path $PWD/tmp; scgi_temp_path $PWD/tmp;
    server { listen 127.0.0.1:$server; root $PWD/www; }
}
NGINX
chmod 755 . www
nginx -c "$PWD/nginx.conf" -e nginx.log & started+=($!)
if [[ " $* " == *" s3 "* ]]; then
    server_s3=$(free_port) port_s3=$(free_port)
    mkdir -p s3 && ln -sfn "$PWD/www/data" s3/data
    versitygw --access key --secret secretsecret --port "127.0.0.1:$server_s3" --quiet posix s3 & started+=($!)
    wait_for "$server_s3"
fi
wait_for "$server"
if [ "$delay" = 0 ]; then
    port=$server port_s3=${server_s3:-}
else
    "$PYTHON" "$here/../cold_start/relay.py" "$port" "$server" "$delay" & started+=($!)
    [ -z "${server_s3:-}" ] || { "$PYTHON" "$here/../cold_start/relay.py" "$port_s3" "$server_s3" "$delay" & started+=($!); }
    wait_for "$port"
fi
url=http://127.0.0.1:$port
for _ in $(seq "$rounds"); do
    for work in $WORKS; do
        for way in "$@"; do
            rm -rf cache state
            case $way in
            vouch) line=$("$PYTHON" "$here/read.py" vouch "$work" "$name" "$url/db") ;;
            http) line=$("$PYTHON" "$here/read.py" http "$work" "$url/data") ;;
            s3) line=$("$PYTHON" "$here/read.py" s3 "$work" data "http://127.0.0.1:$port_s3") ;;
            mount)
                mkdir -p mnt
                "$VOUCH" mount --background --log-file mount.log --only-replicas --replica "$url/db" "$name" mnt >/dev/null
                line=$("$PYTHON" "$here/read.py" local "$work" "$PWD/mnt")
                "$VOUCH" umount mnt ;;
            esac
            echo "$way $work $delay $line"
        done
    done
done
