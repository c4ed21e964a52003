# A job of days under krb5p: the clocks of this guest and of the other machines move in steps.
# Kernel contexts live for a second, so that each step needs a context with its own tickets.
set -eu
. ./gss.bash
gssd_up -v -t 1
agent=/run/agent.sock cache=/tmp/krb5cc_1

# wait_for COMMAND...
wait_for() {
    local end=$((SECONDS + 120))
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "not in time: $*: $(date) $(klist -c FILE:$cache) $(tail -n 20 "$JOB/agent.log")"
        sleep 0.1
    done
}

ticket_end() {
    date -d "$(klist -c FILE:$cache | awk '$5 ~ /^nfs/ {print $3, $4}')" +%s
}

# Tickets are renewed at half of their life, and do not outlive the job.
is_renewed() {
    local needed=$(($(date +%s) + TICKET_SECONDS / 2))
    [ "$(ticket_end)" -ge $((needed < deadline ? needed : deadline)) ]
}

# For each line of input, writes to a file that stays open, and makes, reads and removes another.
job() {
    exec setpriv --reuid=1 --regid=1 --clear-groups bash -eu -c '
        exec 3>output
        count=0
        while read -r _; do
            count=$((count + 1))
            echo "line $count" >&3
            sync output
            echo "$count" >"part-$count"
            sync "part-$count"
            [ "$(dd if="part-$count" bs=4096 iflag=direct status=none)" = "$count" ]
            rm "part-$count"
            echo "$count"
        done'
}

# The kernel has no context of the job's user that is older than this.
use_files() {
    local answer
    sleep 1.1
    echo >&"${work[1]}"
    read -r -t 120 -u "${work[0]}" answer || fail "the job: $(date) $(klist -c FILE:$cache) $(tail -n 20 "$JOB/agent.log" "$JOB/job.log")"
    uses=$((uses + 1))
    [ "$answer" = "$uses" ] || fail "the job answers $answer after $uses uses"
}

# Moves all clocks.
step() {
    echo "step $1"
    wait_for test -e "$JOB/moved-$1"
    date -s "$STEP_SECONDS seconds" >>"$JOB/steps.log"
}

node=$(hostname) uses=0 renewals=0
"$VOUCH" jobs agent --poll 1s --node "$node" --principal "host/$node" --broker "$BROKER" --keytab /run/krb5.keytab \
    --cache 'FILE:/tmp/krb5cc_%{uid}' --state /run/agent --socket $agent >"$JOB/agent.log" 2>&1 &
wait_for test -S $agent
attach 4.2 /export /mnt/e sec=krb5p || fail mount
cd /mnt/e
"$VOUCH" jobs prolog --strict --job 7 --socket $agent || fail "the prolog: $(cat "$JOB/agent.log")"
coproc work { job 2>"$JOB/job.log"; }
use_files
for n in $(seq $((STEPS - 1))); do
    old=$(ticket_end)
    step "$n"
    use_files
    wait_for is_renewed
    if [ "$(ticket_end)" != "$old" ]; then
        renewals=$((renewals + 1))
        use_files
    fi
done
[ "$(wc -l <output)" = "$uses" ] || fail "lines of the open file"
[ "$renewals" -ge $((STEPS * STEP_SECONDS / TICKET_SECONDS)) ] || fail "$renewals renewals"
contexts=$(grep -c "mech=krb5 uid=1 " "$JOB/gssd.log") || fail "no context of the user"
[ "$contexts" -ge "$uses" ] || fail "$contexts contexts for $uses uses"
echo "ok: $uses uses of files, $renewals renewals, $contexts contexts"
step "$STEPS"
wait_for test ! -e $cache
sleep 1.1
as 1 touch late 2>"$JOB/late" && fail "access after the deadline"
grep -q 'Permission denied' "$JOB/late" || fail "$(cat "$JOB/late")"
echo >&"${work[1]}"
if read -r -t 120 -u "${work[0]}" answer; then fail "the job writes after the deadline"; fi
grep -q 'Permission denied' "$JOB/job.log" || fail "the job: $(cat "$JOB/job.log")"
echo "ok: no access after the deadline"
