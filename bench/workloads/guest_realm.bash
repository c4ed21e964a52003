# Functions for measurements in a guest under Kerberos. The caller sets $here (this directory).

# begin N: takes the network of guest N. Sets $index, $address (this machine's in it), $work (a directory in
# memory) and $pids (processes that end with the script).
begin() {
    index=$1
    work=$(mktemp -d -p /dev/shm)
    pids=()
    trap finish EXIT
    address=$("$here/../../script/guest/run" up "$index")
    export HOME=$work VOUCH_CONFIG=/dev/null
}

finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null || :; done
    "$here/../../script/guest/run" down "$index"
    rm -rf "$work"
}

# realm_up: starts a KDC for the guest and this machine, and adds it to $pids. Sets $guest_files to
# the options of script/guest/run that give the guest its files.
realm_up() {
    local address=10.77.$index.1 port=$((20900 + index)) name kdc
    PATH=$PATH:/usr/sbin:/sbin
    cat >"$work/krb5.conf" <<END
[libdefaults]
 default_realm = VOUCH.TEST
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
 permitted_enctypes = aes256-cts-hmac-sha1-96
[realms]
 VOUCH.TEST = {
  kdc = $address:$port
 }
[domain_realm]
 .vouch.test = VOUCH.TEST
END
    cat >"$work/kdc.conf" <<END
[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = $address:$port
[realms]
 VOUCH.TEST = {
  database_name = $work/principal
  key_stash_file = $work/stash
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
 }
[logging]
 kdc = FILE:$work/kdc.log
END
    export KRB5_CONFIG=$work/krb5.conf KRB5_KDC_PROFILE=$work/kdc.conf KRB5RCACHEDIR=$work
    kdb5_util create -s -r VOUCH.TEST -P "a passing realm" >"$work/kadmin.log" 2>&1
    for name in nfs/server host/client; do
        printf 'addprinc -randkey %s.vouch.test\nktadd -k %s %s.vouch.test\n' "$name" "$work/${name#*/}.keytab" "$name"
    done | kadmin.local -r VOUCH.TEST >>"$work/kadmin.log" 2>&1
    cp "$work/client.keytab" "$work/machine.keytab"
    krb5kdc -n >"$work/kdc.out" 2>&1 &
    kdc=$!
    # At once, because a signal may end the script before the KDC answers.
    pids+=("$kdc")
    until kinit -k -t "$work/machine.keytab" -c "FILE:$work/ticket" host/client.vouch.test 2>"$work/kinit.log"; do
        kill -0 $kdc 2>/dev/null || { cat "$work/kdc.out" >&2; return 1; }
        sleep 0.1
    done
    guest_files=(-f "$work/krb5.conf" -f "$work/machine.keytab" -f "$here/../../crates/command/vouch/tests/kernel_client/work/gss.bash")
}
