#!/bin/bash
# Guess: tlshd 1.4 takes two pairs of certificate and key, `x509.certificate` and `x509.pq.certificate`, and
# offers the classical one where GnuTLS has no ML-DSA, as that of Debian, whose package ships both lines
# in /etc/tlshd/config.
# Seen: if the server accepts ML-DSA signatures, as OpenSSL 3.6 does by default, tlshd selects the ML-DSA
# pair all the same. GnuTLS takes its key for GOST R 34.10-94, finds no signature for it, and sends an empty
# certificate. tlshd logs "succeeded", and a mount with xprtsec=mtls fails. With the classical pair alone the
# server gets the certificate.
# ktls-utils 1.4.0, GnuTLS 3.8.13, OpenSSL 3.6, nfs-utils 3.1.1 and User-Mode Linux 7.2.7 of Debian sid,
# 2026-11-30. Needs root, mmdebstrap. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/tlshd.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=user-mode-linux,ktls-utils,nfs-common,mount,kmod,iproute2,openssl,python3,busybox-static sid "$root" "deb $mirror sid main"
ln -s uml/modules "$root/usr/lib/modules"
mkdir "$root/probe"
for name in classical:ec:-pkeyopt:ec_paramgen_curve:P-256 second:ML-DSA-65; do
    IFS=: read -r file key option value <<<"$name"
    chroot "$root" openssl req -x509 -newkey "$key" ${option:+"$option" "$value"} -nodes -days 30 -subj "/CN=$file" -addext subjectAltName=DNS:server.test \
        -keyout "/probe/$file.key" -out "/probe/$file.pem" 2>/dev/null
done
cat "$root/probe/classical.pem" "$root/probe/second.pem" >"$root/probe/both.pem"
cat >"$root/probe/server.py" <<'P'
import socket, ssl, struct
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/probe/classical.pem", "/probe/classical.key")
context.load_verify_locations("/probe/both.pem")
context.verify_mode = ssl.CERT_OPTIONAL
listener = socket.create_server(("127.0.0.1", 2049))
print("listening", flush=True)
while True:
    plain, _ = listener.accept()
    try:
        call = plain.recv(1000)
        reply = call[4:8] + struct.pack(">4I", 1, 0, 0, 8) + b"STARTTLS" + struct.pack(">I", 0)
        plain.sendall(struct.pack(">I", 1 << 31 | len(reply)) + reply)
        stream = context.wrap_socket(plain, server_side=True)
        name = dict(part[0] for part in stream.getpeercert().get("subject", ())) if stream.getpeercert() else {}
        print("certificate of the client:", name.get("commonName", "none"), flush=True)
        stream.settimeout(5)
        stream.recv(1000)
        stream.close()
    except (OSError, ValueError) as error:
        print(type(error).__name__, error, flush=True)
P
cat >"$root/probe/init" <<'I'
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /run
depmod 2>/dev/null
for module in nfsv4 tls gcm ctr; do modprobe $module; done
ip link set lo up; echo '127.0.0.1 localhost server.test' >/etc/hosts
python3 /probe/server.py >>/probe/server.log 2>&1 &
ask() {
    printf '[debug]\nloglevel=1\n[authenticate.client]\nx509.truststore=/probe/both.pem\nx509.certificate=/probe/classical.pem\nx509.private_key=/probe/classical.key\n' >/etc/tlshd/config
    [ "$1" = 1 ] || printf 'x509.pq.certificate=/probe/second.pem\nx509.pq.private_key=/probe/second.key\n' >>/etc/tlshd/config
    : >/probe/server.log
    tlshd -s >/probe/tlshd.log 2>&1 & daemon=$!
    sleep 1
    timeout 5 mount -t nfs4 -o xprtsec=mtls,retry=0 server.test:/ /mnt 2>/dev/null
    kill $daemon
    echo "pairs: $1; $(sed -n 's/.*\(Selecting [^ ]*\).*/tlshd: \1/p' /probe/tlshd.log | head -n 1); $(grep -om1 "Handshake.*\(succeeded\|failed\)" /probe/tlshd.log); $(grep -m1 ^certificate /probe/server.log)"
}
echo SEEN-BEGIN; uname -r; ask 1; ask 2; echo SEEN-END
busybox poweroff -f
I
chmod +x "$root/probe/init"
linux() { unshare --mount --propagation private sh -c 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /usr/bin/linux.uml "$@"' "$root" "$@"; }
linux mem=512M root=/dev/root rootfstype=hostfs rootflags=/ rw init=/probe/init con=null con0=null,fd:1 quiet </dev/null >"$work/console" 2>&1 || true
tr -d '\r' <"$work/console" | sed -n '/SEEN-BEGIN/,/SEEN-END/p' | sed '/SEEN-/d' | tee "$work/seen"
[ "$(cat "$work/seen")" = "7.2.7
pairs: 1; tlshd: Selecting x509.certificate; Handshake with 'server.test' (127.0.0.1) succeeded; certificate of the client: classical
pairs: 2; tlshd: Selecting x509.pq.certificate; Handshake with 'server.test' (127.0.0.1) succeeded; certificate of the client: none" ]
echo "as seen on 2026-11-30"
