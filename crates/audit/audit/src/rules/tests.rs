use super::*;
use crate::operations::number::*;
use crate::record::access;
use crate::{Class, Flavour};

pub(super) struct TestResolver;

impl Resolve for TestResolver {
    fn user(&self, name: &str) -> Option<u32> {
        (name == "alice").then_some(1000)
    }

    fn group(&self, name: &str) -> Option<u32> {
        (name == "staff").then_some(50)
    }
}

pub(super) fn rules(text: &str) -> Rules {
    Rules::parse(text, &TestResolver).unwrap()
}

fn open(path: &'static [u8]) -> Record<'static> {
    Record {
        class: Class::Operation,
        operation: OPEN,
        flavour: Flavour::Krb5p,
        principal: b"alice@EXAMPLE.ORG",
        uid: Some(1000),
        gid: Some(100),
        address: Some("192.0.2.7".parse().unwrap()),
        export: b"/srv",
        path,
        requested: Some(access::READ),
        ..Record::default()
    }
}

fn key<'r>(rules: &'r Rules, record: &Record<'_>) -> Option<&'r str> {
    rules.select(record).map(|key| std::str::from_utf8(key).unwrap())
}

#[test]
fn watch_selects_opens_but_not_later_reads() {
    let rules = rules("-w /srv/secret -p wa -k secret\n");
    assert_eq!(key(&rules, &open(b"/srv/secret/a")), None);
    let writing =
        Record { requested: Some(access::READ | access::MODIFY), ..open(b"/srv/secret/a") };
    assert_eq!(key(&rules, &writing), Some("secret"));
    assert_eq!(key(&rules, &Record { path: b"/srv/secret", ..writing.clone() }), Some("secret"));
    assert_eq!(key(&rules, &Record { path: b"/srv/secrets", ..writing.clone() }), None);
    assert_eq!(key(&rules, &Record { operation: READ, requested: None, ..writing.clone() }), None);
    assert_eq!(
        key(
            &rules,
            &Record { operation: WRITE, requested: Some(access::UNOPENED), ..writing.clone() }
        ),
        Some("secret")
    );
    assert_eq!(
        key(&rules, &Record { operation: SETATTR, requested: None, ..writing.clone() }),
        Some("secret")
    );
    let renamed = Record { operation: RENAME, path: b"/srv/x", path2: b"/srv/secret/x", ..writing };
    assert_eq!(key(&rules, &renamed), Some("secret"));
}

#[test]
fn first_matching_rule_decides() {
    let text = "# comment\n-D\n\n-a never,exit -F dir=/srv/scratch\n-a always,exit -S openat,unlink -F dir=/srv -F success=0 -F key=failed\n-a exit,always -S all -F uid=alice -k alice\n";
    let rules = rules(text);
    assert_eq!(rules.len(), 3);
    assert_eq!(key(&rules, &open(b"/srv/scratch/x")), None);
    assert_eq!(key(&rules, &open(b"/srv/x")), Some("alice"));
    assert_eq!(key(&rules, &Record { result: 13, ..open(b"/srv/x") }), Some("failed"));
    assert_eq!(key(&rules, &Record { uid: Some(1), ..open(b"/srv/x") }), None);
    assert_eq!(key(&rules, &Record { operation: GETATTR, ..open(b"/elsewhere") }), Some("alice"));
    assert!(rules.may_record(GETATTR) && !rules.may_record(53));
}

#[test]
fn fields_compare_with_all_operators() {
    let hit = |fields: &str, record: &Record<'_>| {
        let text = format!("-a always,exit {fields}");
        rules(&text).select(record).is_some()
    };
    let record = Record { result: 13, client: b"c1.example.org", ..open(b"/srv/x") };
    let table = "-F uid=1000, -F uid!=0, -F auid>=1000 -F auid!=unset, -F uid<1001, -F gid<=100, \
        -F gid>99, -F exit=-EACCES, -F exit!=0, -F exit=-13, -F success=no, -F success!=yes, \
        -F principal=alice@EXAMPLE.ORG, -F principal=*@EXAMPLE.ORG, -F principal=a*e@*.ORG, \
        -F principal!=bob@EXAMPLE.ORG, -F client=192.0.2.0/24, -F client=192.0.2.7, \
        -F client!=10.0.0.0/8, -F client=*.example.org, -F client=*.Example.ORG, \
        -F export=/srv/, -F flavour=krb5p, -F flavour!=sys, -F path=/srv/x, -F dir=/, \
        -F perm=r, -F arch=b64 -S open, -S OPEN";
    for fields in table.split(", ") {
        assert!(hit(fields, &record), "{fields}");
    }
    let table = "-F uid=0, -F gid=staff, -F uid>1000, -F exit=-EPERM, -F success=1, \
        -F principal=alice, -F principal=*@OTHER.ORG, -F client=192.0.3.0/24, \
        -F client=2001:db8::/32, -F client=*.example.com, -F export=/srv/data, \
        -F flavour=krb5, -F path=/srv, -F dir=/srv/x/y, -F perm=wxa, -S read";
    for fields in table.split(", ") {
        assert!(!hit(fields, &record), "{fields}");
    }
}

