use super::super::blocking::{self, Slow, good, make, until};
use super::*;

fn made(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for_each_record(directory, |record| {
        if record.class == Class::Operation {
            found.push((text(record.key), text(record.client)));
        }
    });
    found
}

#[test]
fn records_have_client_names_without_delaying_calls() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "-a always,exit -S CREATE -F client=H7.Example.org -k named\n-a always,exit -S CREATE -k any\n";
    let config = config(
        directory.path(),
        Some(rules),
        WriterOptions { durability: Durability::Each, ..WriterOptions::default() },
    );
    let (files, hosts) = (MemoryFs::new(), Slow::default());
    hosts.0.set_closed(true);
    let server = blocking::start(|all| all.audit = Some(config), &files, &Slow::default(), &hosts);
    let mut client = server.connect_from(7);
    until("the lookup does not start", || hosts.0.waiting().0 == 1);
    assert_eq!(good(&exchange(&mut client, &make(1, "d1"))), Some(1));
    until("the operation is not recorded", || {
        made(directory.path()) == [("any".into(), String::new())]
    });
    hosts.0.set_closed(false);
    let mut xid = 1;
    until("the name does not become known", || {
        xid += 1;
        assert_eq!(good(&exchange(&mut client, &make(xid, &format!("d{xid}")))), Some(xid));
        made(directory.path()).last() == Some(&("named".into(), "h7.example.org".into()))
    });
    let mut again = server.connect_from(7);
    again.write_all(&make(xid + 1, "again")).unwrap();
    assert_eq!((good(&read_record(&mut again)), hosts.0.waiting()), (Some(xid + 1), (0, 1)));
}
