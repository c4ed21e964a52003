use super::super::options::Fsid;
use super::*;
use vouch_nfs4_server::{Flavour, SquashWho};

#[test]
fn parses_example_of_manual() {
    let text = b"# sample /etc/exports file
/               master(rw) trusty(rw,no_root_squash)
/projects       proj*.local.domain(rw)
/usr            *.local.domain(ro) @trusted(rw)
/home/joe       pc001(rw,all_squash,anonuid=150,anongid=100)
/pub            *(ro,insecure,all_squash)
/srv/www        -sync,rw server @trusted @external(ro)
/foo            2001:db8:9:e54::/64(rw) 192.0.2.0/24(rw)
/build          buildhost[0-9].local.domain(rw)
";
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.warnings, []);
    let paths: Vec<_> = parsed
        .entries
        .iter()
        .map(|entry| (entry.source.clone(), entry.line, entry.clients.len()))
        .collect();
    let expected = [
        ("/", 2, 2),
        ("/projects", 3, 1),
        ("/usr", 4, 2),
        ("/home/joe", 5, 1),
        ("/pub", 6, 1),
        ("/srv/www", 7, 3),
        ("/foo", 8, 2),
        ("/build", 9, 1),
    ];
    assert_eq!(
        paths,
        expected.map(|(path, line, clients)| (Source::Directory(path.into()), line, clients))
    );
    let www = &parsed.entries[5].clients;
    assert_eq!(
        www.iter().map(|client| client.options.read_only).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert_eq!(parsed.entries[0].clients[1].options.squash.who, SquashWho::Nobody);
}

#[test]
fn client_rights_override_line_defaults() {
    for (line, rights) in [
        (
            "-sec=sys,rw,no_root_squash h(ro,root_squash)",
            &[(Flavour::Sys, true, SquashWho::Root)][..],
        ),
        (
            "-sec=sys,rw,sec=krb5,ro,all_squash h(rw,no_all_squash)",
            &[(Flavour::Sys, false, SquashWho::Root), (Flavour::Krb5, false, SquashWho::Root)],
        ),
        ("-sec=sys,rw,no_root_squash h(all_squash)", &[(Flavour::Sys, false, SquashWho::All)]),
        (
            "-sec=sys,rw,sec=krb5 h(ro,sec=krb5,rw)",
            &[(Flavour::Sys, true, SquashWho::Root), (Flavour::Krb5, false, SquashWho::Root)],
        ),
        ("-sec=sys,rw,no_root_squash h", &[(Flavour::Sys, false, SquashWho::Nobody)]),
    ] {
        let parsed = parse(format!("/d {line}\n").as_bytes()).unwrap();
        let access = parsed.entries[0].clients[0].options.access();
        let found: Vec<_> =
            access.iter().map(|under| (under.flavour, under.read_only, under.squash.who)).collect();
        assert_eq!(found, rights, "{line}: {:?}", parsed.warnings);
    }
}

#[test]
fn everybody_by_mistake_causes_warning() {
    for (text, clients) in [("/a host (rw)", 2), ("/a", 1)] {
        let parsed = parse(text.as_bytes()).unwrap();
        let found = &parsed.entries[0].clients;
        assert!(
            found[0].options.read_only && found[clients - 1].machine == MachineName::Everyone,
            "{text}"
        );
        assert_eq!((found.len(), parsed.warnings.len()), (clients, 1), "{text}");
    }
}

#[test]
fn lines_of_one_path_become_one_export() {
    let parsed = parse(b"/a/ x(rw)\n//a/. gss/krb5p(rw)\ntree:/srv/db *(ro)").unwrap();
    assert_eq!(parsed.entries.len(), 2);
    let access = parsed.entries[0].clients[1].options.access();
    assert_eq!(access.iter().map(|access| access.flavour).collect::<Vec<_>>(), [Flavour::Krb5p]);
    assert_eq!(parsed.entries[1].source, Source::Tree(b"/srv/db".to_vec()));
}

#[test]
fn reports_every_error_with_line_and_remedy() {
    let errors =
        parse(b"/a *(rw,pnfs=)\nrelative *\n/b *(rw\n/c 1.2.3.4/99\n\n/d x x").unwrap_err();
    let lines: Vec<_> = errors.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 6]);
    assert_eq!(
        errors[0].to_string(),
        "line 1: option pnfs= is not a list of different addresses; write ADDRESS[:PORT][+ADDRESS[:PORT]]"
    );
}

proptest::proptest! {
    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    #[test]
    fn text_of_valid_characters_never_panics(text in "[/a-c *@()\\\\\"#,=\\n.0-9:-]{0,80}") {
        let _ = parse(text.as_bytes());
    }

    #[test]
    fn written_list_parses_back(
        paths in proptest::collection::btree_set("/[a-z]{1,6}(/[a-z ]{1,6}){0,2}", 1..6),
        read_only: bool, secure: bool, all: bool, uid in 0u32..70_000, number in 1u32..9999,
    ) {
        let mut text = String::new();
        for path in &paths {
            let escaped = path.replace(' ', "\\040");
            text.push_str(&format!(
                "{escaped} 192.0.2.0/24({},{},{},anonuid={uid},fsid={number})\n",
                if read_only { "ro" } else { "rw" }, if secure { "secure" } else { "insecure" }, if all { "all_squash" } else { "no_root_squash" },
            ));
        }
        let parsed = parse(text.as_bytes()).unwrap();
        proptest::prop_assert_eq!(parsed.entries.len(), paths.len());
        for (entry, path) in parsed.entries.iter().zip(&paths) {
            proptest::prop_assert_eq!(&entry.source, &Source::Directory(path.clone().into_bytes()));
            let options = &entry.clients[0].options;
            proptest::prop_assert_eq!((options.read_only, options.secure, options.squash.anonymous_uid), (read_only, secure, uid));
            proptest::prop_assert_eq!(options.fsid, Some(Fsid::Number(number)));
        }
    }
}