#[test]
fn unsupported_lines_are_rejected_with_line_number() {
    let text = "-w /ok\n-a always,task\n-S open\n-a always,exit -F inode=3\n-w relative\n-a always,exit -S opne\n-z\n-w /x -p rq\n-a always,exit -F uid=nobody-here\n-a always\n-w \"/x\n-a always,exit -F path>/x\n-a always,exit -F a0&2\n-w /a -w /b\n-a always,exit -F success=2\n-z\n-W /x\n-a always,exit -C uid!=euid\n-k\n-D -w /x\n";
    let errors = Rules::parse(text, &TestResolver).unwrap_err();
    let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, (2..=20).collect::<Vec<_>>(), "{errors:#?}");
    assert!(errors[0].to_string().starts_with("line 2: unknown list task"));
}

#[test]
fn rules_of_audit_4_2_select_what_they_name() {
    const OPENED: u32 = access::MODIFY | access::EXTEND;
    let text = "-D\n-b 8192\n--backlog_wait_time 60000\n-f 1\n--loginuid-immutable\n-a never,filesystem -F fstype=tracefs\n\
        -a always,exit -F arch=b64 -S adjtimex,settimeofday -F key=time-change\n\
        -a always,exit -F arch=b64 -S clone -F a0&0x7C020000 -F key=container-create\n\
        -a always,exit -F arch=b64 -S execve -C uid!=euid -F euid=0 -F key=elevated\n\
        -a always,exit -F arch=b64 -S openat,openat2,open_by_handle_at,call_of_tomorrow,463 -F a2&0100 -F key=create\n\
        -a always,exit -F arch=b64 -S open -F a1&01003 -F key=modify\n\
        -a always,exit -S chmod,setxattr,setxattrat,removexattrat,file_setattr,call_of_tomorrow -F key=perm\n";
    let rules = rules(text);
    let warned: Vec<usize> = rules.warnings().iter().map(|warning| warning.line).collect();
    assert_eq!(warned, [2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 12]);
    let of = |operation, requested| {
        key(&rules, &Record { operation, requested: Some(requested), ..open(b"/srv/a") })
    };
    for (operation, requested, wanted) in [
        (OPEN, OPENED | access::CREATE, Some("create")),
        (OPEN, access::READ | access::CREATE, Some("create")),
        (OPEN, OPENED, Some("modify")),
        (OPEN, access::READ | access::TRUNCATE, Some("modify")),
        (OPEN, access::READ, None),
        (SETXATTR, 0, Some("perm")),
        (REMOVEXATTR, 0, Some("perm")),
        (SETATTR, 0, Some("perm")),
        (GETXATTR, 0, None),
    ] {
        assert_eq!(of(operation, requested), wanted, "{operation} {requested:#x}");
    }
    let executable = Rules::parse("-a always,exit -F arch=b64 -S chmod,fchmod -F a1&0111 -k exec\n-a always,exit -S fchmodat,fchmodat2 -F a2&0111 -k exec", &TestResolver).unwrap();
    for (mode, wanted) in [(Some(0o755), Some("exec")), (Some(0o644), None), (None, None)] {
        let record = Record { operation: SETATTR, mode, ..open(b"/srv/a") };
        assert_eq!(key(&executable, &record), wanted, "{mode:?}");
    }
    for call in
        ["getxattrat", "listxattrat", "file_getattr", "open_by_handle_at", "name_to_handle_at"]
    {
        assert!(Rules::parse(format!("-a always,exit -S {call}"), &TestResolver).is_ok(), "{call}");
    }
    for line in [
        "-a never,exit -S open_by_handle_at",
        "-a never,exit -S file_setattr",
        "-a always,exit -S call_of_tomorrow",
        "-a always,exit -S openat -F a1&0100",
        "-a always,exit -S openat -F a2&02000",
        "-a always,exit -S openat -F a2=0100",
        "-a always,exit -S fchmodat -F a1&0111",
        "-a always,exit -S chmod -F a1&010000",
        "-a always,exit -F a2&0100",
        "-a always,exit -S openat2 -F a2&0100",
        "-a always,exit -S openat,openat2,fchmodat -F a2&0100",
        "-a always,exit -S 2,463",
    ] {
        assert!(Rules::parse(line, &TestResolver).is_err(), "{line}");
    }
    let numbers = Rules::parse("-a always,exit -S 2,463", &TestResolver).unwrap_err();
    assert!(numbers[0].to_string().contains("so give names"), "{numbers:?}");
}

