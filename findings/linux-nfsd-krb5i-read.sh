#!/bin/bash
# Guess: a file can be read over sec=krb5i as over sec=krb5 and sec=krb5p, at any number of READs in
# flight.
# Seen: with sec=krb5i, nfsd of Linux 7.3.4 answers READs that arrive together with replies whose body
# has a wrong MIC, while the verifier is right: several of them carry the same token, number and checksum,
# as if it was written into a page that still waited to be sent. Linux's own client then gives EIO for a
# file of 32 MiB (rsize=65536); one READ at a time works, and krb5 and krb5p work.
# linux-image-cloud-amd64 of trixie-backports (7.3.4), nfs-utils 2.8.3 of trixie, 2026-11-29, server and
# client in one guest under software emulation. Needs root, mmdebstrap, qemu-system-x86, e2fsprogs.
# Exit 0: as seen. Takes about five minutes.
set -eu
work=$(mktemp -d /var/tmp/nfsd-krb5i.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
printf 'deb %s trixie main\ndeb %s trixie-backports main\n' "$mirror" "$mirror" |
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=linux-image-cloud-amd64/trixie-backports,nfs-kernel-server,nfs-common,krb5-kdc,krb5-admin-server,iproute2,procps,kmod trixie "$root" -
kernel=$(ls "$root"/boot/vmlinuz-* | tail -n 1)
echo "kernel ${kernel##*/vmlinuz-}, nfs-utils $(chroot "$root" dpkg-query -W -f '${Version}' nfs-kernel-server)"
printf '127.0.0.1 localhost\n10.0.2.15 server.test\n' >"$root/etc/hosts"
printf '[libdefaults]\n default_realm = TEST\n dns_lookup_kdc = false\n rdns = false\n dns_canonicalize_hostname = false\n[realms]\n TEST = {\n  kdc = 10.0.2.15:88\n }\n[domain_realm]\n .test = TEST\n' >"$root/etc/krb5.conf"
echo '/srv *(rw,no_root_squash,no_subtree_check,fsid=0,insecure,sec=krb5:krb5i:krb5p)' >"$root/etc/exports"
cat >"$root/guest" <<'GUEST'
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc 2>/dev/null; mount -t sysfs sys /sys 2>/dev/null; mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
exec >/dev/ttyS0 2>&1
hostname server.test; modprobe virtio_net 2>/dev/null; ip link set lo up
device=$(ls /sys/class/net | grep -v lo | head -n 1); ip address add 10.0.2.15/24 dev "$device"; ip link set "$device" up
kdb5_util create -s -P throwaway -r TEST >/dev/null
for name in nfs host; do kadmin.local addprinc -randkey "$name/server.test" >/dev/null; kadmin.local ktadd "$name/server.test" >/dev/null; done 2>/dev/null
krb5kdc
for module in nfsd nfsv4 rpcsec_gss_krb5; do modprobe $module; done
mkdir -p /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld /run/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd; mount -t rpc_pipefs pipes /var/lib/nfs/rpc_pipefs; mount -t rpc_pipefs pipes /run/rpc_pipefs
rpc.svcgssd; rpc.gssd; rpc.mountd -N 3; exportfs -ra; nfsdcld; sleep 1; rpc.nfsd -N 3 -G 10 -L 10 8
head -c 33554432 /dev/urandom >/srv/file
wanted=$(md5sum </srv/file)
for sec in krb5 krb5i krb5p; do
    mount -t nfs -o vers=4.2,sec=$sec,rsize=65536 server.test:/ /mnt && {
        read=$(md5sum 2>&1 </mnt/file)
        [ "$read" != "$wanted" ] || read='the file'
        echo "SEEN sec=$sec: $read"
        [ $sec != krb5i ] || echo "SEEN sec=krb5i, one READ at a time: $(dd if=/mnt/file bs=64k iflag=direct 2>/dev/null | md5sum | grep -qF "$wanted" && echo 'the file')"
        umount /mnt
    }
done
echo SEEN end
sync; echo o >/proc/sysrq-trigger; sleep 60
GUEST
chmod 755 "$root/guest"
truncate -s 4G "$work/disk"; mkfs.ext4 -q -F -O ^has_journal -d "$root" "$work/disk"
timeout 900 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1500M -nographic -no-reboot -kernel "$kernel" -initrd "${kernel/vmlinuz/initrd.img}" \
    -append 'console=ttyS0 quiet panic=-1 root=/dev/vda rw init=/guest' -drive file="$work/disk",if=virtio,format=raw,cache=unsafe \
    -nic user,model=virtio-net-pci </dev/null 2>&1 | tr -d '\r' >"$work/out" || true
grep -o 'SEEN sec=.*' "$work/out" | cut -c 6-
seen() { grep -q "SEEN sec=$1" "$work/out"; }
grep -q 'SEEN end' "$work/out" || { tail -n 20 "$work/out"; exit 2; }
seen 'krb5: the file' && seen 'krb5i: .*Input/output error' && seen 'krb5i, one READ at a time: the file' && seen 'krb5p: the file'
