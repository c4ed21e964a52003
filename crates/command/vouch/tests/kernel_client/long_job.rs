//! A job of days by moved clocks: KDC, broker and server follow one clock, and the guest, with the
//! agent, rpc.gssd and the kernel's NFS client, another one. Both move by the same steps.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::guest::{self, Guest, Network};
use crate::jobs::{BROKER, Broker, JOB_USER, SERVICE};
use crate::kerberos::{ENCTYPES, require_gssd};
use crate::memory::GuestMemory;
use crate::moved_clock::MovedClock;
use crate::server::{Server, ServerOptions};
use vouch_testkit::kdc::Client;
use vouch_testkit::ldap::LdapRealm;

const HOUR_S: u64 = 3600;
const TICKET_S: u64 = 12 * HOUR_S;
/// Less than half of a ticket's life, at which tickets are renewed.
const STEP_S: u64 = 5 * HOUR_S;

/// VOUCH_JOB_DAYS makes it a campaign.
fn days() -> u64 {
    std::env::var("VOUCH_JOB_DAYS").map_or(1, |days| days.parse().expect("a number of days"))
}

#[test]
#[ignore = "needs root and guests"]
fn job_of_days_has_access_until_its_deadline() {
    let network = Network::new();
    let mut clock = MovedClock::start();
    require_gssd();
    let address = network.address.parse().expect("an address");
    let mut realm = LdapRealm::start(&[address]);
    let (kdc, machine) = (&realm.kdc, format!("host/{}", network.guest_name()));
    kdc.add(&[JOB_USER, SERVICE, &machine]);
    kdc.add_with(&[BROKER], "+ok_to_auth_as_delegate");
    realm.allow_delegation(BROKER, &[SERVICE]);
    let machine_keytab = kdc.keytab("machine.keytab", &[&machine]);
    let server_keytab = kdc.keytab("server.keytab", &[SERVICE]);
    kdc.client(&Client { name: "server", ..Client::default() });
    std::fs::create_dir(kdc.path("guest")).expect("a directory");
    let krb5_conf = kdc.client(&Client {
        name: "guest/krb5",
        kdc: address,
        enctypes: ENCTYPES,
        ..Client::default()
    });
    realm.kdc.stop();
    realm.kdc.start_again_with(clock.environment());
    let kdc = &realm.kdc;
    let server = Server::start_with(
        &network,
        ServerOptions {
            options: "rw,sec=krb5p".into(),
            more: vec!["--keytab".into(), server_keytab.into()],
            environment: [kdc.environment("server"), clock.environment()].concat(),
            ..ServerOptions::default()
        },
    );
    std::fs::set_permissions(server.path(""), std::fs::Permissions::from_mode(0o777))
        .expect("the export is ours");
    let broker = Broker::start(kdc, &network, TICKET_S, &clock.environment());
    let (job_s, steps) = (24 * HOUR_S * days(), (24 * HOUR_S * days()).div_ceil(STEP_S));
    broker.begin("7", JOB_USER, &network.guest_name(), job_s);
    let deadline_s = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs() + job_s;
    let guest = Guest::new(&network, &server)
        .limit(u32::try_from(steps).expect("a small number") * 60 + 300)
        .file(&krb5_conf)
        .file(&guest::work("gss.bash"))
        .file(&machine_keytab)
        .set("VOUCH", env!("CARGO_BIN_EXE_vouch"))
        .set("BROKER", &format!("server.vouch.test:{}", broker.port))
        .set("TICKET_SECONDS", &TICKET_S.to_string())
        .set("STEP_SECONDS", &STEP_S.to_string())
        .set("STEPS", &steps.to_string())
        // A second may have passed since the broker took the job.
        .set("deadline", &(deadline_s - 2).to_string())
        .start("long_job.sh");
    let job = GuestMemory::of(&network);
    for step in 1..=steps {
        job.wait_for(&format!("step {step}"));
        clock.advance(STEP_S);
        job.create(&format!("moved-{step}"));
    }
    let out = guest.ok();
    println!("{out}");
    assert!(out.contains("ok: no access after the deadline"), "{out}");
    assert_eq!(
        std::fs::metadata(server.path("output")).expect("the job's file").uid(),
        1,
        "the job's user owns the file"
    );
}