#[test]
fn keys_join_up_to_the_limit_of_the_kernel() {
    let quoted = rules("-w \"/srv/two words\" -p r -k a -k 'b c'");
    assert_eq!(key(&quoted, &open(b"/srv/two words/x")), Some("a\x01b c"));
    let rule = |keys: &[usize]| {
        format!(
            "-w /srv -p r{}\n",
            keys.iter().map(|len| format!(" -k {}", "k".repeat(*len))).collect::<String>()
        )
    };
    assert_eq!(key(&rules(&rule(&[100, 155])), &open(b"/srv/x")).map(|key| key.len()), Some(256));
    for keys in [&[257][..], &[100, 156], &[3000]] {
        let errors = Rules::parse(rule(keys), &TestResolver).unwrap_err();
        assert!(
            errors[0].to_string().starts_with("line 1: a key has at most 256 bytes"),
            "{errors:?}"
        );
    }
}

#[test]
fn paths_may_have_any_bytes_other_words_must_be_utf8() {
    let rules = Rules::parse(
        b"-w /srv/x\xff -p r -k a\xfe\r\n-a always,exit -F path=\"/srv/y \xff\"\n",
        &TestResolver,
    )
    .unwrap();
    assert_eq!(rules.select(&open(b"/srv/x\xff/file")), Some(&b"a\xfe"[..]));
    assert!(
        rules.select(&open(b"/srv/y \xff")).is_some()
            && rules.select(&open(b"/srv/x\xfe")).is_none()
    );
    let errors = Rules::parse(
        b"-w /ok\n-a always,exit -F uid=\xff\n-\xff\n-a always,exit -F \xff=1\n-w relative\xff\n",
        &TestResolver,
    )
    .unwrap_err();
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages[..3],
        ["line 2: \\xff is not UTF-8", "line 3: -\\xff is not UTF-8", "line 4: \\xff is not UTF-8"]
    );
    assert!(
        messages[3].starts_with("line 5: relative\\xff is not a normalized absolute path"),
        "{messages:?}"
    );
}

