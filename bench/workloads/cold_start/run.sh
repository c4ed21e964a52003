#!/usr/bin/env bash
# run.sh DIR WAY...: the start of a program from a cold client, by several ways to the same bytes.
#
# DIR has: www/db (vouch publish), www/repo (ostree, archive mode, branch `sample`), www/ca (casync
# make sample.caidx sample.castr), www/tree (the files), name (the tree's name), and files.txt (the
# files that the program opens, one a line). A web server serves www on a port, with an access log of
# `URI STATUS BYTES` in DIR/access.log, and relay.py delays it: URL is the relay's.
# Ways: vouch ostree_all ostree_listed casync_mount casync_extract curl_one curl_eight.
set -u
cd "$1" && shift
: "${URL:=http://127.0.0.1:48412}" "${VOUCH:=vouch}"
D=$PWD
export VOUCH_STATE=$D/state VOUCH_CACHE=$D/cache VOUCH_CONFIG=/dev/null

now() { date +%s.%N; }
report() {
    local end=$(now)
    sleep 0.3
    awk -v t="$(echo "$end - $2" | bc)" -v what="$1" '{n++; b += $3} END {printf "%-42s %7.2f s  %5d requests  %6.1f MB\n", what, t, n, b / 1e6}' access.log
}
program() { # ROOT
    LD_LIBRARY_PATH=$1/usr/lib/x86_64-linux-gnu PYTHONHOME=$1/usr PYTHONPATH=$1/usr/lib/python3/dist-packages \
        PYTHONDONTWRITEBYTECODE=1 "$1/usr/bin/python3.11" -W ignore "$1/prog.py" >/dev/null || echo "the program failed"
}
ostree_client() {
    rm -rf out client
    ostree --repo=client init --mode=bare-user-only
    ostree --repo=client remote add --no-gpg-verify o "$URL/repo"
}

for way in "$@"; do
    rm -rf out; mkdir -p mnt; : >access.log
    case $way in
    vouch)
        rm -rf state cache; began=$(now)
        "$VOUCH" mount --background --log-file mount.log --only-replicas --replica "$URL/db" "$(cat name)" mnt >/dev/null
        program "$D/mnt"; report "vouch: mount, program" "$began"; "$VOUCH" umount mnt ;;
    ostree_all)
        ostree_client; began=$(now)
        ostree --repo=client pull o sample >/dev/null && ostree --repo=client checkout -U -H o:sample out
        program "$D/out"; report "ostree: pull all, check out, program" "$began" ;;
    ostree_listed)
        ostree_client; began=$(now)
        # shellcheck disable=SC2046
        ostree --repo=client pull $(sed 's#.*#--subpath=/&#' files.txt) o sample >/dev/null
        report "ostree: pull of a list of these files" "$began" ;;
    casync_mount)
        began=$(now); casync mount --store="$URL/ca/sample.castr" "$URL/ca/sample.caidx" mnt >/dev/null 2>&1 & pid=$!
        until mountpoint -q mnt; do sleep 0.05; done
        program "$D/mnt"; report "casync: mount, program" "$began"; fusermount3 -u mnt; wait $pid ;;
    casync_extract)
        began=$(now); casync extract --store="$URL/ca/sample.castr" "$URL/ca/sample.caidx" out >/dev/null 2>&1
        program "$D/out"; report "casync: extract all, program" "$began" ;;
    curl_one | curl_eight)
        sed "s#.*#url=\"$URL/tree/&\"\noutput=\"out/&\"#" files.txt >curl.cfg
        parallel=(); [ $way = curl_one ] || parallel=(-Z --parallel-max 8)
        began=$(now); curl -s "${parallel[@]}" --no-progress-meter --create-dirs -K curl.cfg
        report "curl: these files, $way" "$began" ;;
    esac
done
