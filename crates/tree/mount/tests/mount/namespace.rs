use vouch_tree::statement::{Body, KeyStatement};
use vouch_xdr::Xdr;

use crate::prelude::*;

fn sites() -> (std::sync::Arc<Site>, std::sync::Arc<Site>) {
    let (a, b) = (Site::new("a.example", 31), Site::new("b.example:4999", 32));
    fs::write(b.source().join("file"), b"in b").unwrap();
    fs::create_dir(a.source().join("sub")).unwrap();
    fs::write(a.source().join("sub/file"), b"in a").unwrap();
    symlink(format!("../{}", b.name), a.source().join("to-b")).unwrap();
    a.publish(NOW, 3600);
    b.publish(NOW, 3600);
    (a, b)
}

fn listed(mount: &TestMount) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(&mount.point)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs FUSE"]
fn looked_up_trees_appear_and_link_to_each_other() {
    let (a, b) = sites();
    let mount = TestMount::of_namespace(vec![a.clone(), b.clone()]);
    assert_eq!(listed(&mount), Vec::<String>::new());
    let root = mount.path(a.name.to_string());
    assert_eq!(fs::read(root.join("sub/file")).unwrap(), b"in a");
    assert_eq!(listed(&mount), [a.name.to_string()]);
    assert_eq!(fs::read(root.join("to-b/file")).unwrap(), b"in b");
    assert_eq!(listed(&mount), [a.name.to_string(), b.name.to_string()]);
    assert_eq!(contents_of(&root), contents_of(&a.source()));
    assert_eq!(
        fs::canonicalize(root.join("to-b")).unwrap().file_name().unwrap().to_str().unwrap(),
        b.name.to_string()
    );
    for entry in fs::read_dir(&mount.point).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), entry.metadata().unwrap().ino());
    }
}

#[test]
#[ignore = "needs FUSE"]
fn invalid_names_are_missing_and_unreachable_trees_fail() {
    let (a, b) = sites();
    let mount = TestMount::of_namespace(vec![a.clone()]);
    for name in ["x", "@", "@a.example", "@a.example,short"] {
        assert_eq!(
            fs::metadata(mount.path(name)).unwrap_err().kind(),
            std::io::ErrorKind::NotFound,
            "{name}"
        );
    }
    for name in [b.name.to_string(), format!("@a.example,{}", b.name.hostid())] {
        assert_eq!(
            fs::metadata(mount.path(&name)).unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::IO.raw_os_error()),
            "{name}"
        );
    }
    assert_eq!(listed(&mount), Vec::<String>::new());
    let shouted = format!("@a.example,{}", a.name.hostid().to_string().to_ascii_uppercase());
    assert_eq!(fs::read_link(mount.path(shouted)).unwrap().to_str().unwrap(), a.name.to_string());
}

#[test]
#[ignore = "needs FUSE"]
fn other_spellings_are_links_and_not_stored() {
    let (a, b) = sites();
    let mount = TestMount::of_namespace(vec![a.clone(), b.clone()]);
    fs::metadata(mount.path(a.name.to_string())).unwrap();
    for i in 0..5000 {
        let spelling = format!("@A{i}.EXAMPLE,{}", b.name.hostid());
        let to = fs::read_link(mount.path(&spelling)).unwrap();
        assert_eq!(to.to_str().unwrap(), format!("@a{i}.example,{}", b.name.hostid()));
        let invented = format!("@a{i}.invalid,{}", a.name.hostid());
        assert_eq!(
            fs::read_link(mount.path(&invented)).unwrap().to_str().unwrap(),
            a.name.to_string()
        );
    }
    assert_eq!(listed(&mount), [a.name.to_string()]);
    assert_eq!(fs::read(mount.path(b.name.to_string()).join("file")).unwrap(), b"in b");
    assert_eq!(
        fs::read(mount.path(format!("@a1.invalid,{}/sub/file", a.name.hostid()))).unwrap(),
        b"in a"
    );
}

#[test]
#[ignore = "needs FUSE"]
fn forwarded_key_is_link_and_revoked_key_fails() {
    let (a, b) = sites();
    a.state(
        KeyStatement::issue(a.root_key(), NOW as u64, Body::Forwarding { to: b.name.clone() })
            .to_xdr(),
    );
    let mount = TestMount::of_namespace(vec![a.clone(), b.clone()]);
    assert_eq!(
        fs::read_link(mount.path(a.name.to_string())).unwrap().to_str().unwrap(),
        b.name.to_string()
    );
    assert_eq!(fs::read(mount.path(a.name.to_string()).join("file")).unwrap(), b"in b");
    drop(mount);
    b.state(
        KeyStatement::issue(b.root_key(), NOW as u64, Body::Revocation { reason: "stolen".into() })
            .to_xdr(),
    );
    let mount = TestMount::of_namespace(vec![a, b.clone()]);
    let refused = fs::metadata(mount.path(b.name.to_string())).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::KEYREVOKED.raw_os_error()));
}

#[test]
#[ignore = "needs FUSE"]
fn link_follows_later_statements() {
    let (a, b) = sites();
    let c = Site::new("c.example", 33);
    fs::write(c.source().join("file"), b"in c").unwrap();
    c.publish(NOW, 3600);
    let say = |time, body| a.state(KeyStatement::issue(a.root_key(), time, body).to_xdr());
    say(NOW as u64, Body::Forwarding { to: b.name.clone() });
    let mount = TestMount::of_namespace_asking(
        vec![a.clone(), b.clone(), c.clone()],
        Duration::from_millis(200),
    );
    let file = mount.path(a.name.to_string()).join("file");
    assert_eq!(fs::read(&file).unwrap(), b"in b");
    say(NOW as u64 + 1, Body::Forwarding { to: c.name.clone() });
    mount.until(|| fs::read(&file).is_ok_and(|read| read == b"in c"));
    say(NOW as u64 + 2, Body::Revocation { reason: "stolen".into() });
    mount.until(|| fs::read(&file).is_err());
    let refused = fs::metadata(&file).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::KEYREVOKED.raw_os_error()));
    assert!(!listed(&mount).contains(&a.name.to_string()));
}