#[test]
fn only_possible_results_are_accepted() {
    let parsed = |field: &str| Rules::parse(format!("-a always,exit -F {field}\n"), &TestResolver);
    for (field, status) in [
        ("exit=-ENODATA", 10095),
        ("exit=-ENXIO", 6),
        ("exit=-EDEADLK", 10045),
        ("exit=-61", 10095),
        ("exit<=-122", 69),
    ] {
        assert!(
            parsed(field).unwrap().select(&Record { result: status, ..open(b"/srv/x") }).is_some(),
            "{field}"
        );
    }
    for field in [
        "exit>0",
        "exit>=1",
        "exit=EACCES",
        "exit=13",
        "exit<-122",
        "exit=-38",
        "exit=-9223372036854775808",
        "exit=-ENOSYS",
    ] {
        let errors = parsed(field).unwrap_err();
        assert!(errors[0].reason.contains("result"), "{field}: {errors:?}");
    }
    assert!(
        ["exit=0", "exit>=0", "exit<0", "exit!=0", "exit!=7", "exit>-13"]
            .into_iter()
            .all(|field| parsed(field).is_ok())
    );
}

#[test]
fn refusals_are_recorded_unless_never_rule_without_operations_matches() {
    let refusal = Record {
        class: Class::Refusal,
        operation: crate::record::Refusal::Replay as u16,
        address: Some("192.0.2.7".parse().unwrap()),
        principal: b"alice@EXAMPLE.ORG",
        ..Record::default()
    };
    let check = |text: &str, key: Option<&str>| {
        assert_eq!(rules(text).select_refusal(&refusal), key.map(str::as_bytes), "{text}");
    };
    check("", Some(""));
    check("-a never,exit\n", None);
    check("-a never,exit -S all\n", None);
    check("-a never,exit -S ACCESS\n-w /srv -p rwxa\n-a never,exit -F dir=/srv\n", Some(""));
    check("-a never,exit -F client=192.0.2.0/24\n", None);
    check(
        "-a always,exit -F success=0 -k bad\n-a never,exit -F client=192.0.2.0/24\n",
        Some("bad"),
    );
    check("-a never,exit -F success=1\n-a never,exit -F exit=0\n", Some(""));
    assert!(rules("-a always,exit -F success=0\n").select(&open(b"/srv/a")).is_none());
}

#[test]
fn lines_with_other_meaning_in_auditctl_are_rejected() {
    let refused = |line: &str| Rules::parse(line, &TestResolver).is_err();
    assert!(refused("-A always,exit -F dir=/srv"));
    let table = "-a never,exit -S utimensat, -a never,exit -S rmdir, -a never,exit -S mkdir, \
        -a never,exit -F arch=b32, -a never,exit -F arch!=b64";
    for line in table.split(", ") {
        assert!(refused(line), "{line}");
    }
    for line in [
        "-a never,exit -S unlink,rmdir",
        "-a never,exit -S SETATTR",
        "-a never,exit -F arch=b64 -S read",
        "-a always,exit -F arch=b32 -S rmdir",
    ] {
        assert!(!refused(line), "{line}");
    }
    let table = "-a always,exit -F client=10.1.0.0/255.255.0.0, -a always,exit -F client=10.1.0.0/33, \
        -a always,exit -F client=127.0.0.*, -a always,exit -F client!=10.*, \
        -a always,exit -F client=host/8, -w /srv//data, -a always,exit -F client=10.0.0.300, \
        -a always,exit -F client=10.0.0, -a always,exit -F client=2001:db8::g";
    for line in table.split(", ") {
        assert!(refused(line), "{line}");
    }
    assert!(
        !refused("-a always,exit -F client=10.*.example.org")
            && !refused("-a always,exit -F client=*")
            && !refused("-a always,exit -F client=10-0-0-3.example.org")
    );
    assert!(
        !refused("-a always,exit -F client=10.1.0.0/16")
            && !refused("-w /srv/data/")
            && !refused("-w /")
    );
}

