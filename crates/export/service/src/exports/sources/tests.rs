use super::*;
use crate::tests::blocking::Nobody;
use std::net::SocketAddr;
use vouch_nfs4_server::ExportId;
use vouch_vfs::memory::MemoryFs;

fn sources(list: ExportList) -> Sources {
    let open = |source: &Source, _: &Options| match source {
        Source::Directory(path) if path.ends_with(b"missing") => {
            Err(io::ErrorKind::NotFound.into())
        }
        _ => Ok(Arc::new(MemoryFs::new()) as Arc<dyn FileSystem>),
    };
    Sources::new(list, Arc::new(Hosts::new(Arc::new(Nobody))), Box::new(open))
}

fn file(text: &str) -> (tempfile::NamedTempFile, ExportList) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let list = ExportList::Files(vec![file.path().to_owned()]);
    (file, list)
}

fn places(loaded: &Loaded) -> Vec<String> {
    let place = |export: &Arc<Export>| {
        export
            .pseudo_path
            .iter()
            .map(|part| format!("/{}", String::from_utf8_lossy(part)))
            .collect()
    };
    loaded.exports.all().iter().map(place).collect()
}

#[test]
fn exports_appear_at_their_pseudo_paths() {
    let (_file, list) = file("/srv *(ro,fsid=0)\n/srv/a *\n/other *\n");
    assert_eq!(places(&sources(list).load(&Changes::default()).unwrap()), ["", "/a", "/other"]);
    let (_file, list) = file("/srv/a *(rw)\n/srv/b *(ro,fsid=7)\ntree:/db/x *\n");
    let loaded = sources(list).load(&Changes::default()).unwrap();
    assert_eq!(places(&loaded), ["/srv/a", "/srv/b", "/tree/db/x"]);
    let all = loaded.exports.all();
    assert_eq!((all[1].id, all[1].fsid), (ExportId(7), Some((7, 0))));
    assert!(all[0].id.0 >> 31 == 1 && all[2].id.0 >> 31 == 1 && all[0].id != all[2].id);
    assert!(
        all[0]
            .clients
            .access_for(SocketAddr::from(([192, 0, 2, 1], 1)))
            .is_some_and(|access| !access.flavours[0].read_only)
    );
}

#[test]
fn crossmnt_needs_all_clients_of_the_path() {
    for (clients, crosses) in [
        ("a(crossmnt) b(ro,crossmnt)", true),
        ("a(crossmnt) b(ro)", false),
        ("a b", false),
        ("-crossmnt a b(ro)", true),
    ] {
        let opened_with = Arc::new(parking_lot::Mutex::new(None));
        let seen = opened_with.clone();
        let open = move |_: &Source, options: &Options| {
            *seen.lock() = Some(options.cross_mounts);
            Ok(Arc::new(MemoryFs::new()) as Arc<dyn FileSystem>)
        };
        let (_file, list) = file(&format!("/srv {clients}\n"));
        let loaded = Sources::new(list, Arc::new(Hosts::new(Arc::new(Nobody))), Box::new(open))
            .load(&Changes::default())
            .unwrap();
        assert_eq!(*opened_with.lock(), Some(crosses), "{clients}");
        let warned =
            loaded.warnings.iter().any(|warning| warning.contains("crossmnt is not set for all"));
        assert_eq!(warned, clients == "a(crossmnt) b(ro)", "{:?}", loaded.warnings);
    }
}

#[test]
fn clients_of_a_path_share_its_snapshots() {
    let snapshots_of = |clients: &str| {
        let opened_with = Arc::new(parking_lot::Mutex::new(None));
        let seen = opened_with.clone();
        let open = move |_: &Source, options: &Options| {
            *seen.lock() = options.snapshots();
            Ok(Arc::new(MemoryFs::new()) as Arc<dyn FileSystem>)
        };
        let (_file, list) = file(&format!("/srv {clients}\n"));
        let loaded = Sources::new(list, Arc::new(Hosts::new(Arc::new(Nobody))), Box::new(open))
            .load(&Changes::default());
        loaded.map(|_| opened_with.lock().clone()).map_err(|error| error.to_string())
    };
    let at = |path: &str, is_visible| {
        Some(SnapshotOptions { pattern: vouch_vfs_posix::SnapshotPattern::parse(path), is_visible })
    };
    assert_eq!(snapshots_of("a b").unwrap(), None);
    assert_eq!(snapshots_of("a b(snapdir=visible)").unwrap(), None);
    assert_eq!(
        snapshots_of("a(ro) b(snapshots=/snaps,snapdir=visible)").unwrap(),
        at("/snaps", true)
    );
    assert_eq!(
        snapshots_of("a(snapshots=/snaps) b(snapshots=/snaps/*)").unwrap(),
        at("/snaps", false)
    );
    assert_eq!(
        snapshots_of("a(snapshots)").unwrap(),
        Some(SnapshotOptions { pattern: None, is_visible: false })
    );
    assert!(
        snapshots_of("a(snapshots=/snaps) b(snapshots=/other)")
            .unwrap_err()
            .contains("different snapshots")
    );
    assert!(
        snapshots_of("a(snapdir=hidden,snapshots=/s) b(snapdir=visible)")
            .unwrap_err()
            .contains("snapdir=")
    );
}

