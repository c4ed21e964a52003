use vouch_nfs4_server::Location;

use super::table::fsid;
use super::*;

fn read(list: &str) -> (Options, Vec<OptionIssue>) {
    let (mut options, mut issues) = (Options::default(), Vec::new());
    options.take(list, &mut issues);
    (options, issues)
}

fn access_of(options: &Options) -> String {
    let one = |access: &FlavourAccess| {
        format!(
            "{:?}:{},{:?}",
            access.flavour,
            if access.read_only { "ro" } else { "rw" },
            access.squash.who
        )
    };
    options.access().iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn defaults_match_the_manual() {
    let (options, issues) = read("");
    assert!(issues.is_empty());
    assert!(options.read_only && options.sync && options.secure && !options.cross_mounts);
    assert_eq!(
        options.squash,
        Squash { who: SquashWho::Root, anonymous_uid: 65_534, anonymous_gid: 65_534 }
    );
    assert_eq!(access_of(&options), "Sys:ro,Root");
}

// As in nfs-utils.
#[test]
fn last_of_two_opposite_options_wins_except_over_all_squash() {
    assert!(
        !read("crossmnt,nocrossmnt").0.cross_mounts && read("nocrossmnt,crossmnt").0.cross_mounts
    );
    assert!(!read("rw,async").0.sync && read("async,rw,sync").0.sync);
    for list in [
        "all_squash,no_root_squash",
        "no_root_squash,all_squash",
        "all_squash,root_squash",
        "all_squash,sec=sys,no_root_squash",
    ] {
        let (options, issues) = read(list);
        assert!(
            issues.is_empty() && access_of(&options).ends_with(",All"),
            "{list}: {}",
            access_of(&options)
        );
    }
    assert_eq!(read("all_squash,no_root_squash,no_all_squash").0.squash.who, SquashWho::Root);
    assert_eq!(read("no_root_squash,no_all_squash").0.squash.who, SquashWho::Nobody);
}

#[test]
fn applies_options() {
    let (options, issues) = read(
        "rw,all_squash,anonuid=-2,anongid=100,insecure,crossmnt,mp=/m,sec=krb5p:krb5i,sec=sys,fsid=7,sync,no_subtree_check",
    );
    assert_eq!(issues, []);
    assert!(!options.read_only && !options.secure && options.cross_mounts);
    assert_eq!(
        options.squash,
        Squash { who: SquashWho::All, anonymous_uid: 0xffff_fffe, anonymous_gid: 100 }
    );
    assert_eq!(access_of(&options), "Krb5p:rw,All Krb5i:rw,All Sys:rw,All");
    assert_eq!((options.fsid, options.mount_point), (Some(Fsid::Number(7)), Some(b"/m".to_vec())));
}

// exports(5) of nfs-utils 3.1.1: "Security" to "User ID Mapping", and what only exportfs(8) parses.
#[test]
fn each_option_of_nfs_utils_is_taken_or_ignored_with_a_reason() {
    let taken = "sec=sys sec=krb5 sec=krb5i sec=krb5p sec=krb5:krb5i:krb5p sec=none sec=null sec=unix \
                 xprtsec=none xprtsec=tls xprtsec=mtls xprtsec=tls:mtls xprtsec=none:tls:mtls xprtsec=mtls:none \
                 secure insecure rw ro async sync wdelay hide crossmnt nocrossmnt no_subtree_check sign_fh acl \
                 security_label mountpoint mountpoint=/m mp mp=/m fsid=5 fsid=0 fsid=root fsid=00112233-4455-6677-8899-aabbccddeeff \
                 refer=/a@b replicas=/a@b:/c@d+e no_pnfs root_squash no_root_squash all_squash no_all_squash \
                 anonuid=5 anonuid=-2 anongid=5";
    for option in taken.split_ascii_whitespace() {
        assert_eq!(read(option).1, [], "{option}");
    }
    let ignored = "no_wdelay subtree_check nohide insecure_locks secure_locks no_auth_nlm auth_nlm nordirplus rdirplus \
                   pnfs reexport=auto-fsidnum reexport=predefined-fsidnum squash_uids=0-15 squash_gids=1";
    for option in ignored.split_ascii_whitespace() {
        assert!(
            matches!(&read(option).1[..], [OptionIssue::Warning(text)] if text.contains(option)),
            "{option}"
        );
    }
}

#[test]
fn options_of_our_own_cause_no_warning() {
    let options = "machine_writes no_delegations no_acl no_xattr uncacheable quota=1M quota=2t io=buffered io=uncached io=direct io=direct:64k snapshots snapshots=/snaps snapshots=.snap snapshots=/snaps/*/data snapdir=visible snapdir=hidden \
                   pnfs=192.0.2.1+[2001:db8::1]:2050";
    for option in options.split_ascii_whitespace() {
        assert_eq!(read(option).1, [], "{option}");
    }
}

#[test]
fn weakest_listed_transport_is_the_demand() {
    let demand = |list: &str| read(list).0.access()[0].transport_min;
    assert_eq!((demand("rw"), demand("xprtsec=mtls:none")), (Transport::Clear, Transport::Clear));
    assert_eq!(
        (demand("xprtsec=mtls:tls"), demand("xprtsec=tls,xprtsec=mtls")),
        (Transport::Tls, Transport::MutualTls)
    );
}

#[test]
fn parses_three_forms_of_fsid() {
    assert_eq!(
        (fsid("root"), fsid("0"), fsid("12")),
        (Some(Fsid::Root), Some(Fsid::Root), Some(Fsid::Number(12)))
    );
    assert_eq!(
        fsid("00112233-4455-6677-8899-aabbccddeeff"),
        fsid("00112233:44556677:8899aabb:ccddeeff")
    );
    assert!(matches!(
        fsid("00112233-4455-6677-8899-aabbccddeeff"),
        Some(Fsid::Uuid([0, 0x11, ..]))
    ));
    assert_eq!((fsid("-1"), fsid("abc")), (None, None));
}

#[test]
fn faulty_options_are_errors() {
    let options = "pnfs= pnfs=host refer= refer=/a replicas=a@b refer=/a@ refer=/a@b+ refer=/a@[::1 refer=/../a@b xprtsec=ssl xprtsec=tls:ssl xprtsec= nonsense \
                   snapshots= snapshots=/a/../b snapshots=/*/* snapdir snapdir=all sign_fh=1 squash_uids \
                   rw=1 anonuid=x anonuid=4294967295 fsid=q sec=spkm3";
    for option in options.split_ascii_whitespace() {
        assert!(
            matches!(&read(option).1[..], [OptionIssue::Error(text, _)] if text.contains(option)),
            "{option}"
        );
    }
}

// exports(5), "refer=path@host[+host][:path@host[+host]]".
#[test]
fn locations_list_paths_and_equivalent_servers() {
    let location = |path: &[&str], servers: &[&str]| Location {
        servers: servers.iter().map(|server| server.to_string()).collect(),
        path: path.iter().map(|name| name.as_bytes().to_vec()).collect(),
    };
    let read = |option: &str| read(option).0.locations.unwrap();
    let list = vec![
        location(&["data", "x"], &["a.example", "192.0.2.7"]),
        location(&[], &["2001:db8::1", "b"]),
    ];
    assert_eq!(
        read("refer=/data/x@a.example+192.0.2.7:/@[2001:db8::1]+b"),
        Locations { is_referral: true, list }
    );
    assert_eq!(
        read("replicas=/p@h"),
        Locations { is_referral: false, list: vec![location(&["p"], &["h"])] }
    );
}

#[test]
fn rights_after_sec_apply_to_its_flavours() {
    for (list, access) in [
        ("sec=krb5p,rw,sec=sys,ro", "Krb5p:rw,Root Sys:ro,Root"),
        (
            "rw,sec=krb5p:krb5i,no_root_squash,sec=sys,ro,all_squash,anonuid=5",
            "Krb5p:rw,Nobody Krb5i:rw,Nobody Sys:ro,All",
        ),
        ("ro,sec=sys,rw", "Sys:rw,Root"),
        ("sec=sys:krb5,ro,sec=sys,rw", "Sys:rw,Root Krb5:ro,Root"),
        ("all_squash,sec=sys,no_all_squash,sec=krb5,all_squash", "Sys:ro,Root Krb5:ro,All"),
    ] {
        let (options, issues) = read(list);
        assert_eq!((access_of(&options).as_str(), issues), (access, vec![]), "{list}");
    }
    let (mut options, mut issues) = read("sec=krb5p,ro");
    options.take("rw,sec=sys", &mut issues);
    assert_eq!(
        (access_of(&options), issues),
        ("Krb5p:rw,Root Sys:rw,Root".to_owned(), vec![]),
        "options of a client"
    );
}

#[test]
fn rights_before_sec_apply_to_all_and_warn_of_exportfs() {
    for (list, access) in [
        ("sec=krb5p,rw,sec=sys", "Krb5p:rw,Root Sys:ro,Root"),
        ("rw,sec=sys,ro,sec=krb5", "Sys:ro,Root Krb5:rw,Root"),
    ] {
        let (options, _) = read(list);
        assert_eq!(access_of(&options), access);
        assert!(matches!(options.differences(), Some(OptionIssue::Warning(_))), "{list}");
    }
    for list in ["sec=krb5p,rw,sec=sys,ro", "rw,sec=krb5p:sys", "sec=sys:krb5,rw", ""] {
        assert_eq!(read(list).0.differences(), None, "{list}");
    }
}

proptest::proptest! {
    #[test]
    fn garbage_never_panics_and_is_never_silent(list in "[a-z_=,:0-9-]{0,40}") {
        let (_, issues) = read(&list);
        let known = list.split(',').all(|option| option.is_empty() || read(option).1.is_empty());
        proptest::prop_assert!(known || !issues.is_empty());
    }
}

#[test]
fn documents_have_each_option() {
    let page = include_str!("../../../../../../../docs/exports.md");
    for taken in super::table::OPTIONS {
        let has = |end: &str| page.contains(&format!("`{}{end}", taken.name));
        assert!(has("`") || has("="), "docs/exports.md lacks {}", taken.name);
    }
}
