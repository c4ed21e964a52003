use std::cell::Cell;
use std::net::IpAddr;

use super::*;
use crate::operations::number::OPEN;
use crate::record::access;
use crate::rules::Rules;
use crate::rules::condition::sides;
use crate::rules::tests::TestResolver;

fn rules(text: &str) -> Rules {
    Rules::parse(text, &TestResolver).unwrap()
}

fn scan<'r>(
    rules: &'r Rules,
    record: &Record<'_>,
    applies: impl Fn(&Rule) -> bool,
) -> Option<&'r Rule> {
    rules.rules.iter().find(|rule| applies(rule) && rule.holds(record, &sides(record)))
}

const PATHS: [&str; 7] = ["/", "/a", "/a/b", "/a/b/c", "/d", "", "/a/.../c"];
const ADDRESSES: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "2001:db8::1", "::ffff:10.0.0.1"];
const EXITS: [(u32, &str); 4] = [(0, "0"), (13, "-EACCES"), (2, "-ENOENT"), (70, "-ESTALE")];

fn field(kind: usize, value: usize, more: usize) -> String {
    let compare = ["=", "!=", "<", "<=", ">", ">="][more % 6];
    let equality = ["=", "!="][more % 2];
    match kind {
        0 => format!("-F dir={}", PATHS[value % 5]),
        1 => format!("-F path={}", PATHS[value % 5]),
        2 => format!("-F uid{compare}{value}"),
        3 => format!("-F auid{compare}{value}"),
        4 => format!("-F gid{compare}{value}"),
        5 => format!(
            "-F exit{}{}",
            if value.is_multiple_of(4) && compare == ">" { ">=" } else { compare },
            EXITS[value % 4].1
        ),
        6 => format!(
            "-F principal{equality}{}",
            ["p1@R", "p*@R", "*@R", "p2*", "*1*", "*"][value % 6]
        ),
        7 => format!("-F client{equality}{}", ["a.example", "*.example", "b*", "*x*"][value % 4]),
        8 => {
            let address = ADDRESSES[value % 5];
            let lens = if address.contains(':') {
                ["", "/0", "/64", "/120"]
            } else {
                ["", "/0", "/24", "/31"]
            };
            format!("-F client{equality}{address}{}", lens[more / 2 % 4])
        }
        9 => format!("-F export{equality}{}", PATHS[value % 5]),
        10 => format!("-F flavour{equality}{}", Flavour::ALL[value % Flavour::ALL.len()].name()),
        11 => format!("-F perm={}", ["r", "w", "x", "a", "rx"][value % 5]),
        12 => format!("-F success={}", value % 2),
        _ => String::new(),
    }
}

fn line(
    number: usize,
    (always, fields, operations): &(bool, Vec<(usize, usize, usize)>, usize),
) -> String {
    let action = if *always { "always" } else { "never" };
    let mut fields: Vec<String> =
        fields.iter().map(|(kind, value, more)| field(*kind, *value, *more)).collect();
    let permissions = fields.iter().rposition(|field| field.starts_with("-F perm="));
    let mut at = 0..fields.len();
    fields.retain(|field| at.next() == permissions || !field.starts_with("-F perm="));
    let operations =
        ["", "", "-S READ", "-S OPEN,stat", "-S ACCESS,rename", "-S all"][operations % 6];
    format!("-a {action},exit {operations} {} -k {number}\n", fields.join(" "))
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 2000, ..Default::default() })]
    #[test]
    fn index_selects_same_rule_as_scan(
        lines in proptest::collection::vec(
            (proptest::bool::ANY, proptest::collection::vec((0usize..14, 0usize..6, 0usize..8), 0..4), 0usize..6), 0..24),
        ids in (0u32..6, 0u32..6, proptest::option::of(0u32..6)), paths in (0usize..7, 0usize..7, 0usize..5), names in (0usize..5, 0usize..4),
        address in proptest::option::of(0usize..5), operation in proptest::prop_oneof![3u16..76, 28u16..30, 3u16..4, 18u16..19], exit in 0usize..4,
        requested in 0u32..64, granted in proptest::option::of(0u32..64), flavour in 0usize..6
    ) {
        let text: String = lines.iter().enumerate().map(|(number, picks)| line(number, picks)).collect();
        let rules = rules(&text);
        let record = Record {
            operation,
            class: Class::Operation,
            flavour: Flavour::ALL[flavour],
            uid: Some(ids.0),
            gid: Some(ids.1),
            login: ids.2,
            principal: [&b"p1@R"[..], b"p2@R", b"p2@S", b"", b"x1y"][names.0],
            client: [&b"a.example"[..], b"b.example", b"", b"bxc"][names.1],
            address: address.map(|at| ADDRESSES[at].parse().unwrap()),
            path: PATHS[paths.0].as_bytes(),
            path2: PATHS[paths.1].as_bytes(),
            export: PATHS[paths.2].as_bytes(),
            result: EXITS[exit].0,
            requested: Some(requested),
            granted,
            ..Record::default()
        };
        let key = |rule: &Rule| rule.key.to_vec();
        let wanted = scan(&rules, &record, |rule| rule.operations & single(operation) != 0).filter(|rule| rule.always).map(key);
        proptest::prop_assert_eq!(rules.select(&record).map(<[u8]>::to_vec), wanted);
        let refusal = Record { class: Class::Refusal, operation: 1 + operation % 8, ..record };
        let wanted = match scan(&rules, &refusal, |rule| !rule.names_operations) {
            Some(rule) => rule.always.then(|| key(rule)),
            None => Some(Vec::new()),
        };
        proptest::prop_assert_eq!(rules.select_refusal(&refusal).map(<[u8]>::to_vec), wanted);
    }
}