#[test]
fn auid_is_login_user_if_known_and_may_be_unset() {
    let unset = rules("-a always,exit -F auid=unset -k nobody\n");
    assert_eq!(key(&unset, &Record { uid: None, ..open(b"/srv/x") }), Some("nobody"));
    assert_eq!(key(&unset, &open(b"/srv/x")), None);
    let rules = rules(
        "-a always,exit -F auid=1000 -k one\n-a always,exit -F auid>=1000 -F auid!=unset -k logged-in\n-a always,exit -F uid=0 -k root\n",
    );
    let root = |login| Record { uid: Some(0), login, ..open(b"/srv/x") };
    for (login, wanted) in
        [(Some(1000), "one"), (Some(1001), "logged-in"), (Some(u32::MAX), "root"), (None, "root")]
    {
        assert_eq!(key(&rules, &root(login)), Some(wanted), "{login:?}");
    }
    assert_eq!(key(&rules, &Record { uid: Some(1000), login: Some(0), ..open(b"/srv/x") }), None);
}

#[test]
fn access_granting_nothing_counts_as_failed_attempt() {
    let hit = |rule: &str, requested: u32, granted: Option<u32>| {
        let record =
            Record { operation: ACCESS, requested: Some(requested), granted, ..open(b"/srv/dir") };
        rules(&format!("-a always,exit -S ACCESS {rule}\n")).select(&record).is_some()
    };
    let (directory, file) = (
        access::READ | access::LOOKUP | access::MODIFY,
        access::READ | access::MODIFY | access::EXECUTE,
    );
    for rule in ["-F exit=-EACCES", "-F success=0", "-F exit<0"] {
        assert!(hit(rule, directory, Some(0)) && hit(rule, file, Some(access::MODIFY)), "{rule}");
        assert!(
            !hit(rule, directory, Some(access::LOOKUP)) && !hit(rule, file, Some(access::READ)),
            "{rule}"
        );
        assert!(!hit(rule, access::MODIFY, Some(0)) && !hit(rule, directory, None), "{rule}");
    }
    assert!(
        hit("-F perm=r", directory, Some(access::LOOKUP))
            && !hit("-F perm=r", directory, Some(access::READ))
    );
    assert!(
        hit("-F perm=x", directory, Some(access::READ))
            && !hit("-F perm=x", directory, Some(access::LOOKUP))
    );
    assert!(!hit("-F perm=w", directory, Some(0)) && hit("-F perm=x", file, Some(file)));
    let less = |after: &str, before: &str| rules(after).audits_less_than(&rules(before));
    assert!(
        less("", "-a always,exit -S ACCESS -F perm=r\n")
            && !less("-a always,exit -S ACCESS\n", "-a always,exit -S ACCESS -F perm=r\n")
    );
}

#[test]
fn execution_matches_perm_x_and_tree_matches_export() {
    let rules =
        rules("-w /mnt/bin -p x -k run\n-a always,exit -F export=tree:@a.example,abc -k tree\n");
    let run = Record { requested: Some(access::READ | access::EXECUTE), ..open(b"/mnt/bin/tool") };
    assert_eq!(key(&rules, &run), Some("run"));
    let read = Record { requested: Some(access::READ), ..open(b"/mnt/bin/tool") };
    assert_eq!(key(&rules, &read), None);
    assert_eq!(key(&rules, &Record { export: b"tree:@a.example,abc", ..read }), Some("tree"));
}

