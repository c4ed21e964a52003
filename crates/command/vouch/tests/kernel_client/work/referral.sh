# Enters a referral below a mount of $VERSION.
set -eu
attach "$VERSION" / /mnt/root
[ "$(ls /mnt/root)" = export ]
[ "$(cat /mnt/root/export/there)" = "the server that has the files" ]
[ ! -e /mnt/root/export/here ]
printf 'through the referral' >/mnt/root/export/written
grep -q " /mnt/root/export nfs4 .*port=2049" /proc/mounts || grep " /mnt/root" /proc/mounts
