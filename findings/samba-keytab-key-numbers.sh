#!/bin/bash
# Guess: `net ads keytab create` of Samba 4.25 writes the key numbers of the domain into the keytab, as
# klist(1) shows them for every other keytab; and smb.conf needs quotes around the value of
# `sync machine password to keytab`.
# Seen: without `sync_kvno` in the value each key gets the number -1; with it, the number of the domain.
# The quotes are needed for values with a comma only.
# Samba 4.25.1 of Debian sid, 2026-11-28. Needs root, mmdebstrap, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/keytab.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${SAMBA_ROOT:-}" ]; then root=$SAMBA_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=samba,samba-ad-dc,samba-ad-provision,samba-dsdb-modules,python3-samba,krb5-user sid "$root" "deb $mirror sid main"
fi
chroot "$root" samba --version
cat >"$work/inner" <<'INNER'
set -eu
work=$1 root=$2
ip link set lo up
printf '127.0.0.1 localhost\n127.0.0.1 dc1.ad.test dc1\n127.0.0.1 filer.ad.test filer\n' >"$work/hosts"
printf '[libdefaults]\n default_realm = AD.TEST\n dns_lookup_kdc = false\n rdns = false\n dns_canonicalize_hostname = false\n[realms]\n AD.TEST = {\n  kdc = 127.0.0.1\n  kpasswd_server = 127.0.0.1\n }\n' >"$work/krb5.conf"
touch "$root/etc/krb5.conf"
mount --bind "$work/hosts" "$root/etc/hosts"; mount --bind "$work/krb5.conf" "$root/etc/krb5.conf"
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"
for name in dc1 filer; do for directory in var/lib/samba/private var/cache/samba var/log/samba etc/samba run/samba tmp; do mkdir -p "$work/$name/$directory"; done; done
on() {
    unshare --mount --uts sh -c 'hostname $2; for directory in var/lib/samba var/cache/samba var/log/samba etc/samba run tmp; do mount --bind $0/$2/$directory $1/$directory; done; root=$1; shift 2; exec chroot $root "$@"' "$work" "$root" "$@"
}
admin="-U Administrator%Passw0rd-test -S dc1.ad.test"
on dc1 samba-tool domain provision --realm AD.TEST --domain AD --adminpass Passw0rd-test --server-role dc --dns-backend NONE \
    --host-name dc1 --host-ip 127.0.0.1 --option interfaces=127.0.0.1/32 --option 'bind interfaces only=yes' >"$work/log" 2>&1
on dc1 samba -i --debug-stdout -d 0 >>"$work/log" 2>&1 &
joins() {
    printf '[global]\nworkgroup = AD\nrealm = AD.TEST\nnetbios name = FILER\nsecurity = ads\nkerberos method = secrets and keytab\nsync machine password to keytab = %s\n' "$1" >"$work/filer/etc/samba/smb.conf"
    for attempt in $(seq 40); do on filer net ads join $admin --no-dns-updates >>"$work/log" 2>&1 && return; sleep 1; done
    tail -n 5 "$work/log"; return 1
}
numbers() { on filer klist -k "/tmp/$1" | awk '/@/ {print $1}' | sort -u | tr '\n' ' '; }
joins /tmp/plain:account_name:sync_spns:machine_password
on filer net ads setspn add nfs/filer.ad.test $admin >>"$work/log" 2>&1
on filer net ads keytab create -P -S dc1.ad.test
on filer klist -k /tmp/plain | grep -q nfs/filer.ad.test
plain=$(numbers plain)
joins '"/tmp/quoted:account_name:sync_spns:sync_kvno:machine_password"'
quoted=$(numbers quoted)
echo "without sync_kvno, unquoted: $plain; with sync_kvno, quoted: $quoted"
[ "$plain" = "-1 " ] && [[ $quoted =~ ^[1-9] && $quoted != *-1* ]]
INNER
timeout 300 unshare --mount --net --uts --pid --fork --kill-child --propagation private bash "$work/inner" "$work" "$root"
echo "as seen on 2026-11-28"
