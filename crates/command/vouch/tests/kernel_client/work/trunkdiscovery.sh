# Mounts $VERSION from the first address; the client asks for others by fs_locations.
set -eu
. ./trunking.bash
attach "$VERSION" /export /mnt/export "trunkdiscovery,max_connect=$NUMBER"
work /mnt/export
[ "$(transports /mnt/export)" = "$NUMBER" ]
[ "$(addresses)" = "$(printf '%s\n' "$SERVER" "$SECOND" | sort)" ]
hold /mnt/export
