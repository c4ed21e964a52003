# install.sh: the first boot. Installs the package on the running system, mounts the tree $NAME, and
# configures each unit of the package.
. ./units.sh
hostid=${NAME#*,}

wait_for_boot
began=$(date +%s%N)
dpkg -i vouch_*.deb >dpkg.log 2>&1 || fail "dpkg -i: $(cat dpkg.log)"
! grep 'Syntax: ' dpkg.log || fail "dpkg -i complains about its own commands"
mkdir /software
mount -t vouch "$NAME" /software
head -c 1 /software/hello >/dev/null
echo "dpkg -i, mkdir, mount, first byte: 4 commands, $((($(date +%s%N) - began) / 1000000)) ms"
umount /software

mkdir -p /etc/vouch/keys /srv/{mounted,source,data} /opt/tools
(umask 077 && vouch keygen --out /etc/vouch/keys/own >/dev/null)
cat >/etc/vouch/conf.d/site.toml <<END
[tree.tools]
name = "$NAME"

[tree.tools.mount]
dir = "/srv/mounted"

[tree.tools.pull]
keep = 5

[tree.tools.gateway]
listen = ["127.0.0.1:8080"]

[tree.own]
name = "$(vouch name /etc/vouch/keys/own --location 127.0.0.1)"

[tree.own.publish]
dir = "/srv/source"
location = "127.0.0.1"
keep = 3

[serve]
db = ["/srv/vouch/tools", "/srv/vouch/own"]
accept-statements = "/var/lib/vouch-serve/statements"

[export]
exports = ["/etc/exports", "/etc/exports.d"]
END
vouch config check
echo '/srv/data *(rw,sec=sys)' >/etc/exports
echo own >/srv/source/file
echo "tools  /software  vouch  ro,_netdev,nofail  0  0" >>/etc/fstab
echo '/vouch  program:/etc/auto.vouch' >/etc/auto.master.d/vouch.autofs
# Reads from the replica of this machine.
cat >/etc/systemd/system/opt-tools.mount <<END
[Unit]
After=network-online.target vouch-serve.service
Wants=network-online.target vouch-serve.service

[Mount]
What=@127.0.0.1,$hostid
Where=/opt/tools
Type=vouch
Options=ro,_netdev

[Install]
WantedBy=remote-fs.target
END
cat >/etc/systemd/system/first-byte.service <<'END'
[Unit]
RequiresMountsFor=/software
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'head -c 1 /software/hello >/dev/null && cut -d " " -f 1 /proc/uptime >/run/first-byte'
[Install]
WantedBy=multi-user.target
END
# Kernels in User-Mode Linux have no Landlock, which these two units require. All else is as shipped.
for unit in vouch-serve vouch-gateway@; do
    mkdir "/etc/systemd/system/$unit.service.d"
    command=$(sed -n 's/^ExecStart=\(.*\)--sandbox required/\1--sandbox best-effort/p' "/usr/lib/systemd/system/$unit.service")
    [ -n "$command" ] || fail "$unit does not require a sandbox"
    printf '[Service]\nExecStart=\nExecStart=%s\n' "$command" >"/etc/systemd/system/$unit.service.d/guest.conf"
done

install -d -o vouch -g vouch -m 755 /srv/vouch/tools
install -d -m 755 /srv/vouch/own
systemctl daemon-reload
systemctl enable --quiet --now vouch-pull@tools.service
systemctl start vouch-publish@own.service
settled test -e /srv/vouch/tools/manifest || fail "vouch-pull: $(systemctl status vouch-pull@tools)"
systemctl enable --quiet --now "${UNITS[@]}"
systemctl restart autofs
mount /software
systemctl enable --quiet --now first-byte.service
check_units
check_upgrade