#[test]
fn copy_reads_source_and_writes_target() {
    let copy = |from: &'static [u8], to: &'static [u8]| Record {
        operation: COPY,
        requested: None,
        path2: to,
        ..open(from)
    };
    let rules = rules("-w /srv/secret -p r -k read\n-w /srv/public -p w -k written\n");
    assert_eq!(key(&rules, &copy(b"/srv/secret/a", b"/srv/x")), Some("read"));
    assert_eq!(
        key(&rules, &Record { operation: CLONE, ..copy(b"/srv/secret/a", b"/srv/x") }),
        Some("read")
    );
    assert_eq!(key(&rules, &copy(b"/srv/x", b"/srv/public/a")), Some("written"));
    assert_eq!(key(&rules, &copy(b"/srv/public/a", b"/srv/secret/a")), None);
    let without = super::tests::rules("-a never,exit -F dir=/srv/scratch\n-a always,exit -k all\n");
    assert_eq!(key(&without, &copy(b"/srv/scratch/a", b"/srv/scratch/b")), None);
    assert_eq!(key(&without, &copy(b"/srv/secret/a", b"/srv/scratch/b")), Some("all"));
}

#[test]
fn unknown_path_matches_always_rules_but_no_never_rule() {
    let hit = |text: &str, path: &'static [u8]| rules(text).select(&open(path)).is_some();
    for (rule, unknown, partly) in [
        ("-w /srv/secret -p r\n", true, false),
        ("-w /srv -p r\n", true, true),
        ("-w / -p r\n", true, true),
        ("-w /other -p r\n", false, false),
        ("-w /srv/d/e -p r\n", true, true),
        ("-w /srv/secret -p w\n", false, false),
        ("-a always,exit -F path=/srv/secret/f\n", true, false),
        ("-a always,exit -F path=/srv/d/e/name\n", true, true),
        ("-a always,exit -F path=/srv/d/rename\n", true, false),
        ("-a always,exit -F path=/other/f\n", false, false),
        ("-a never,exit -F dir=/srv/secret\n-a always,exit\n", true, true),
        ("-a never,exit -F path=/srv/d/e/name\n-a always,exit\n", true, true),
        ("-a never,exit -F dir=/srv\n-a always,exit\n", false, false),
        ("-a never,exit -F dir=/srv/d\n-a always,exit\n", true, false),
    ] {
        assert_eq!((hit(rule, b""), hit(rule, b"/srv/d/.../name")), (unknown, partly), "{rule}");
    }
    let above = Record { export: b"", ..open(b"") };
    assert_eq!(key(&rules("-w /srv/secret -p r\n"), &above), None);
}

#[test]
fn moving_parent_directory_triggers_watch() {
    let moved = |from: &'static [u8], to: &'static [u8]| Record {
        operation: RENAME,
        requested: None,
        path2: to,
        ..open(from)
    };
    for rule in [
        "-w /srv/a/secret -p wa -k s\n",
        "-a always,exit -F path=/srv/a/secret -F perm=w -k s\n",
        "-a always,exit -F dir=/srv/a/secret -k s\n",
    ] {
        let rules = rules(rule);
        let hit = |record: &Record<'_>| key(&rules, record).is_some();
        assert!(
            hit(&moved(b"/srv/a", b"/srv/b"))
                && hit(&moved(b"/srv/b", b"/srv/a"))
                && hit(&moved(b"/srv", b"/b")),
            "{rule}"
        );
        assert!(hit(&Record { operation: REMOVE, path2: b"", ..moved(b"/srv/a", b"") }), "{rule}");
        assert!(hit(&Record { operation: LINK, ..moved(b"/srv/x", b"/srv/a") }), "{rule}");
        assert!(hit(&moved(b"/srv/.../a", b"/srv/b")), "{rule}");
        assert!(
            !hit(&moved(b"/srv/ab", b"/srv/b")) && !hit(&moved(b"/srv/a/b", b"/srv/a/c")),
            "{rule}"
        );
        assert!(
            !hit(&Record { operation: SETATTR, requested: Some(access::MODE), ..open(b"/srv/a") }),
            "{rule}"
        );
        assert!(
            !hit(&Record { operation: REMOVE, ..open(b"/srv/.../b") })
                || rule.contains("dir=")
                || rule.contains("-w"),
            "{rule}"
        );
    }
    // A watch for reads ignores moves, and a `never` rule on a lower directory does not apply.
    assert_eq!(key(&rules("-w /srv/a/secret -p r\n"), &moved(b"/srv/a", b"/srv/b")), None);
    assert!(
        key(
            &rules("-a never,exit -F dir=/srv/a/scratch\n-a always,exit\n"),
            &moved(b"/srv/a", b"/srv/b")
        )
        .is_some()
    );
}

