# reboot.sh: the second boot. Everything that the first has configured must have come up by itself.
. ./units.sh

wait_for_boot
check_units
echo "first byte of the tree of /etc/fstab: $(cat /run/first-byte) s after the start of the kernel"

# A mount that is killed with its supervisor comes back.
before=$(main_pid vouch-mount@srv-mounted)
systemctl kill --kill-whom=all --signal=KILL vouch-mount@srv-mounted
is_another_mount() { [ "$(main_pid vouch-mount@srv-mounted)" != "$before" ] && reads /srv/mounted/hello; }
settled is_another_mount || fail "vouch-mount does not restart: $(systemctl status vouch-mount@srv-mounted)"

umount /software /opt/tools /vouch/tools
dpkg -r vouch >dpkg.log 2>&1 || fail "dpkg -r: $(cat dpkg.log)"
! grep 'Syntax: ' dpkg.log || fail "dpkg -r complains about its own commands"
[ ! -e /usr/bin/vouch ] || fail "dpkg -r leaves the program"
[ -z "$(systemctl list-units --plain --no-legend --state=active 'vouch-*')" ] || fail "services outlive their package: $(systemctl list-units 'vouch-*')"
[ -z "$(processes)" ] || fail "processes outlive their package: $(processes)"
echo "removal stops all services: ok"