#[test]
fn root_export_moves_others_below_it() {
    let (_file, list) = file("/srv *(ro,fsid=0)\n/srv/a *\n/other *\n");
    let loaded = sources(list).load(&Changes::default()).unwrap();
    assert_eq!(places(&loaded), ["", "/a", "/other"]);
}

#[test]
fn reload_keeps_file_systems_open_and_rejects_faulty_list() {
    let (file, list) = file("/srv/a *(ro)\n");
    let sources = sources(list);
    let before = sources.load(&Changes::default()).unwrap().exports.all()[0].clone();
    fs::write(file.path(), "/srv/a *(rw,nonsense)\n").unwrap();
    assert!(
        matches!(sources.load(&Changes::default()), Err(SourceError::Lines(text)) if text.contains("line 1") && text.contains("nonsense"))
    );
    fs::write(file.path(), "/srv/a *(rw)\n/srv/b *\n").unwrap();
    let loaded = sources.load(&Changes::default()).unwrap();
    assert!(Arc::ptr_eq(&before.file_system, &loaded.exports.all()[0].file_system));
    assert_eq!(before.id, loaded.exports.all()[0].id);
}

#[test]
fn unusable_export_is_skipped_with_warning() {
    let (_file, list) =
        file("/srv/missing *\n/srv/a *\n/proc/self *(mp)\n/c unknown.example.org\n");
    let loaded = sources(list).load(&Changes::default()).unwrap();
    assert_eq!(places(&loaded), ["/srv/a", "/c"]);
    assert_eq!(loaded.warnings.len(), 3);
    assert_eq!(loaded.summary(), "2 exports; not exported: /srv/missing, /proc/self");
    let (_file, list) = file("/srv/missing *\n");
    assert!(matches!(sources(list).load(&Changes::default()), Err(SourceError::Open { .. })));
}

#[test]
fn export_of_the_servers_own_state_is_warned_of() {
    let state = tempfile::tempdir().unwrap();
    let at = state.path().canonicalize().unwrap();
    let (at, above) = (at.display(), at.parent().unwrap().display());
    let (_file, list) = file(&format!("{at}/below *\n{above} *\n{at}-other *\n"));
    let loaded = sources(list).with_state(Some(state.path())).load(&Changes::default()).unwrap();
    let warned = |path: &str| {
        let start = format!("{path} shares {at}, which holds the server's keys");
        loaded.warnings.iter().any(|warning| warning.starts_with(&start))
    };
    assert!(warned(&format!("{at}/below")) && warned(&above.to_string()), "{:?}", loaded.warnings);
    assert!(!warned(&format!("{at}-other")));
}

#[test]
fn export_below_one_with_snapshots_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().display().to_string();
    fs::create_dir(directory.path().join("below")).unwrap();
    let warned = |options: &str, below: &str| {
        let (_file, list) = file(&format!("{at} *({options})\n{below} *(sec=krb5p)\n"));
        let loaded = sources(list).load(&Changes::default()).unwrap();
        let start = format!("{at}: its snapshots show the files of {below}");
        loaded.warnings.iter().any(|warning| warning.starts_with(&start))
    };
    assert!(warned("ro,snapshots=/snaps", &format!("{at}/below")));
    assert!(!warned("ro", &format!("{at}/below")));
    assert!(!warned("ro,snapshots=/snaps", &format!("{at}/absent")));
    assert!(!warned("ro,snapshots=/snaps", "/proc/fs"));
}

#[test]
fn faults_of_all_files_are_named() {
    let (first, list) = file("/srv/a *(nonsense)\n/srv/b *(folly)\n");
    let (second, _) = file("/srv/c *(trash)\n");
    let ExportList::Files(mut files) = list else { panic!("a list of files") };
    files.push(second.path().to_owned());
    let error = sources(ExportList::Files(files)).load(&Changes::default()).err().unwrap();
    let text = error.to_string();
    for fault in ["line 1: option nonsense", "line 2: option folly", "line 1: option trash"] {
        assert!(text.contains(fault), "{text}");
    }
    assert!(text.contains(&first.path().display().to_string()), "{text}");
}

