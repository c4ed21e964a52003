# Mounts $VERSION from both addresses of the server.
set -eu
. ./trunking.bash
attach "$VERSION" /export /mnt/first "max_connect=$NUMBER"
SERVER=$SECOND attach "$VERSION" /export /mnt/second "max_connect=$NUMBER"
work /mnt/first
[ "$(transports /mnt/first)" = "$NUMBER" ]
[ "$(addresses)" = "$(printf '%s\n' "$SERVER" "$SECOND" | sort)" ]
hold /mnt/first
