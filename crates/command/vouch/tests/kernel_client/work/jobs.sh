# A job under krb5p: its tickets come from the agent, without a ticket-granting ticket, and end
# several times while it works. Beside it the same job with a user's own ticket, which is renewed as
# long as it can be.
set -eu
. ./gss.bash
# libkrb5 reads credential caches through stdio, and frees the buffers with session keys in them.
GLIBC_TUNABLES=glibc.malloc.perturb=1 gssd_up
agent=/run/agent.sock

# Files with a ticket of the NFS service, beside those of the machine.
user_tickets() {
    LC_ALL=C find /tmp /run -xdev -type f ! -name 'krb5ccmachine*' -exec grep -laP 'nfs\x00\x00\x00.server\.vouch\.test' {} +
}

# wait_for SECONDS COMMAND...
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "not in time: $*: $(cat "$JOB/agent.log")"
        sleep 0.1
    done
}

# work UID: a file is open all the time, others are made and read.
work() {
    as "$1" bash -eu -c '
        exec 3>"output-$0"
        end=$((SECONDS + WORK_SECONDS)) count=0
        while [ $SECONDS -lt $end ]; do
            count=$((count + 1))
            echo "line $count" >&3
            echo "$count" >"part-$0-$count"
            [ "$(cat "part-$0-$count")" = "$count" ]
            sync "part-$0-$count"
            rm "part-$0-$count"
            sleep 0.5
        done
        exec 3>&-
        [ "$(wc -l <"output-$0")" = "$count" ]' "$1"
}

# The user's ticket is renewed until the KDC refuses it.
lone_job() {
    local begun=$SECONDS
    (while sleep $((TICKET_SECONDS / 4)) && as 5 kinit -R -c FILE:/tmp/krb5cc_5; do echo renewed; done) >"$JOB/renewals" 2>&1 &
    if work 5; then return 1; fi
    echo "$((SECONDS - begun))" >"$JOB/lone-seconds"
    # It must have failed for lack of renewals.
    grep -q renewed "$JOB/renewals"
}

node=$(hostname)
"$VOUCH" jobs agent --poll 1s --node "$node" --principal "host/$node" --broker "$BROKER" --keytab /run/krb5.keytab \
    --cache 'FILE:/tmp/krb5cc_%{uid}' --state /run/agent --socket $agent >"$JOB/agent.log" 2>&1 &
wait_for 30 test -S $agent
attach 4.2 /export /mnt/e sec=krb5p || fail mount
cd /mnt/e
as 1 touch early 2>/dev/null && fail "a user without a job has access"
"$VOUCH" jobs prolog --strict --job 7 --socket $agent || fail "the prolog: $(cat "$JOB/agent.log")"
klist -c FILE:/tmp/krb5cc_1 | grep -q krbtgt && fail "a ticket-granting ticket is on the node"
[ "$(user_tickets)" = /tmp/krb5cc_1 ] || fail "the search for tickets finds: $(user_tickets)"
echo "ok: no ticket-granting ticket"
wait_for 300 test -e "$JOB/searched"

ticket 5 games -l "${TICKET_SECONDS}s" -r "${RENEWABLE_SECONDS}s"
export WORK_SECONDS
lone_job 2>"$JOB/lone" &
lone=$!
work 1 || fail "the job: $(cat "$JOB/agent.log")"
echo "ok: worked to the end"
wait_for 300 test -e "$JOB/searched-late"
wait $lone || fail "the job without tickets of the broker: $(cat "$JOB/lone" "$JOB/renewals")"
echo "ok: the job without tickets of the broker failed after $(cat "$JOB/lone-seconds") s, $(grep -c renewed "$JOB/renewals") renewals"
as 2 cat output-1 2>/dev/null && fail "a user without a job can read"
echo "ok: others are refused"

"$VOUCH" jobs epilog --job 7 --socket $agent || fail epilog
[ ! -e /tmp/krb5cc_1 ] || fail "the cache is left"
for n in $(seq $((TICKET_SECONDS + 100))); do
    as 1 touch late 2>/dev/null || break
    [ "$n" != $((TICKET_SECONDS + 100)) ] || fail "access does not end with the job"
    sleep 1
done
echo "ok: access ended with the job"
rm -f /tmp/krb5cc_5
[ -z "$(user_tickets)" ] || fail "tickets are left: $(user_tickets)"
echo "ok: nothing is left on disks"
wait_for 300 test -e "$JOB/searched-again"