fn directory(files: &[(&str, &str)]) -> Loaded {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    sources(ExportList::Files(vec![directory.path().to_owned()])).load(&Changes::default()).unwrap()
}

fn is_read_only(loaded: &Loaded, export: usize, last: u8) -> bool {
    loaded.exports.all()[export]
        .clients
        .access_for(SocketAddr::from(([192, 0, 2, last], 1)))
        .unwrap()
        .flavours[0]
        .read_only
}

#[test]
fn directory_source_reads_its_exports_files() {
    let loaded = directory(&[
        ("b.exports", "/b *\n"),
        ("a.exports", "/a *\n/b 192.0.2.1(rw)\n"),
        (".c.exports", "bad"),
        ("d.txt", "bad"),
    ]);
    assert_eq!(places(&loaded), ["/a", "/b"]);
    assert!(!is_read_only(&loaded, 1, 1) && is_read_only(&loaded, 1, 2));
    let loaded = directory(&[
        ("a.exports", "# first\n/a 192.0.2.1(ro)\n"),
        ("b.exports", "/a 192.0.2.1(rw)\n"),
    ]);
    let [said] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert!(
        said.contains("b.exports: line 1: /a names 192.0.2.1 again")
            && said.contains("a.exports: line 2 applies"),
        "{said}"
    );
    assert!(is_read_only(&loaded, 0, 1));
}

#[test]
fn missing_directory_of_lists_is_empty_and_missing_list_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("exports");
    fs::write(&list, "/a *\n").unwrap();
    let load = |paths: Vec<std::path::PathBuf>| {
        sources(ExportList::Files(paths)).load(&Changes::default())
    };
    assert_eq!(places(&load(vec![list, directory.path().join("exports.d")]).unwrap()), ["/a"]);
    assert!(matches!(load(vec![directory.path().join("missing")]), Err(SourceError::File { .. })));
}

#[test]
fn directory_of_lists_may_name_no_export() {
    assert_eq!(places(&directory(&[])), [""; 0]);
    assert_eq!(places(&directory(&[("csi.exports", "# none\n")])), [""; 0]);
    let (_file, list) = file("# none\n");
    assert!(matches!(sources(list).load(&Changes::default()), Err(SourceError::Nothing(_))));
}

#[test]
fn command_line_directory_is_one_export() {
    let directory = tempfile::tempdir().unwrap();
    let one = |pseudo: &str, options: &str| {
        let source = directory.path().as_os_str().as_encoded_bytes().to_vec();
        sources(ExportList::One { source, pseudo: pseudo.into(), options: options.into() })
            .load(&Changes::default())
    };
    assert_eq!(places(&one("/export/x", "rw,async").unwrap()), ["/export/x"]);
    assert_eq!(one("/", "rw,no_wdelay").unwrap().warnings.len(), 1);
    assert!(matches!(one("export", "rw"), Err(SourceError::Pseudo(_))));
    assert!(matches!(one("/e", "bogus"), Err(SourceError::Lines(_))));
}

#[test]
fn kerberos_without_keytab_is_reported() {
    let (_file, list) = file("/srv/a *(ro)\n/srv/b 192.0.2.1(sec=sys) *(sec=sys:krb5p)\n");
    let sources = sources(list);
    let said = |gss| sources.load(&Changes::default()).unwrap().into_parts(gss).1;
    let (gss, _) = crate::gss::tests::context(vouch_rpcsec_gss::Service::None);
    assert!(said(Some(&gss)).is_empty());
    let [line] = &said(None)[..] else { panic!("one line") };
    assert!(
        line.starts_with("/srv/b lists a Kerberos flavour") && line.contains("--keytab"),
        "{line}"
    );
}

fn counting(list: ExportList) -> (Sources, Arc<parking_lot::Mutex<Vec<String>>>) {
    let opened: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
    let seen = opened.clone();
    let open = move |source: &Source, _: &Options| {
        let path = source.to_string();
        if !Path::new(&path).is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        seen.lock().push(path);
        Ok(Arc::new(MemoryFs::new()) as Arc<dyn FileSystem>)
    };
    (Sources::new(list, Arc::new(Hosts::new(Arc::new(Nobody))), Box::new(open)), opened)
}

