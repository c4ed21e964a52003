#!/bin/bash
# Guess: a domain of SSSD with `id_provider = ldap`, `ldap_uri = ldap://…` and no line about TLS finds its
# users, as with SSSD 2.8 of Debian 12, and as sssd-ldap(5) said for years (`ldap_id_use_start_tls`: false).
# Seen: SSSD 2.13 begins each connection with StartTLS. With a directory that has no certificate the domain
# stays offline, and getent(1) ends with 2, "no such user", as if SSSD knew. With `ldap_id_use_start_tls =
# false` the user is found.
# SSSD 2.13.1 of Debian sid, 2026-11-28. Needs root, mmdebstrap, unshare(1). Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/sssd.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
if [ -n "${SSSD_ROOT:-}" ]; then root=$SSSD_ROOT; else
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --include=sssd-ldap,libnss-sss,slapd sid "$root" "deb $mirror sid main"
fi
chroot "$root" sssd --version
cat >"$work/inner" <<'INNER'
set -eu
work=$1 root=$2
ip link set lo up
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/mnt"
cd "$root/mnt"; mkdir database
cat >slapd.conf <<'CONF'
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix dc=example,dc=org
directory /mnt/database
CONF
cat >entries.ldif <<'LDIF'
dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
o: example
dc: example

dn: uid=alice,dc=example,dc=org
objectClass: account
objectClass: posixAccount
uid: alice
cn: alice
uidNumber: 10001
gidNumber: 10000
homeDirectory: /home/alice
LDIF
chroot "$root" slapadd -q -f /mnt/slapd.conf -l /mnt/entries.ldif
chroot "$root" slapd -d 0 -h ldap://127.0.0.1:3389 -f /mnt/slapd.conf &
for line in '' 'ldap_id_use_start_tls = false'; do
    (
        mount -t tmpfs tmpfs "$root/run"; mkdir -p state etc log
        rm -rf state/* log/*; cp -a "$root/var/lib/sss/." state/
        printf '[sssd]\nservices = nss\ndomains = example\n[domain/example]\ndebug_level = 6\nid_provider = ldap\nldap_uri = ldap://127.0.0.1:3389\nldap_search_base = dc=example,dc=org\n%s\n' "$line" >etc/sssd.conf
        chmod 600 etc/sssd.conf
        unshare --mount sh -c 'mount --bind state "$0/var/lib/sss"; mount --bind etc "$0/etc/sssd"; mount --bind log "$0/var/log/sssd"
            chroot "$0" sssd -i --logger=files & sssd=$!
            code=1; for attempt in 1 2 3 4 5 6 7 8; do sleep 1; [ -S "$0/var/lib/sss/pipes/nss" ] || continue
                chroot "$0" getent -s sss passwd alice >/dev/null && code=0 || code=$?; [ $code != 0 ] || break; done
            echo "line \"$1\": getent ends with $code; START TLS refused: $(grep -c "START TLS result: Protocol error" "$0/var/log/sssd/sssd_example.log" | sed "s/^[1-9].*/yes/; s/^0/no/")"
            kill $sssd; wait' "$root" "$line"
    )
done | tee seen
grep -qx 'line "": getent ends with 2; START TLS refused: yes' seen && grep -qx 'line "ldap_id_use_start_tls = false": getent ends with 0; START TLS refused: no' seen
INNER
timeout 200 unshare --mount --net --pid --fork --kill-child --propagation private bash "$work/inner" "$work" "$root"
echo "as seen on 2026-11-28"
