use std::collections::BTreeMap;
use std::sync::OnceLock;

use vouch_testkit::SplitMix64;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::statement::{Body, KeyStatement};
use vouch_xdr::Xdr;

use crate::fixture::replica::TestReplica;
use crate::fixture::{NOW, Node, Published, Publisher, dir, noise};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    Newest,
    Older,
    Expired,
    FromTheFuture,
    OfAnotherTree,
    ForgedBytes,
    ForgedKey,
    ForgedRevocation,
    Nothing,
}

pub const OFFERS: [Offer; 9] = [
    Offer::Newest,
    Offer::Older,
    Offer::Expired,
    Offer::FromTheFuture,
    Offer::OfAnotherTree,
    Offer::ForgedBytes,
    Offer::ForgedKey,
    Offer::ForgedRevocation,
    Offer::Nothing,
];

pub type RevisionId = (u64, u64);

pub struct Scenario {
    pub publisher: Publisher,
    expired: Published,
    older: Published,
    pub stages: [(RevisionId, Published); 3],
    future: Published,
    pub stolen: (RevisionId, Published),
    forged_key: Published,
    other: Published,
    pub truth: BTreeMap<RevisionId, BTreeMap<Vec<u8>, Node>>,
}

fn content(seed: u64) -> Node {
    let small = (0..40u64)
        .map(|n| (format!("s{n}").into_bytes(), Node::File(noise(seed ^ n, (n * n * 3) as usize))))
        .collect();
    let many = (0..700u64)
        .map(|n| {
            (format!("entry-{n:05}").into_bytes(), Node::File(noise(seed + n, (n % 90) as usize)))
        })
        .collect();
    let big = noise(seed, 300_000);
    let holey = [&big[..1000], &vec![0; 400_000], &big[..70_000]].concat();
    dir([
        ("small", Node::Dir(small)),
        ("many", Node::Dir(many)),
        ("deep", dir([("er", dir([("still", dir([("file", Node::File(noise(seed, 2000)))]))]))])),
        ("big", Node::File(big)),
        ("holey", Node::File(holey)),
        ("link", Node::Link(b"small/s3".to_vec())),
        ("empty", dir([])),
    ])
}

fn changed(tree: &Node, seed: u64) -> Node {
    let Node::Dir(mut root) = tree.clone() else { unreachable!("roots are directories") };
    root.insert(b"big".to_vec(), Node::File(noise(seed ^ 77, 290_000)));
    root.insert(format!("new-{seed}").into_bytes(), Node::File(noise(seed, 5000)));
    if let Some(Node::Dir(many)) = root.get_mut(&b"many"[..]) {
        many.remove(&b"entry-00100"[..]);
        many.insert(b"entry-00100x".to_vec(), Node::File(noise(seed, 3000)));
    }
    Node::Dir(root)
}

fn flatten(node: &Node, path: &[u8], into: &mut BTreeMap<Vec<u8>, Node>) {
    into.insert(path.to_vec(), node.clone());
    if let Node::Dir(entries) = node {
        for (name, node) in entries {
            let path = if path.is_empty() { name.clone() } else { [path, b"/", name].concat() };
            flatten(node, &path, into);
        }
    }
}