#[test]
fn replaced_directory_is_reopened_and_missing_one_skipped() {
    let above = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| above.path().join(name));
    for path in [&a, &b] {
        fs::create_dir(path).unwrap();
    }
    let (_file, list) = file(&format!("{} *(rw)\n{} *(rw)\n", a.display(), b.display()));
    let (sources, opened) = counting(list);
    let loaded = || sources.load(&Changes::default()).unwrap();
    let first = loaded().exports;
    loaded();
    assert_eq!(opened.lock().len(), 2, "unchanged databases are not reopened");
    fs::rename(&a, above.path().join("old")).unwrap();
    fs::create_dir(&a).unwrap();
    let second = loaded().exports;
    assert_eq!(opened.lock()[2..], [a.display().to_string()]);
    assert!(!Arc::ptr_eq(&first.all()[0].file_system, &second.all()[0].file_system));
    assert!(Arc::ptr_eq(&first.all()[1].file_system, &second.all()[1].file_system));
    assert_eq!(first.all()[0].id, second.all()[0].id);
    fs::remove_dir(&b).unwrap();
    let third = loaded();
    assert_eq!(third.exports.all().len(), 1);
    assert!(third.warnings[0].contains("is not exported"), "{:?}", third.warnings);
}

#[test]
fn conflicting_exports_are_rejected_with_remedy() {
    let fault = |text: &str| {
        let (_file, list) = file(text);
        sources(list).load(&Changes::default()).err().expect("the call is refused").to_string()
    };
    let same_number = fault("/a *(fsid=7)\n/b *(fsid=7)\n");
    assert!(same_number.ends_with("give each a different fsid="), "{same_number}");
    let same_path = fault("/srv *(fsid=root)\n/srv/a *\n/a *\n");
    assert!(
        same_path.contains("same pseudo path") && !same_path.contains("different fsid="),
        "{same_path}"
    );
    let long = fault(&format!("/{} *\n", "n".repeat(300)));
    assert!(long.contains("255 bytes") && !long.contains("different fsid="), "{long}");
}

#[test]
fn path_cannot_forge_lines_in_messages() {
    let (_file, list) = file("/srv/a\\012b/missing *\n/srv/b *\n/c\\012d *(crossmnt) 192.0.2.1\n");
    let loaded = sources(list).load(&Changes::default()).unwrap();
    assert_eq!(loaded.warnings.len(), 2);
    assert!(
        loaded.warnings.iter().all(|warning| !warning.contains('\n') && warning.contains("\\x0a")),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn names_of_list_in_force_survive_rejected_list() {
    let (file, list) = file("/srv/a 192.0.2.1(rw) @group(ro)\n");
    let sources = sources(list);
    let clients = sources.load(&Changes::default()).unwrap().exports.all()[0].clients.clone();
    sources.commit(Changes::default());
    let [here, stranger] = [1, 7].map(|last| SocketAddr::from(([192, 0, 2, last], 700)));
    let is_known = || {
        sources.hosts.look_up_if_stale(stranger.ip());
        (clients.access_for(here).is_some(), !clients.is_undecided(stranger))
    };
    assert_eq!(is_known(), (true, true));
    fs::write(file.path(), "/srv/missing 192.0.2.9\n").unwrap();
    assert!(sources.load(&Changes::default()).is_err());
    sources.hosts.look_up(stranger.ip());
    assert_eq!(is_known(), (true, true));
    fs::write(file.path(), "/srv/a 192.0.2.9(rw)\n").unwrap();
    drop(sources.load(&Changes::default()).unwrap());
    sources.hosts.look_up(stranger.ip());
    assert_eq!(is_known(), (true, true));
    sources.commit(Changes::default());
    assert!(clients.access_for(here).is_none());
}

#[test]
fn only_trees_have_data_servers() {
    let (_file, list) = file("tree:/db a(pnfs=192.0.2.1+192.0.2.2:7) b(ro)\n/srv *\n");
    let loaded = sources(list).load(&Changes::default()).unwrap();
    let servers =
        loaded.exports.all().iter().map(|export| export.data_servers.len()).collect::<Vec<_>>();
    assert_eq!(servers, [2, 0]);
    for (text, what) in [
        ("/srv *(pnfs=192.0.2.1)\n", "only of a published tree"),
        ("tree:/db a(pnfs=192.0.2.1) b(pnfs=192.0.2.2)\n", "more than one pnfs="),
        ("/srv a(quota=1G) b(quota=2G)\n", "more than one quota="),
        ("tree:/db *(quota=1G)\n", "nobody writes to a published tree"),
        ("/srv a(io=direct) b(io=uncached)\n", "more than one io="),
        ("tree:/db *(io=uncached)\n", "caches of its own"),
        ("/srv *(io=slow)\n", "is not a mode of I/O"),
        ("/srv *(quota=1023k)\n", "is not a size"),
    ] {
        let (_file, list) = file(text);
        let error = sources(list).load(&Changes::default()).err().unwrap().to_string();
        assert!(error.contains(what), "{error}");
    }
}
