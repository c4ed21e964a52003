# Three clients, each in a network namespace and with a name of its own: a history of their calls in which the
# server restarts when it sees the file `restart`, and then writes `done` to it; then histories without.
set -eu
busybox insmod "$GUEST_ROOT/usr/lib/uml/modules/$(uname -r)/kernel/drivers/net/macvlan.ko"
mkdir -p /run/netns
mounts=()
for number in 1 2 3; do
    ip netns add "client$number"
    ip link add link vec0 name "mac$number" type macvlan mode bridge
    ip link set "mac$number" netns "client$number"
    enter=(nsenter "--net=/run/netns/client$number")
    "${enter[@]}" ip addr add "${SERVER%.*}.1$number/24" dev "mac$number"
    "${enter[@]}" ip link set "mac$number" up
    echo "client$number" >/sys/module/nfs/parameters/nfs4_unique_id
    "${enter[@]}" bash -c "attach 4.2 /export /mnt/$number"
    mounts+=(--mount "/mnt/$number")
done
check() { ./vouch bench consistency "${mounts[@]}" --calls 60 --out /tmp/violation "$@" || { cat /tmp/violation/*; exit 1; }; }
# A direct read asks the server, also under a delegation.
restart='printf wait | dd of=/mnt/1/new conv=fsync status=none; mv /mnt/1/new /mnt/1/restart
    until [ "$(dd if=/mnt/1/restart iflag=direct bs=4 status=none)" = done ]; do sleep 0.1; done'
check --histories 1 --restart "$restart"
check --histories 2