impl Scenario {
    fn new(seed: u8) -> Self {
        let mut publisher = Publisher::new(seed);
        let trees = (0..5).scan(content(seed.into()), |tree, n| {
            let this = tree.clone();
            *tree = changed(&this, n + 1);
            Some(this)
        });
        let trees: Vec<Node> = trees.collect();
        let expired = publisher.publish(&trees[0], NOW - 200_000);
        let older = publisher.publish(&trees[1], NOW - 5000);
        let newest = publisher.publish(&trees[2], NOW - 1000);
        // Content of revision 1, but a start in the future.
        let (revision, previous) = (publisher.revision, publisher.previous);
        let future = publisher.publish(&trees[0], NOW + 50_000);
        publisher.previous = previous;
        let next = publisher.publish(&trees[3], NOW - 900);
        let mut thief_of_signing_key = Publisher::new(seed);
        (thief_of_signing_key.revision, thief_of_signing_key.previous) = (899, previous);
        let stolen = thief_of_signing_key.publish(&trees[0], NOW - 850);
        let first_cert = publisher.cert;
        publisher.signing = SecretKey::from_seed(&[seed ^ 0x77; 32]);
        publisher.cert = SigningCert::issue(
            &publisher.root,
            publisher.signing.public(),
            2,
            NOW - 1_000_000,
            NOW + 100_000_000,
        );
        publisher.revision = 1;
        let renewed = publisher.publish(&trees[4], NOW - 800);
        (publisher.signing, publisher.cert) =
            (SecretKey::from_seed(&[seed ^ 0x80; 32]), first_cert);
        (publisher.revision, publisher.previous) = (revision, previous);
        let revision_ids = [(1, 1), (1, 2), (1, 3), (1, 5), (2, 2), (1, 4), (1, 900)];
        let truth = trees.iter().chain([&trees[0], &trees[0]]).zip(revision_ids).map(
            |(tree, revision_id)| {
                let mut flat = BTreeMap::new();
                flatten(tree, b"", &mut flat);
                (revision_id, flat)
            },
        );
        let truth = truth.collect();
        let mut thief = Publisher::new(seed);
        let other_root = Publisher::new(seed ^ 0x33);
        thief.cert = other_root.cert;
        thief.signing = SecretKey::from_seed(&[seed ^ 0x33 ^ 0x80; 32]);
        thief.root = SecretKey::from_seed(&[seed ^ 0x33; 32]);
        thief.revision = 50;
        thief.previous = publisher.previous;
        let forged_key = thief.publish(&trees[0], NOW - 10);
        let other = Publisher::new(seed ^ 0x44).publish(&trees[0], NOW - 10);
        let stages = [((1, 3), newest), ((1, 5), next), ((2, 2), renewed)];
        Self {
            publisher,
            expired,
            older,
            stages,
            future,
            stolen: ((1, 900), stolen),
            forged_key,
            other,
            truth,
        }
    }
}

pub fn scenarios() -> &'static [Scenario] {
    static SCENARIOS: OnceLock<Vec<Scenario>> = OnceLock::new();
    SCENARIOS.get_or_init(|| vec![Scenario::new(10), Scenario::new(11)])
}

pub fn offer(replica: &TestReplica, scenario: &Scenario, offer: Offer, random: &mut SplitMix64) {
    let base = match offer {
        Offer::Older => &scenario.older,
        Offer::Expired => &scenario.expired,
        Offer::FromTheFuture => &scenario.future,
        Offer::OfAnotherTree => &scenario.other,
        Offer::ForgedKey => &scenario.forged_key,
        _ => &scenario.stages[0].1,
    };
    replica.serve_revision(base);
    replica.alter(|served| {
        served.hostid = Some(scenario.publisher.hostid());
        served.statements.clear();
        match offer {
            Offer::ForgedBytes => {
                let bit = random.roll(served.signed.len() as u64 * 8) as usize;
                served.signed[bit / 8] ^= 1 << (bit % 8);
            }
            Offer::ForgedRevocation => {
                let mut statement = KeyStatement::issue(
                    &scenario.publisher.root,
                    NOW,
                    Body::Revocation { reason: "lie".into() },
                )
                .to_xdr();
                let last = statement.len() - 1;
                statement[last] ^= 1;
                served.statements.push(statement);
            }
            Offer::Nothing => served.signed.clear(),
            _ => {}
        }
        if random.one_in(2) {
            served.companions = served
                .frames
                .values()
                .take(3)
                .filter(|f| f.len() < 20_000)
                .map(|f| f.to_vec())
                .collect();
        }
        if random.one_in(8) {
            served.companions.push(noise(random.draw(), 3000));
        }
    });
}
