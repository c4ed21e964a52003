# A job under krb5p: its tickets come from the agent, without a ticket-granting ticket, and end three
# times while it works.
set -eu
. ./gss.bash
gssd_up

# Files with a ticket of the NFS service, beside those of the machine.
user_tickets() {
    LC_ALL=C find /tmp /run -xdev -type f ! -name 'krb5ccmachine*' -exec grep -laP 'nfs\x00\x00\x00.server\.vouch\.test' {} +
}

node=$(hostname)
agent=/run/agent.sock
"$VOUCH" jobs agent --poll 1s --node "$node" --principal "host/$node" --broker "$BROKER" --keytab /run/krb5.keytab \
    --cache 'FILE:/tmp/krb5cc_%{uid}' --state /run/agent --socket $agent >"$JOB/agent.log" 2>&1 &
for n in $(seq 300); do
    [ ! -S $agent ] || break
    [ "$n" != 300 ] || fail "the agent does not start: $(cat "$JOB/agent.log")"
    sleep 0.1
done
attach 4.2 /export /mnt/e sec=krb5p || fail mount
cd /mnt/e
as 1 touch early 2>/dev/null && fail "a user without a job has access"
"$VOUCH" jobs prolog --strict --job 7 --socket $agent || fail "the prolog: $(cat "$JOB/agent.log")"
klist -c FILE:/tmp/krb5cc_1 | grep -q krbtgt && fail "a ticket-granting ticket is on the node"
echo "ok: no ticket-granting ticket"
[ "$(user_tickets)" = /tmp/krb5cc_1 ] || fail "the search for tickets finds: $(user_tickets)"

# A file is open all the time, others are made and read.
as 1 bash -eu -c '
    exec 3>output
    end=$((SECONDS + 60)) count=0
    while [ $SECONDS -lt $end ]; do
        count=$((count + 1))
        echo "line $count" >&3
        echo "$count" >"part-$count"
        [ "$(cat "part-$count")" = "$count" ]
        sync "part-$count"
        rm "part-$count"
        sleep 0.5
    done
    exec 3>&-
    [ "$(wc -l <output)" = "$count" ]' || fail "the job: $(cat "$JOB/agent.log")"
echo "ok: worked for 60 s"
as 2 cat output 2>/dev/null && fail "a user without a job can read"
echo "ok: others are refused"

"$VOUCH" jobs epilog --job 7 --socket $agent || fail epilog
[ ! -e /tmp/krb5cc_1 ] || fail "the cache is left"
for n in $(seq 120); do
    as 1 touch late 2>/dev/null || break
    [ "$n" != 120 ] || fail "access does not end with the job"
    sleep 1
done
echo "ok: access ended with the job"
[ -z "$(user_tickets)" ] || fail "tickets are left: $(user_tickets)"
echo "ok: nothing is left"
