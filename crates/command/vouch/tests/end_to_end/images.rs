//! Images: made by buildah, published in each form, and made of the tree again.

use crate::prelude::*;

const STORAGE: &[&str] = &["--root", "storage", "--runroot", "run", "--storage-driver", "overlay"];

fn buildah(site: &TestSite, args: &[&str]) -> String {
    let mut buildah = Command::new("buildah");
    succeed(buildah.args(STORAGE).args(args).current_dir(site.path(""))).trim().to_owned()
}

/// Two layers: the second hides, replaces and links files of the first.
fn build(site: &TestSite) {
    let script = |mount: &str, script: &str| {
        site.run_tool("sh", &["-ec", &format!("cd {mount}; {script}")]);
    };
    let first = buildah(site, &["from", "scratch"]);
    let long = "n".repeat(200);
    script(
        &buildah(site, &["mount", &first]),
        &format!(
            "mkdir -p usr/lib bin dir/below gone; cp $(command -v busybox) bin/busybox
            ln -s usr/lib lib; echo one > usr/lib/one; echo old > dir/old; echo old > dir/below/old
            echo f > file; echo f > gone/file; touch -d @1 usr/lib/one; chmod 4751 file
            chown 1234:2345 dir; chmod 1777 dir; mknod null c 1 3; mkfifo fifo; echo l > {long}
            ln {long} usr/lib/{long}; setfattr -n user.binary -v 0sAAqAPQ== file
            setfattr -n security.capability -v 0sAQAAAgAgAAAAAAAAAAAAAAAAAAA= bin/busybox
            truncate -s 9M sparse; head -c 3000000 /dev/urandom >> sparse; head -c 600000 /dev/urandom > mid"
        ),
    );
    let config =
        ["--entrypoint", r#"["/bin/busybox"]"#, "--env", "COLOUR=green", "--workingdir", "/usr"];
    buildah(site, &[&["config"], &config[..], &[&first]].concat());
    buildah(site, &["commit", "--quiet", &first, "base"]);
    let second = buildah(site, &["from", "--pull-never", "base"]);
    script(
        &buildah(site, &["mount", &second]),
        "rm -r gone dir; mkdir dir; echo new > dir/new; ln file dir/linked; echo two > lib/two",
    );
    buildah(site, &["commit", "--quiet", &second, "app"]);
}

/// Mounts the image as buildah sees it.
fn mounted_by_buildah(site: &TestSite, image: &str, link: &str) {
    let container = buildah(site, &["from", "--pull-never", image]);
    let mount = buildah(site, &["mount", &container]);
    std::os::unix::fs::symlink(mount, site.path(link)).expect("a link");
}

#[test]
#[ignore = "needs root, FUSE, python3, attr, buildah, docker-registry, curl and busybox"]
fn images_become_trees_and_trees_become_images() {
    require("root", is_root());
    require_programs(&["python3", "setfattr", "buildah", "docker-registry", "curl", "busybox"]);
    let site = TestSite::new();
    build(&site);
    let registry = free_port();
    site.write(
        "registry.yml",
        format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:{registry}\n",
            site.path("registry").display()
        ),
    );
    let _registry = KillOnDrop(
        Command::new("docker-registry")
            .args(["serve", "registry.yml"])
            .current_dir(site.path(""))
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the registry starts"),
    );
    let listens = || TcpStream::connect(("127.0.0.1", registry)).is_ok();
    assert!(eventually(Duration::from_secs(20), listens));
    let places = [
        "oci-layout:layout:app".to_owned(),
        "docker-archive:docker.tar:app:1".to_owned(),
        format!("docker://127.0.0.1:{registry}/app:1"),
    ];
    for place in &places {
        let to = place.replace("oci-layout:", "oci:");
        buildah(&site, &["push", "--quiet", "--tls-verify=false", "app", &to]);
    }
    site.run_tool("gzip", &["docker.tar"]);
    let publish = |place: &str, more: &[&str]| {
        let location = site.location();
        let line = ["publish", "--db", "db", "--keys", "keys", "--location", &location];
        let image = ["--json", "--plain-http", "--from-image", place];
        let summary = site.run_ok([&line[..], &image[..], more].concat());
        serde_json::from_str::<Value>(&summary).expect("JSON")
    };
    publish(&places[0], &["--tag", "app"]);
    // Each form has the same files, so no frame is new but the revision's.
    for place in [&places[1].replace(".tar", ".tar.gz"), &places[2]] {
        let summary = publish(place, &[]);
        assert!(summary["new_frames"].as_u64().expect("a count") <= 2, "{place}: {summary}");
        assert_eq!(summary["deleted_files"], 0);
    }
    let _replica = site.serve();
    let name = site.name("");
    assert!(site.run(["diff", &name, "--from", "1", "--to", "3"]).status.success());

    mounted_by_buildah(&site, "app", "theirs");
    let _mount =
        crate::test_site::Mount::new(&site, "mnt", &["--tag", "app", "--suid", "--dev", &name]);
    // The root of a container of buildah has mode 0555 and the time of its start.
    let like_the_tree = |script: &str, dir: &str| {
        let script = format!("{script}; chmod --reference=mnt {dir}; touch -r mnt {dir}");
        site.run_tool("sh", &["-ec", &script]);
    };
    like_the_tree("cp -a mnt/.vouch-image.json theirs/", "theirs/");
    site.assert_same("theirs/", "mnt", &[]);
    let config = site.json("mnt/.vouch-image.json");
    assert_eq!(config["config"]["WorkingDir"], "/usr");
    assert_eq!(config["config"]["Env"][0], "COLOUR=green");
    let output = Command::new("chroot")
        .args(["mnt", "/bin/busybox", "cat", "/lib/two"])
        .current_dir(site.path(""))
        .output()
        .expect("chroot starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "two\n", "{output:?}");

    let archive = |file: &str| {
        site.run_ok(["get", &name, "--oci", &format!("oci-archive:{file}:again")]);
        fs::read(site.path(file)).expect("an archive")
    };
    assert!(archive("again.tar") == archive("twice.tar"), "equal trees give equal images");
    buildah(&site, &["pull", "--quiet", "oci-archive:again.tar"]);
    let pushed = format!("docker://127.0.0.1:{registry}/again:1");
    site.run_ok(["get", &name, "--plain-http", "--oci", &pushed]);
    // Of the table of contents, for clients that fetch single files.
    let manifest = format!("http://127.0.0.1:{registry}/v2/again/manifests/1");
    let accept = "Accept: application/vnd.oci.image.manifest.v1+json";
    site.run_tool("curl", &["-sf", "-H", accept, "-o", "manifest", &manifest]);
    let layer = &site.json("manifest")["layers"][0]["annotations"];
    assert_contains!(layer.to_string(), "zstd-chunked.manifest-position", "tarsplit-position");
    buildah(&site, &["pull", "--quiet", "--tls-verify=false", &pushed]);
    let again = format!("127.0.0.1:{registry}/again:1");
    mounted_by_buildah(&site, &again, "again");
    like_the_tree("rm theirs/.vouch-image.json", "theirs/ again/");
    site.assert_same("theirs/", "again/", &[]);
    let inspected = buildah(&site, &["inspect", "--type", "image", &again]);
    assert!(inspected.contains("COLOUR=green") && inspected.contains("amd64"), "{inspected}");
    let summary = publish("oci-archive:again.tar", &[]);
    assert!(summary["new_frames"].as_u64().expect("a count") <= 2, "{summary}");
}
