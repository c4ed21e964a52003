#!/bin/bash
# Guess: GnuTLS 3.8.13 of Debian offers X25519MLKEM768 and knows ML-DSA keys, as GnuTLS does since 3.8.9
# and 3.8.10; so tlshd 1.4, whose /etc/tlshd/config in the same suite has a line `x509.pq.certificate`,
# can use both.
# Seen: Debian builds GnuTLS without either. Its lists have no such group, key or signature; a handshake
# with a server that insists on the group fails, an ML-DSA-44 certificate cannot be loaded, and certtool
# makes no such key. OpenSSL of the same suite does all of it. With X25519 and an ECDSA certificate both
# work together.
# gnutls-bin 3.8.13, OpenSSL 3.6.5, ktls-utils 1.4.0 of Debian sid, 2026-11-28. Needs root, mmdebstrap,
# unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/gnutls.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${GNUTLS_ROOT:-}" ]; then root=$GNUTLS_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=gnutls-bin,openssl,ktls-utils sid "$root" "deb $mirror sid main"
fi
chroot "$root" openssl version
cat >"$work/inner" <<'INNER'
set -u
root=$1
ip link set lo up
mount -t tmpfs tmpfs "$root/mnt"; mount --bind /dev "$root/dev"
cd "$root/mnt"
grep -c 'x509.pq.certificate' ../etc/tlshd/config | sed 's/^[1-9].*/yes/; s/^/tlshd configuration names it: /'
for name in EC ML-DSA-44; do
    key="-newkey $name"; [ $name != EC ] || key="-newkey ec -pkeyopt ec_paramgen_curve:P-256"
    chroot "$root" openssl req -x509 $key -nodes -keyout /mnt/$name.key -out /mnt/$name.pem -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
done
chroot "$root" sh -c 'certtool --version | head -n 1 | grep -o "3[.0-9]*"; gnutls-cli --list | grep -ciE "mlkem|ml-?dsa"' | tr '\n' ' ' | sed 's/ $/ post-quantum entries in its lists\n/; s/^/certtool /'
chroot "$root" certtool --generate-privkey --key-type mldsa44 2>&1 >/dev/null | sed -n "s/^privkey_generate: /key: /p"
port=15000
ask() {
    port=$((port + 1))
    chroot "$root" openssl s_server -quiet -accept $port -cert /mnt/$1.pem -key /mnt/$1.key -groups $2 -www >/dev/null 2>&1 & server=$!
    for step in $(seq 50); do ! (: </dev/tcp/127.0.0.1/$port) 2>/dev/null || break; sleep 0.1; done
    gnutls=$(chroot "$root" gnutls-cli --x509cafile /mnt/$1.pem --verify-hostname localhost --sni-hostname localhost -p $port 127.0.0.1 </dev/null >/dev/null 2>&1 && echo connected || echo failed)
    openssl=$(chroot "$root" openssl s_client -CAfile /mnt/$1.pem -verify_return_error -connect 127.0.0.1:$port </dev/null >/dev/null 2>&1 && echo connected || echo failed)
    kill $server; wait $server 2>/dev/null
    echo "certificate $1, group $2: gnutls-cli $gnutls, s_client $openssl"
}
ask EC X25519
ask EC X25519MLKEM768
ask ML-DSA-44 X25519
INNER
unshare --mount --net --propagation private bash "$work/inner" "$root" | tee "$work/seen"
[ "$(cat "$work/seen")" = "tlshd configuration names it: yes
certtool 3.8.13 0 post-quantum entries in its lists
key: The signature algorithm is not supported.
certificate EC, group X25519: gnutls-cli connected, s_client connected
certificate EC, group X25519MLKEM768: gnutls-cli failed, s_client connected
certificate ML-DSA-44, group X25519: gnutls-cli failed, s_client connected" ]
echo "as seen on 2026-11-28"
