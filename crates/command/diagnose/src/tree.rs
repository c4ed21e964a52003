//! A tree: each of its replicas, the revision that it offers, and a part of the data.

use std::sync::Arc;
use std::time::Duration;

use vouch_tree::TreeName;
use vouch_tree::time_text::{RelativeTime, Utc};
use vouch_tree::verify::{CLOCK_SKEW_S_MAX, Refusal};
use vouch_tree_client::{
    Client, ClientOptions, Error, Tree, TreeOptions, VerifyEvent, location_of_name, read_policies,
};

use crate::clock::TwoClocks;
use crate::finding::{Fault, Finding, Findings};
use crate::local::ClientSettings;
use crate::network::ReplicaAddress;
use crate::{bytes, clock, now_s};

/// How much of a tree is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Sample,
    All,
}

/// Checks each replica by itself, past all caches.
pub async fn check(
    settings: &ClientSettings,
    name: &TreeName,
    options: TreeOptions,
    extent: Extent,
    findings: &mut Findings,
) {
    let mut places: Vec<ReplicaAddress> =
        options.replicas.iter().map(|replica| ReplicaAddress::parse(replica)).collect();
    if !options.only_replicas {
        places.insert(0, ReplicaAddress::parse(&location_of_name(name)));
    }
    let client = match client(settings) {
        Ok(client) => client,
        Err(why) => return findings.add(Finding::problem(Fault::Client, name, why)),
    };
    let mut offers = Vec::new();
    for place in places {
        // A proxy resolves the host of a URL.
        let is_direct = !(place.is_url() && settings.has_proxy);
        if is_direct && !place.check(settings.connect_timeout, findings) {
            continue;
        }
        let only = TreeOptions {
            replicas: vec![place.replica.clone()],
            only_replicas: true,
            refuse_forwarding: options.refuse_forwarding,
        };
        match client.open(name, &only).await {
            Ok(tree) => {
                findings.add(offer(&place, &tree));
                if let Some(clock) = clock_of(&tree) {
                    findings.add(clock);
                } else if let Some(difference) = two_clocks(settings, &place, name)
                    .await
                    .and_then(|clocks| clocks.difference(&place.replica))
                {
                    findings.add(difference);
                }
                findings.add(data(&place, &tree, extent).await);
                offers.push((place, tree.newest().number()));
            }
            Err(error) => match expiry(&error) {
                Some(expires) => expired(
                    &place,
                    expires,
                    &error,
                    two_clocks(settings, &place, name).await,
                    findings,
                ),
                None => findings.add(refused(&place, name, &error)),
            },
        }
    }
    let newest = offers.iter().map(|(_, number)| *number).max().unwrap_or(0);
    for (place, number) in offers.iter().filter(|(_, number)| *number < newest) {
        findings.add(
            Finding::note(
                Fault::ReplicaBehind,
                &place.replica,
                format_args!("offers revision {number}; another replica has revision {newest}"),
            )
            .cure("on the replica: let `vouch pull` run, and look at its log"),
        );
    }
}

/// A client without caches and without a record of its own.
fn client(settings: &ClientSettings) -> Result<Arc<Client>, String> {
    let connector = settings.connector.clone()?;
    let policies = read_policies(&settings.policies).map_err(|error| error.to_string())?;
    let options = ClientOptions {
        connector,
        deadline: settings.timeout,
        connect_timeout: settings.connect_timeout,
        policies,
        ..ClientOptions::default()
    };
    Client::new(options).map_err(|error| error.to_string())
}

fn offer(place: &ReplicaAddress, tree: &Tree) -> Finding {
    let (newest, now) = (tree.newest(), now_s());
    let expires = u64::try_from(newest.expires()).unwrap_or(0);
    let what = format!(
        "offers revision {}, valid until {} ({})",
        newest.number(),
        Utc(expires),
        RelativeTime { at: expires, now }
    );
    // A tree is published again long before: a quarter of its validity is left then.
    if expires.saturating_sub(now) < u64::from(newest.fsinfo.duration_s) / 8 {
        return Finding::note(Fault::TreeExpiresSoon, &place.replica, what)
            .cure("publish again; look at the timer of the publication");
    }
    Finding::ok(&place.replica, what)
}

/// Whether the clock is behind the publisher's. (If it is ahead, the tree looks expired.)
fn clock_of(tree: &Tree) -> Option<Finding> {
    let (start, now) = (tree.newest().fsinfo.start, now_s());
    (start > now + CLOCK_SKEW_S_MAX).then(|| clock::behind(start, now))
}

/// This machine's clock and that of the replica, if it tells its time.
async fn two_clocks(
    settings: &ClientSettings,
    place: &ReplicaAddress,
    name: &TreeName,
) -> Option<TwoClocks> {
    let connector = settings.connector.as_ref().ok()?;
    let there = tokio::time::timeout(
        settings.timeout,
        connector.server_time(&place.replica, name.hostid()),
    )
    .await
    .ok()??;
    Some(TwoClocks { here: now_s(), there })
}

