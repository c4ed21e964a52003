# Reads each file of a published tree through a mount, in the order of the list `order`, over a network
# with round trips of 20 ms.
set -eu
for module in net/sched/sch_netem fs/fuse/fuse; do
    busybox insmod "$GUEST_ROOT/usr/lib/uml/modules/$(uname -r)/kernel/$module.ko"
done
tc qdisc add dev vec0 root netem delay 20ms
export HOME=/tmp VOUCH_CONFIG=/dev/null VOUCH_STATE=/tmp/state VOUCH_CACHE=/tmp/cache
mkdir /mnt/tree
"$VOUCH" mount --background --log-file /tmp/mount.log --only-replicas --replica "$REPLICA" "$NAME" /mnt/tree
trap 'tail -n 20 /tmp/mount.log' EXIT
cd /mnt/tree
echo "sum: $(xargs cat <"$JOB/order" | sha256sum)"
cd /
"$VOUCH" umount /mnt/tree
trap - EXIT
tc -s qdisc show dev vec0 | grep -q 'Sent [1-9]'
echo "ok: read"
