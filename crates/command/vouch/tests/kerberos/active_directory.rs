//! Domains of Active Directory, with Samba as their controllers, in namespaces of their own: a machine
//! that adcli(8) joins, tickets of more than 16 KiB, users and nested groups by winbind, new passwords
//! of the machine, a read-only controller, a second domain, and the loss of the controller.

mod controller;
mod domain;
mod member;
mod read_only;
mod rotation;
mod sssd;
mod trust;

use std::path::Path;
use vouch_testkit::assert_contains;
use vouch_testkit::words;

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4_client::{Client, Config, Error, establish};
use vouch_rpcsec_gss::{InitStep, Initiator};

use crate::documented;
use crate::prelude::*;
use domain::{Domain, ROOT};

const TARGET: &str = "nfs@filer.ad.vouch.test";

const INSIDE: &str = "VOUCH_TEST_DOMAIN";
const PORT: &str = "VOUCH_TEST_DOMAIN_PORT";
const TARGET_NAME: &str = "VOUCH_TEST_DOMAIN_TARGET";
const WHERE: &str = "VOUCH_TEST_DOMAIN_DIRECTORY";
const ENTERED: &str = "entered with a token of ";
const REFUSED: &str = "refused: ";

/// The user `alice` of /etc/passwd.
const ALICE: (u32, u32) = (54_321, 54_321);

/// Groups in which alice is by another group.
const NESTING_GROUPS: u32 = 2_500;

/// Runs a test of this program in namespaces of its own.
fn run_in_namespaces(test: &str) {
    let may = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "true"])
        .status()
        .is_ok_and(|status| status.success());
    let is_there = |program: &str| Path::new(&*ROOT).join("usr/sbin").join(program).exists();
    require(
        "root, namespaces and samba-dc of script/install-needs",
        may && ["samba", "msktutil"].into_iter().all(is_there),
    );
    let mut command = Command::new("unshare");
    command.args(words(
        "--mount --net --uts --pid --fork --kill-child --mount-proc --propagation private",
    ));
    let test = this_test(test);
    succeed(command.arg(test.get_program()).args(test.get_args()).env(INSIDE, "1"));
}

fn is_inside() -> bool {
    std::env::var(INSIDE).is_ok()
}

#[test]
#[ignore = "needs root and samba-dc"]
fn domain_users_are_served_while_passwords_change_and_the_controller_is_lost() {
    run_in_namespaces("active_directory::domain_process");
}

/// The child in the namespaces; does nothing without its variable.
#[test]
fn domain_process() {
    if !is_inside() {
        return;
    }
    let mut domain = Domain::start(NESTING_GROUPS);
    domain.join();
    assert_commands_of_the_guide_find_key_and_user(&domain);
    domain.make_directory("own", ALICE);
    let export = domain.export("files");
    let alice = domain.kinit("alice", "first");
    let len = export
        .enters(&domain, &alice)
        .unwrap_or_else(|status| panic!("{status}: {}", domain.log()));
    assert!(len > 16 * 1024, "{len}");
    let status = |cache: &str| export.enters(&domain, cache).expect_err("no right");
    assert_eq!(status(&domain.kinit("bob", "bob")), Status::ACCESS.to_string(), "no account");
    assert_eq!(
        status(&domain.kinit_machine()),
        Status::ACCESS.to_string(),
        "a machine is anonymous"
    );
    let winbind = member::start(&domain);
    users_of_winbind_have_their_groups(&domain);
    drop(winbind);
    rotation::run(&domain, &export);
    lost_controller_stops_no_known_user(&mut domain, &export);
}

fn assert_commands_of_the_guide_find_key_and_user(domain: &Domain) {
    let found = domain.output_of_documented("vouch check --keytab");
    assert!(found.contains("has a key of the service nfs"), "{found}");
    let found = domain.output_of_documented("vouch check --user");
    assert_contains!(found, &format!("alice: uid {}, gid {}, 1 groups", ALICE.0, ALICE.1));
}

/// `carol` is no user of /etc/passwd: `auth_to_local` makes `AD\carol` of her principal. She is
/// in `staff` by two groups between them.
fn users_of_winbind_have_their_groups(domain: &Domain) {
    domain.make_directory("staff", (0, domain.group_id("AD\\staff")));
    let export = domain.export_by_winbind("winbind");
    let carol = domain.kinit("carol", "carol");
    export
        .enters_at("staff", domain, &carol)
        .unwrap_or_else(|status| panic!("{status}: {}", domain.log()));
    assert_eq!(
        export.enters_at("staff", domain, &domain.kinit("bob", "bob")),
        Err(Status::ACCESS.to_string()),
        "not a member"
    );
}

fn lost_controller_stops_no_known_user(domain: &mut Domain, export: &domain::Export) {
    let alice = domain.kinit("alice", "lost");
    let enters = |domain: &Domain, export: &domain::Export| {
        export.enters(domain, &alice).unwrap_or_else(|status| panic!("{status}: {}", domain.log()));
    };
    enters(domain, export);
    domain.controller.stop();
    enters(domain, export);
    // Tickets at hand are enough for a server that starts without the controller.
    let second = domain.export("second");
    enters(domain, &second);
    domain.controller.start();
    let bob = domain.kinit("bob", "bob-again");
    assert_eq!(export.enters(domain, &bob), Err(Status::ACCESS.to_string()));
    enters(domain, export);
}

/// A client's process; does nothing without its variables.
#[test]
fn client_process() {
    if std::env::var(PORT).is_err() {
        return;
    }
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let (client, token_len) = connect(&ClientSource::default()).await;
        match walk(&client).await {
            Ok(()) => println!("{ENTERED}{token_len}"),
            Err(status) => println!("{REFUSED}{status}"),
        }
    });
}

fn server_address() -> SocketAddr {
    let port = std::env::var(PORT).expect("the parent sets it");
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("a port")))
}

/// Also the length of the first token.
async fn connect(source: &ClientSource) -> (Client, usize) {
    let target = std::env::var(TARGET_NAME).expect("the parent sets it");
    let initiator = || MitInitiator::new(&target, source).unwrap_or_else(|fault| panic!("{fault}"));
    let InitStep::Continue { token } =
        initiator().step(None).unwrap_or_else(|fault| panic!("{fault}"))
    else {
        panic!("a token")
    };
    let protection = establish(server_address(), initiator(), Service::Privacy)
        .unwrap_or_else(|error| panic!("{error}"));
    let name = std::env::var("KRB5CCNAME").expect("the parent sets it");
    let config = Config::new(
        server_address(),
        1,
        Identity::new(name.into_bytes(), Verifier([7; 8])),
        protection,
    );
    let client = Client::connect(config).await.unwrap_or_else(|error| panic!("{error}"));
    (client, token.len())
}

async fn walk(client: &Client) -> Result<(), Status> {
    let directory = std::env::var(WHERE).expect("the parent sets it");
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match client.walk(format!("export/{directory}/inside").as_bytes()).await {
            Ok(_) => return Ok(()),
            // A look-up in the domain may take a while.
            Err(Error::Refused { status: Status::DELAY, .. }) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Err(Error::Refused { status, .. }) => return Err(status),
            Err(error) => panic!("{error}"),
        }
    }
}