/// When the newest revision has expired, if that is the error.
const fn expiry(error: &Error) -> Option<u64> {
    match error {
        Error::Expired { since, .. } => Some(*since),
        Error::Refused { source: Refusal::Expired { expires, .. }, .. } => Some(*expires),
        _ => None,
    }
}

/// Reads data from this replica alone, and verifies it.
async fn data(place: &ReplicaAddress, tree: &Arc<Tree>, extent: Extent) -> Finding {
    let mut verification = tree.verify_all(&tree.newest());
    let (mut read, mut is_whole, mut bad) = (0, false, None);
    let reading = async {
        while let Some(event) = verification.next().await {
            match event {
                Ok(VerifyEvent::Progress { bytes, .. })
                    if extent == Extent::Sample && bytes > SAMPLE_BYTES =>
                {
                    break;
                }
                Ok(VerifyEvent::Progress { bytes, .. }) => read = bytes,
                Ok(VerifyEvent::Bad { error, .. }) | Err(error) => {
                    bad = Some(error);
                    break;
                }
                Ok(VerifyEvent::Done { bytes, .. }) => (read, is_whole) = (bytes, true),
            }
        }
    };
    match extent {
        // Too slow is no fault.
        Extent::Sample => drop(tokio::time::timeout(SAMPLE_TIME, reading).await),
        Extent::All => reading.await,
    }
    let lies: u64 = tree.replicas().iter().map(|replica| replica.lied).sum();
    match bad {
        _ if lies > 0 => lying(place, &tree.replicas().into_iter().find_map(|replica| replica.last_error).unwrap_or_default()),
        Some(error @ Error::Lied { .. }) => lying(place, &error.to_string()),
        Some(error) => Finding::problem(Fault::ReplicaIncomplete, &place.replica, format_args!("data cannot be read from it: {error}"))
            .cure("on the replica: run `vouch verify --db`, then pull into a new directory; use another --replica until then"),
        None => {
            let what = if is_whole { "all data" } else { "a part of the data" };
            Finding::ok(&place.replica, format_args!("{what} is verified ({})", bytes(read)))
        }
    }
}

fn lying(place: &ReplicaAddress, proof: &str) -> Finding {
    Finding::problem(Fault::ReplicaLies, &place.replica, format_args!("sends wrong data: {proof}"))
        .cure("its disk or memory is broken, something on the path changes data, or it attacks: tell its administrator to run `vouch verify --db`; leave it out until then")
}

/// The tree has expired, or this clock is ahead.
fn expired(
    place: &ReplicaAddress,
    expires: u64,
    error: &Error,
    clocks: Option<TwoClocks>,
    findings: &mut Findings,
) {
    if let Some(clock) =
        clocks.and_then(|clocks| clocks.ahead(&place.replica, expires, clock::has_time_service()))
    {
        return findings.add(clock);
    }
    findings.add(
        Finding::problem(Fault::TreeExpired, &place.replica, format_args!("the newest revision has expired: {error}"))
            .cure("the publisher must publish again (look at its timer), and mirrors must pull; if other machines can read the tree, this clock is ahead"),
    );
    if let Some(difference) = clocks.and_then(|clocks| clocks.difference(&place.replica)) {
        findings.add(difference);
    }
}

fn refused(place: &ReplicaAddress, name: &TreeName, error: &Error) -> Finding {
    let problem = |fault, what: String| Finding::problem(fault, &place.replica, what);
    match error {
        Error::NoSuchTree { hostid, .. } => problem(
            Fault::WrongHostid,
            format!("a replica answers, but it serves no tree with the HOSTID {hostid}: the HOSTID is wrong, or the replica lacks this database"),
        )
        .cure("compare the name with the publisher's (`vouch name KEYS --location HOST`); on the replica, add the database to `vouch serve --db`"),
        Error::Refused { source: Refusal::NotYetValid { start, now }, .. } => clock::behind(*start, *now),
        Error::Refused { source: Refusal::Forged(_) | Refusal::Malformed(_), .. } | Error::Lied { .. } => lying(place, &error.to_string()),
        Error::Refused { source: Refusal::Rollback { .. }, .. } => problem(Fault::ReplicaBehind, error.to_string())
            .cure("on the replica: let `vouch pull` run, and look at its log"),
        Error::Refused { .. } => problem(Fault::TreeRefused, error.to_string()).cure("see docs/troubleshooting.md, \"A tree cannot be read\""),
        Error::Revoked { .. } => problem(Fault::TreeRevoked, error.to_string()).cure("get the new name from the publisher over a channel that you trust"),
        Error::Forwarded { to } => problem(Fault::TreeMoved, format!("{name} has moved to {to}")).cure("use the new name"),
        Error::TimedOut { .. } | Error::Unreachable { .. } => problem(Fault::NoAnswer, error.to_string())
            .cure("the port is open, but no replica answers: is another service there, or a proxy? Look at the log of `vouch serve`"),
        _ => problem(Fault::TreeUnreadable, error.to_string()).cure("see docs/troubleshooting.md, \"A tree cannot be read\""),
    }
}

const SAMPLE_BYTES: u64 = 16 << 20;
const SAMPLE_TIME: Duration = Duration::from_secs(5);