fn count_evaluations(rules: &Rules, record: &Record<'_>) -> usize {
    let count_evaluations = Cell::new(0);
    rules.first_match(record, Lookup::Operation, |rule| {
        count_evaluations.set(count_evaluations.get() + 1);
        rule.operations & single(record.operation) != 0
    });
    count_evaluations.get()
}

#[test]
fn thousand_rules_cost_a_lookup_not_a_scan() {
    let record = Record {
        operation: OPEN,
        class: Class::Operation,
        flavour: Flavour::Krb5,
        uid: Some(500),
        gid: Some(500),
        principal: b"user500@R500.EXAMPLE.ORG",
        client: b"node500.example.org",
        address: Some(IpAddr::from([10, 0, 1, 244])),
        export: b"/srv/500",
        path: b"/srv/500/f",
        requested: Some(access::READ),
        result: 13,
        ..Record::default()
    };
    type RuleText = fn(usize) -> String;
    let sets: [(RuleText, usize); 24] = [
        (|n| format!("-F path=/srv/{n}/f"), 1),
        (|n| format!("-F dir=/srv/{n}"), 1),
        (|n| format!("-F uid={n}"), 1),
        (|n| format!("-F auid={n}"), 1),
        (|n| format!("-F gid={n}"), 1),
        (|n| format!("-F gid={n} -F export=/srv/500"), 1),
        (|n| format!("-F uid={n} -F dir=/srv/500"), 1),
        (|n| format!("-F uid>={} -F uid<{}", 10 * n, 10 * n + 10), 1),
        (|n| format!("-F gid>{}", n + 500), 0),
        (|n| format!("-F exit<-{}", 13 + n % 100), 0),
        (|n| format!("-F principal=user{n}@R{n}.EXAMPLE.ORG"), 1),
        (|n| format!("-F principal=*@R{n}.EXAMPLE.ORG"), 1),
        (|n| format!("-F principal=user{n}@*"), 1),
        (|n| format!("-F client=10.0.{}.{}", n / 256, n % 256), 1),
        (|n| format!("-F client=10.{}.{}.0/24", n / 256, n % 256), 1),
        (|n| format!("-F client=2001:db8:{n:x}::/48"), 0),
        (|n| format!("-F client=node{n}.example.org"), 1),
        (|n| format!("-F client=node{n}.*"), 1),
        (|n| format!("-F export=/srv/{n}"), 1),
        (|_| "-F exit=-ENOENT".into(), 0),
        (|_| "-F success=1".into(), 0),
        (|_| "-F flavour=sys".into(), 0),
        (|_| "-F perm=x".into(), 0),
        (|_| "-S READ,WRITE".into(), 0),
    ];
    for (rule_text, evaluated_max) in sets {
        let text: String =
            (0..1000).map(|number| format!("-a always,exit {}\n", rule_text(number))).collect();
        let evaluated = count_evaluations(&rules(&text), &record);
        assert!(evaluated <= evaluated_max, "{evaluated} evaluations for {}", rule_text(500));
    }
}
