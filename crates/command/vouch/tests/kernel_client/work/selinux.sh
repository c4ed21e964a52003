# Labels on an export with security_label, with SELinux and the policy of selinux.cil in the guest.
set -eu
mount -n -t selinuxfs none /sys/fs/selinux
# The kernel takes a policy in one write.
dd if="$JOB/policy" of=/sys/fs/selinux/load bs=1M 2>/dev/null
attach 4.2 /export /mnt/export
cd /mnt/export
is() { local label; label=$(stat -c %C "$2"); [ "$label" = "system_u:object_r:$1:s0" ] || { echo "$2: $label, not $1"; exit 1; }; }
is unlabeled_t .
is unlabeled_t old
is public_t labelled
echo public >made; is unlabeled_t made
chcon -t public_t made; is public_t made
mkdir secrets; chcon -t secret_t secrets
# A new file gets its directory's label.
echo secret >secrets/one; is secret_t secrets/one
ln -s one secrets/link; is secret_t secrets/link
mkfifo secrets/fifo; is secret_t secrets/fifo
mv secrets/one moved; is secret_t moved
echo 1 >/sys/fs/selinux/enforce
as_reader() { (printf system_u:system_r:reader_t:s0 >"/proc/$BASHPID/attr/exec" && exec "$@"); }
as_reader cat made | grep -q public
refused as_reader cat moved
cat moved | grep -q secret
echo "ok: labels"
