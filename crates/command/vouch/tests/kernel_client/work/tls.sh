# Mounts with xprtsec=$XPRTSEC and all of $VERSIONS, and works on the mounts while the server's
# certificate is renewed. A mount without TLS must fail.
set -eu
tlshd "$JOB/ca.pem" "$JOB/node.pem" "$JOB/node.key"
trap 'tail -n 20 $JOB/tlshd.log' EXIT
SERVER=server.vouch.test
say() { echo "ok: $*"; }

mkdir -p /tmp/tree/deep && cd /tmp/tree
seq 20000 >numbers; head -c 9000000 /dev/urandom >noise; ln -s numbers link; for n in $(seq 100); do echo $n >deep/$n; done

for version in $VERSIONS; do
    attach $version /export /mnt/$version xprtsec=$XPRTSEC
    grep -q " /mnt/$version .*xprtsec=$XPRTSEC" /proc/mounts
    cp -a /tmp/tree /mnt/$version/tree-$version
    diff -r --no-dereference /tmp/tree /mnt/$version/tree-$version
    dd if=/tmp/tree/noise of=/mnt/$version/direct-$version bs=64k oflag=direct conv=fsync status=none
    dd if=/mnt/$version/direct-$version of=/tmp/back bs=1M iflag=direct status=none
    cmp /tmp/tree/noise /tmp/back
    # A lock and an unlinked open file use state.
    (exec 9>/mnt/$version/lock; flock -x 9; rm /mnt/$version/lock; echo still >&9)
    say "$version $XPRTSEC"
done

# Load goes on while connections break and the certificate is renewed.
first=${VERSIONS%% *}
touch /mnt/$first/begun
end=$((SECONDS + 6)) n=0
while [ $SECONDS -lt $end ]; do
    n=$((n + 1))
    cp /tmp/tree/noise /mnt/$first/load && cmp /tmp/tree/noise /mnt/$first/load
    echo $n >/mnt/$first/count-$((n % 10))
done
[ $n -gt 0 ]
say "load of $n rounds"

mkdir -p /mnt/clear
if mount -n -t nfs -o "vers=$first,port=$PORT,soft,timeo=30,retrans=1" $SERVER:/export /mnt/clear 2>/dev/null; then
    ls /mnt/clear && exit 1
fi
say "no mount without TLS"
for version in $VERSIONS; do umount /mnt/$version; done
trap - EXIT
