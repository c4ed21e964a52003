# Follows docs/tls.md on a client: $MOUNT is the page's command, and $JOB has its configuration.
set -eu
fail() { echo "FAILED: $*"; cat "$JOB/tlshd.log" "$JOB/mount.log"; exit 1; }
# says WORDS COMMAND...: the command fails with these words.
says() {
    local words=$1
    shift
    if "$@" >"$JOB/mount.log" 2>&1; then fail "no failure: $*"; fi
    grep -q "$words" "$JOB/mount.log" || fail "'$*' does not say '$words'"
}
attach() { $MOUNT 2>"$JOB/mount.log" || fail "$MOUNT"; }
# like OPTION PATH: the page's command with another security and another export.
like() { echo "$MOUNT" | sed "s|xprtsec=[a-z]*|xprtsec=$1|; s|/srv/home|$2|"; }

cp -a /etc /tmp/etc && mount -n --bind /tmp/etc /etc
while IFS='=' read -r name path; do
    case $name in
        x509.truststore) install -D -m 644 ca.pem "$path" ;;
        x509.certificate) install -D -m 644 node7.pem "$path" ;;
        x509.private_key) install -D -m 600 node7.key "$path" ;;
    esac
done <tlshd.conf

says 'No such process' $MOUNT

configuration=/etc/tlshd/config
[ -z "$GUEST_ROOT" ] || configuration=/etc/tlshd.conf
cp tlshd.conf $configuration
run_tlshd
daemon=$!
attach
grep -q ' /home nfs4 .*xprtsec=mtls' /proc/mounts || fail "$(cat /proc/mounts)"
[ "$(cat /home/file)" = home ] || fail "no file"
umount /home
echo "ok: mtls"

# By a name that the certificate lacks.
says 'access denied by server' $(echo "$MOUNT" | sed 's/nfs\.example\.org/server.vouch.test/')
# An export that demands more than the first mount of the server has.
$(like none /srv/public) || fail "no clear text"
mkdir -p /mnt/home
says 'Operation not permitted' $(like mtls /srv/home | sed 's|/home$|/mnt/home|')
umount /home
echo "ok: symptoms"

kill $daemon
wait $daemon || true
grep -v 'x509.certificate\|x509.private_key' tlshd.conf >$configuration
run_tlshd
$(like tls /srv/data) || fail "no TLS"
[ "$(cat /home/file)" = data ] || fail "no file"
umount /home
echo "ok: tls without a certificate"
