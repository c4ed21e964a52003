# Mounts $VERSION with $NUMBER connections.
set -eu
. ./trunking.bash
attach "$VERSION" /export /mnt/export "nconnect=$NUMBER"
work /mnt/export
[ "$(transports /mnt/export)" = "$NUMBER" ]
hold /mnt/export
