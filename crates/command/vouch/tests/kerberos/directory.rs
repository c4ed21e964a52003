//! Users and groups of an LDAP directory with 10,000 users, and its outages.

mod kerberos_users;
mod site;
mod sssd;

use vouch_nfs4::Bitmap;
use vouch_nfs4::op::{Op, Results};
use vouch_nfs4_client::Client;
use vouch_testkit::assert_contains;
use vouch_testkit::words;

use crate::prelude::*;
use site::{CROWD_LEN, CROWDS, Export, GROUPS, Site, USERS, enters, uid};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

/// Patience of nslcd in seconds: it hangs with the directory, or soon reports an outage.
const HANGS: u32 = 600;
const REPORTS: u32 = 1;

async fn owners(client: &Client, user: &str) -> (String, String) {
    let compound =
        client.compound().putrootfh().lookup(b"export").lookup(b"files").lookup(user.as_bytes());
    let reply = compound
        .getattr(Bitmap::of(&[36, 37]))
        .send()
        .await
        .unwrap_or_else(|error| panic!("user {user}: {error}"));
    let mut results = reply.results();
    results.skip(&[Op::PUTROOTFH, Op::LOOKUP, Op::LOOKUP, Op::LOOKUP]).expect("a file");
    let Ok(Results::Getattr(Ok(found))) = results.next_ok() else {
        panic!("user {user}: no attributes")
    };
    let attributes = found.attrs.attributes().expect("attributes");
    let text = |name: Option<&[u8]>| String::from_utf8_lossy(name.expect("a name")).into_owned();
    (text(attributes.owner.map(|name| name.0)), text(attributes.owner_group.map(|name| name.0)))
}

#[test]
#[ignore = "needs root, nslcd and slapd"]
fn ten_thousand_users_have_their_names_and_groups() {
    let site = Site::start(HANGS);
    let export = site.export(&[]);
    runtime().block_on(async {
        let root = export.client(0).await;
        for start in (0..USERS).step_by(64) {
            let fetched: Vec<_> = (start..USERS.min(start + 64))
                .map(|user| {
                    let root = root.clone();
                    tokio::spawn(async move { (user, owners(&root, &user.to_string()).await) })
                })
                .collect();
            for one in fetched {
                let (user, owners) = one.await.expect("no panic");
                assert_eq!(
                    owners,
                    (
                        format!("user{user}@vouch.test"),
                        format!("crowd{}@vouch.test", user / CROWD_LEN)
                    )
                );
            }
        }
        assert_memberships(&export, 97).await;
    });
    assert_users_are_found(&site);
}

/// Looks at each `step`-th user, and at the one that is in all groups.
async fn assert_memberships(export: &Export, step: usize) {
    for user in (1..USERS).step_by(step) {
        let client = export.client(uid(user)).await;
        for crowd in 0..CROWDS {
            let expected = if crowd == user / CROWD_LEN { Ok(()) } else { Err(Status::ACCESS) };
            assert_eq!(
                enters(&client, &format!("crowd{crowd}")).await,
                expected,
                "user {user}, crowd {crowd}"
            );
        }
        assert_eq!(enters(&client, "group7").await, Err(Status::ACCESS));
    }
    let member_of_all = export.client(uid(0)).await;
    for group in 0..GROUPS {
        assert_eq!(enters(&member_of_all, &format!("group{group}")).await, Ok(()), "group {group}");
    }
}

fn assert_users_are_found(site: &Site) {
    let found = site.check(&["--user", "user0"]);
    assert_contains!(found, &format!("uid {}, gid 200000, {} groups", uid(0), GROUPS + 2));
    assert_contains!(
        site.check(&["--user", "nobody-knows"]),
        "PROBLEM  user-without-account: nobody-knows"
    );
}

/// `--identity-cache` of these tests, 5 s of a connection's memory, and the coarse clock.
const STATED: Duration = Duration::from_millis(2_000 + 5_000 + 100);

