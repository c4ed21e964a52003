# Functions for scripts under Kerberos: rpc.gssd, tickets, and commands as other users.
export KRB5_CONFIG=/run/etc.krb5.conf SERVER=server.vouch.test

# Starts rpc.gssd, and waits until it has opened the pipe of the dummy client, by which the kernel
# detects it.
gssd_up() {
    mount -n -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
    cp machine.keytab /run/krb5.keytab
    rpc.gssd -f -v -p /run/rpc_pipefs -k /run/krb5.keytab "$@" >"$JOB/gssd.log" 2>&1 &
    local gssd=$! file
    for _ in $(seq 600); do
        for file in /proc/$gssd/fd/*; do
            if [ "$file" -ef /run/rpc_pipefs/gssd/clntXX/gssd ]; then return 0; fi
        done
        kill -0 $gssd || break
        sleep 0.1
    done
    cat "$JOB/gssd.log"
    return 1
}

# ticket UID PRINCIPAL [KINIT OPTIONS]: gets a ticket for this user.
ticket() {
    local uid=$1 principal=$2
    shift 2
    kinit -k -t "$JOB/$principal.keytab" -c "FILE:/tmp/new_$uid" "$@" "$principal"
    chown "$uid:$uid" "/tmp/new_$uid"
    mv "/tmp/new_$uid" "/tmp/krb5cc_$uid"
}

# as UID COMMAND...: runs a command as this user.
as() {
    local uid=$1
    shift
    setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
}

fail() {
    echo "failed: $*"
    tail -n 60 "$JOB/gssd.log"
    exit 1
}