#[test]
fn directory_rule_covers_moves_but_path_rule_does_not() {
    let rules = rules(
        "-w /srv/a/dir -p r\n-a always,exit -F path=/srv/b/file\n-a never,exit -F dir=/srv/c\n",
    );
    for within in ["/srv/a/dir", "/srv/a", "/srv", "/", "/srv/b"] {
        assert!(rules.watches_within(within.as_bytes()), "{within}");
    }
    for without in ["/srv/a/dir/x", "/srv/b/file", "/srv/c", "/srv/ab", ""] {
        assert!(!rules.watches_within(without.as_bytes()), "{without}");
    }
}

#[test]
fn packaged_rule_sets_record_expected_operations() {
    let sets = [
        ("changes", include_str!("../../../../../packaging/audit/changes.rules")),
        ("sensitive", include_str!("../../../../../packaging/audit/sensitive.rules")),
        ("capp", include_str!("../../../../../packaging/audit/capp.rules")),
        ("everything", include_str!("../../../../../packaging/audit/everything.rules")),
    ];
    const MADE: u32 = access::MODIFY | access::CREATE;
    const CHANGES: [u16; 13] = [
        CLOSE,
        DELEGRETURN,
        COPY,
        CLONE,
        ALLOCATE,
        DEALLOCATE,
        CREATE,
        REMOVE,
        RENAME,
        LINK,
        SETATTR,
        SETXATTR,
        REMOVEXATTR,
    ];
    let cases: [(&[u16], u32, &[&str]); 11] = [
        (&[OPEN], access::READ, &["sensitive", "capp"]),
        (&[OPEN], MADE, &["changes", "sensitive", "capp"]),
        (&CHANGES, 0, &["changes", "sensitive", "capp"]),
        (&[READ], access::READ, &[]),
        (&[WRITE], access::MODIFY, &[]),
        (&[READ, READ_PLUS], access::READ | access::UNOPENED, &["sensitive", "capp"]),
        (&[WRITE], access::MODIFY | access::UNOPENED, &["changes", "sensitive", "capp"]),
        (&[SETATTR], access::TRUNCATE, &["changes", "sensitive", "capp"]),
        (&[READDIR, READLINK, GETXATTR], 0, &["sensitive"]),
        (&[ACCESS], access::EXECUTE, &["sensitive"]),
        (&[GETATTR, LOOKUP], 0, &[]),
    ];
    for (set, text) in sets {
        let rules = rules(text);
        for (operation, requested, recorded_by) in cases
            .iter()
            .flat_map(|(all, requested, by)| all.iter().map(move |one| (*one, *requested, by)))
        {
            let record = Record {
                operation,
                requested: Some(requested),
                path2: b"/srv/x",
                ..open(b"/srv/sensitive/a")
            };
            let wanted = set == "everything" || recorded_by.contains(&set);
            assert_eq!(
                rules.select(&record).is_some(),
                wanted,
                "{set}: {} {requested:#x}",
                crate::operations::name(operation)
            );
        }
        for (granted, is_refused) in [
            (0, true),
            (access::MODIFY, true),
            (access::LOOKUP, false),
            (access::READ | access::LOOKUP, false),
        ] {
            let requested = Some(
                access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE,
            );
            let record = Record {
                operation: ACCESS,
                requested,
                granted: Some(granted),
                ..open(b"/srv/elsewhere")
            };
            let wanted = set == "everything" || (is_refused && set != "changes");
            assert_eq!(
                rules.select(&record).is_some(),
                wanted,
                "{set}: ACCESS granting {granted:#x}"
            );
        }
    }
}
