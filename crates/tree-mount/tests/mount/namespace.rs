//! The namespace: trees appear when they are referred to, link to each other, move, and are revoked.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use vouch_tree::statement::{Body, KeyStatement};
use vouch_xdr::Xdr;

use crate::world::{NOW, Site, World, survey};

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

fn listed(world: &World) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(&world.point).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn trees_appear_when_referred_to_and_links_lead_from_one_to_another() {
    let (a, b) = sites();
    let Some(world) = World::of_namespace(vec![a.clone(), b.clone()]) else { return };
    assert_eq!(listed(&world), Vec::<String>::new());
    let root = world.path(a.name.to_string());
    assert_eq!(fs::read(root.join("sub/file")).unwrap(), b"in a");
    assert_eq!(listed(&world), [a.name.to_string()]);
    assert_eq!(fs::read(root.join("to-b/file")).unwrap(), b"in b");
    assert_eq!(listed(&world), [a.name.to_string(), b.name.to_string()]);
    assert_eq!(survey(&root), survey(&a.source()));
    assert_eq!(fs::canonicalize(root.join("to-b")).unwrap().file_name().unwrap().to_str().unwrap(), b.name.to_string());
    for entry in fs::read_dir(&world.point).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), entry.metadata().unwrap().ino());
    }
}

#[test]
fn what_is_no_name_does_not_exist_and_what_can_not_be_reached_is_an_error() {
    let (a, b) = sites();
    let Some(world) = World::of_namespace(vec![a.clone()]) else { return };
    for name in ["x", "@", "@a.example", "@a.example,short"] {
        assert_eq!(fs::metadata(world.path(name)).unwrap_err().kind(), std::io::ErrorKind::NotFound, "{name}");
    }
    // Nobody knows the host; another tree's key at a host that is there.
    for name in [b.name.to_string(), format!("@a.example,{}", b.name.hostid())] {
        assert_eq!(fs::metadata(world.path(&name)).unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{name}");
    }
    assert_eq!(listed(&world), Vec::<String>::new());
    let shouted = format!("@a.example,{}", a.name.hostid().to_string().to_ascii_uppercase());
    assert_eq!(fs::read_link(world.path(shouted)).unwrap().to_str().unwrap(), a.name.to_string());
}

#[test]
fn a_forwarded_key_is_a_link_and_a_revoked_one_an_error() {
    let (a, b) = sites();
    a.state(KeyStatement::issue(a.root_key(), NOW as u64, Body::Forwarding { to: b.name.clone() }).to_xdr());
    let Some(world) = World::of_namespace(vec![a.clone(), b.clone()]) else { return };
    assert_eq!(fs::read_link(world.path(a.name.to_string())).unwrap().to_str().unwrap(), b.name.to_string());
    assert_eq!(fs::read(world.path(a.name.to_string()).join("file")).unwrap(), b"in b");
    drop(world);
    b.state(KeyStatement::issue(b.root_key(), NOW as u64, Body::Revocation { reason: "stolen".into() }).to_xdr());
    let world = World::of_namespace(vec![a, b.clone()]).unwrap();
    let refused = fs::metadata(world.path(b.name.to_string())).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::KEYREVOKED.raw_os_error()));
}