/// Calls until one is refused. A call that began after the stated time fails the test, however busy
/// the machine is.
async fn until_refused(client: &Client, since: Instant, stated: Duration, refusal: Status) {
    loop {
        let began = Instant::now();
        match enters(client, "crowd0").await {
            Ok(()) => assert!(
                began < since + stated,
                "a call that began after {:?} has the old right",
                began - since
            ),
            Err(status) if status == refusal => return,
            Err(status) => panic!("{status}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until_admitted(client: &Client) {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match enters(client, "crowd0").await {
            Ok(()) => return,
            Err(status) => assert_eq!(status, Status::DELAY),
        }
        assert!(Instant::now() < end, "the user stays unknown");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
#[ignore = "needs root, nslcd and slapd"]
fn removed_member_loses_its_right_within_the_stated_time() {
    let site = Site::start(HANGS);
    let export = site.export(&["--identity-cache", "2s"]);
    runtime().block_on(async {
        let (busy, idle) = (export.client(uid(1)).await, export.client(uid(2)).await);
        for client in [&busy, &idle] {
            assert_eq!(enters(client, "crowd0").await, Ok(()));
        }
        [1, 2].into_iter().for_each(|user| site.remove_from_crowd(user, 0));
        let changed = Instant::now();
        until_refused(&busy, changed, STATED, Status::ACCESS).await;
        tokio::time::sleep((changed + STATED).saturating_duration_since(Instant::now())).await;
        assert_eq!(
            enters(&idle, "crowd0").await,
            Err(Status::ACCESS),
            "the first call of an idle user"
        );
    });
}

#[test]
#[ignore = "needs root, nslcd and slapd"]
fn hanging_directory_delays_unknown_users_only() {
    let site = Site::start(HANGS);
    let export = site.export(&["--identity-wait", "120s", "--waiting-threads", "1"]);
    runtime().block_on(async {
        let [known, other] = [export.client(uid(1)).await, export.client(uid(CROWD_LEN)).await];
        assert_eq!(
            (enters(&known, "crowd0").await, enters(&other, "crowd1").await),
            (Ok(()), Ok(()))
        );
        site.signal_slapd("STOP");
        let mut unknown = Vec::new();
        for user in 100..140 {
            let client = export.client(uid(user)).await;
            unknown.push(tokio::spawn(async move { enters(&client, "crowd0").await }));
        }
        for _ in 0..200 {
            assert_eq!(
                (enters(&known, "crowd0").await, enters(&other, "crowd1").await),
                (Ok(()), Ok(()))
            );
        }
        assert!(
            unknown.iter().all(|one| !one.is_finished()),
            "400 calls of others are answered before the first of an unknown user"
        );
        site.signal_slapd("CONT");
        for one in unknown {
            assert_eq!(one.await.expect("no panic"), Ok(()));
        }
    });
}

#[test]
#[ignore = "needs root, nslcd and slapd"]
fn known_users_outlive_an_outage_and_unknown_ones_wait() {
    let mut site = Site::start(REPORTS);
    let export = site.export(&["--identity-cache", "2s", "--identity-wait", "1s"]);
    runtime().block_on(async {
        let [known, leaver] = [export.client(uid(1)).await, export.client(uid(2)).await];
        for client in [&known, &leaver] {
            assert_eq!(enters(client, "crowd0").await, Ok(()));
        }
        // The directory hangs, and later it is gone.
        site.signal_slapd("STOP");
        let unknown = export.client(uid(3)).await;
        serves_known_users_only(&site, &export, [&known, &leaver], &unknown).await;
        site.signal_slapd("CONT");
        until_admitted(&unknown).await;
        site.kill_slapd();
        let unknown = export.client(uid(4)).await;
        serves_known_users_only(&site, &export, [&known, &leaver], &unknown).await;
        assert_failed_lookups_are_named(&site);
        site.reload(&export);
        for client in [&known, &leaver] {
            assert_eq!(enters(client, "crowd0").await, Ok(()), "a reload ends no answer");
        }
        site.start_slapd();
        site.remove_from_crowd(2, 0);
        let changed = Instant::now();
        until_admitted(&unknown).await;
        until_refused(&leaver, changed, Duration::from_secs(120), Status::ACCESS).await;
        assert_eq!(enters(&known, "crowd0").await, Ok(()));
    });
    let found = site.check(&[&export.state().display().to_string()]);
    assert!(!found.contains("name-service-silent"), "{found}");
    assert_contains!(export.log(), "NFS4ERR_DELAY: the name service does not answer");
    let reason = "the name service does not answer, and the caller is not cached: NFS4ERR_DELAY";
    export.until("no refusal is recorded", || {
        export.refusals().iter().any(|detail| detail == reason)
    });
}

/// Length of each outage. VOUCH_DIRECTORY_MINUTES makes it a campaign.
fn outage() -> Duration {
    std::env::var("VOUCH_DIRECTORY_MINUTES").map_or(STATED * 2, |minutes| {
        Duration::from_secs(60 * minutes.parse::<u64>().expect("a number of minutes"))
    })
}

async fn serves_known_users_only(
    site: &Site,
    export: &Export,
    known: [&Client; 2],
    unknown: &Client,
) {
    let end = Instant::now() + outage();
    while Instant::now() < end {
        for client in known {
            assert_eq!(enters(client, "crowd0").await, Ok(()));
            assert_eq!(enters(client, "crowd1").await, Err(Status::ACCESS));
        }
        assert_eq!(enters(unknown, "crowd0").await, Err(Status::DELAY));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let found = site.check(&[&export.state().display().to_string()]);
    assert!(found.contains("PROBLEM  name-service-silent: users and groups"), "{found}");
    let found = site.check(&["--user", "user5"]);
    assert!(found.contains("PROBLEM  name-service-silent: user5"), "{found}");
}

/// `daemon` is in /etc/passwd, but may have groups in the directory.
fn assert_failed_lookups_are_named(site: &Site) {
    for (user, what) in [("user5", "the user"), ("daemon", "the user's groups")] {
        let found = site.check(&["--user", user]);
        assert_contains!(
            found,
            &format!("PROBLEM  name-service-silent: {user}: the look-up of {what} fails: `ldap`")
        );
    }
}

#[test]
#[ignore = "needs root, nslcd and slapd"]
fn known_user_is_forgotten_after_the_life_in_an_outage() {
    let mut site = Site::start(REPORTS);
    let export = site.export(&words("--identity-cache 2s --identity-outage 4s --identity-wait 1s"));
    runtime().block_on(async {
        let known = export.client(uid(1)).await;
        assert_eq!(enters(&known, "crowd0").await, Ok(()));
        site.kill_slapd();
        until_refused(&known, Instant::now(), STATED + Duration::from_secs(2), Status::DELAY).await;
        site.start_slapd();
        until_admitted(&known).await;
    });
}
