use crate::gateway::Gateway;
use crate::prelude::*;

fn run(site: &TestSite, program: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(site.path(""))
        .env("HOME", site.path(""))
        .env("LC_ALL", "C")
        .env_remove("http_proxy");
    let output = command.output().expect("the program starts");
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&said));
    output
}

#[test]
#[ignore = "needs curl and wget"]
fn curl_and_wget_resume_downloads() {
    require_programs(&["curl", "wget"]);
    let site = TestSite::new();
    site.small_tree();
    let large: Vec<u8> =
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    site.write("src/large.bin", &large);
    site.publish();
    let _replica = site.serve();
    let gateway = Gateway::start(&site, &[]);
    let url = gateway.url("/large.bin");
    for (program, args) in [
        ("curl", vec!["-sS", "-C", "-", "-o", "got.bin", &url]),
        ("wget", vec!["-c", "-nv", "-O", "got.bin", &url]),
    ] {
        for kept in [0, 1, 131_072, 2_000_001, large.len()] {
            site.write("got.bin", &large[..kept]);
            run(&site, program, &args);
            assert!(
                std::fs::read(site.path("got.bin")).expect("a file") == large,
                "{program} after {kept} bytes"
            );
        }
    }
    run(
        &site,
        "wget",
        &words(&format!(
            "-r -np -nH -nv -e robots=off --reject-regex format=|@ -P copy {}",
            gateway.url("/dir/")
        )),
    );
    assert_eq!(
        std::fs::read(site.path("copy/dir/numbers")).expect("a copy"),
        std::fs::read(site.path("src/dir/numbers")).expect("a file")
    );
}

#[test]
#[ignore = "needs python3-pip"]
fn pip_installs_from_a_published_index() {
    let pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    require("pip", pip.is_ok_and(|output| output.status.success()));
    let site = TestSite::new();
    let wheel = "vouch_sample-1.0-py3-none-any.whl";
    let make = format!(
        "import os, zipfile\nos.makedirs('src/files')\nwith zipfile.ZipFile('src/files/{wheel}', 'w') as z:\n \
         z.writestr('vouch_sample.py', 'version = 1')\n \
         z.writestr('vouch_sample-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: vouch-sample\\nVersion: 1.0\\n')\n \
         z.writestr('vouch_sample-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n \
         z.writestr('vouch_sample-1.0.dist-info/RECORD', '')\n"
    );
    run(&site, "python3", &["-c", &make]);
    site.write("src/simple/index.html", "<a href=\"vouch-sample/\">vouch-sample</a>");
    site.write(
        "src/simple/vouch-sample/index.html",
        format!("<a href=\"../../files/{wheel}\">{wheel}</a>"),
    );
    site.write("src/index.html", "<p>The site</p>");
    site.publish();
    let _replica = site.serve();
    let gateway = Gateway::start(&site, &[]);
    let index = gateway.url("/simple/");
    let pip = ["-m", "pip", "--isolated", "--no-cache-dir", "--disable-pip-version-check"];
    run(
        &site,
        "python3",
        &[
            &pip[..],
            &words(&format!("install -q --no-deps --target got --index-url {index} vouch-sample")),
        ]
        .concat(),
    );
    assert_eq!(
        std::fs::read_to_string(site.path("got/vouch_sample.py")).expect("the module"),
        "version = 1"
    );

    assert_eq!(gateway.get("/").text(), "<p>The site</p>");
    assert_eq!(gateway.get("/simple").status, 302);
    assert!(gateway.get("/?format=html").text().contains("index.html"), "a listing, by request");
    assert_contains!(
        gateway.request("GET", "/", &[("Accept", "application/json")]).text(),
        "\"entries\""
    );
    assert!(gateway.get("/files/").text().contains(wheel), "a listing, without an index");
    let listing = Gateway::start(&site, &["--no-index"]);
    assert!(listing.get("/").text().contains("index.html"));
}

fn package(site: &TestSite, version: &str) {
    let control = format!(
        "Package: vouch-sample\nVersion: {version}\nArchitecture: all\nMaintainer: The Vouch authors <nobody@example.org>\nDescription: sample\n"
    );
    site.write("build/DEBIAN/control", control);
    site.write("build/usr/share/vouch-sample/version", version);
    site.run_tool("mkdir", &["-p", "src/debian/pool"]);
    site.run_tool(
        "dpkg-deb",
        &words(&format!(
            "--root-owner-group -b build src/debian/pool/vouch-sample_{version}_all.deb"
        )),
    );
    let indexes = "cd src/debian && rm -f Release && apt-ftparchive packages pool >Packages && gzip -kf Packages && apt-ftparchive release . >../Release && mv ../Release .";
    site.run_tool("sh", &["-c", indexes]);
}

#[test]
#[ignore = "needs apt-utils"]
fn apt_updates_and_installs_from_a_published_repository() {
    require_programs(&["apt-get", "apt-ftparchive", "dpkg-deb"]);
    let site = TestSite::new();
    package(&site, "1.0");
    site.publish();
    let _replica = site.serve();
    let gateway = Gateway::start(&site, &["--refresh", "1s"]);
    let root = site.path("root");
    for dir in [
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "etc/apt/trusted.gpg.d",
        "var/lib/apt/lists/partial",
        "var/log/apt",
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "var/cache/apt/archives/partial",
    ] {
        site.run_tool("mkdir", &["-p", &format!("root/{dir}")]);
    }
    site.write("root/var/lib/dpkg/status", "");
    site.write(
        "root/etc/apt/sources.list",
        format!("deb [trusted=yes] {} ./\n", gateway.url("/debian")),
    );
    let root = root.to_str().expect("a plain path");
    let options = [
        format!("Dir={root}"),
        format!("Dir::State::status={root}/var/lib/dpkg/status"),
        format!("DPkg::Options::=--root={root}"),
        format!("DPkg::Options::=--log={root}/var/log/dpkg.log"),
        "DPkg::Options::=--force-script-chrootless,not-root".to_owned(),
        "Dir::Bin::methods=/usr/lib/apt/methods".to_owned(),
        "Dir::Bin::dpkg=/usr/bin/dpkg".to_owned(),
        "APT::Sandbox::User=".to_owned(),
        "Acquire::Languages=none".to_owned(),
        "Acquire::http::Proxy=false".to_owned(),
    ];
    let apt = |words: &[&str]| {
        let mut args: Vec<&str> =
            options.iter().flat_map(|option| ["-o", option.as_str()]).collect();
        args.extend(words);
        let output = run(&site, "apt-get", &args);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let installed = || std::fs::read_to_string(site.path("root/usr/share/vouch-sample/version"));
    let install = if is_root() {
        vec!["install", "-y", "vouch-sample"]
    } else {
        vec!["install", "-y", "--download-only", "vouch-sample"]
    };
    apt(&["update"]);
    apt(&install);
    if is_root() {
        assert_eq!(installed().expect("the package's file"), "1.0");
    }
    let said = apt(&["update"]);
    assert!(said.contains("Hit:") && !said.contains("Get:"), "apt gets 304: {said}");
    let deb = "vouch-sample_1.0_all.deb";
    let date = gateway.get(&format!("/debian/pool/{deb}")).header("last-modified").to_owned();
    let kept =
        std::fs::read(site.path("src/debian/pool").join(deb)).expect("the package")[..200].to_vec();
    let partial = format!("root/var/cache/apt/archives/partial/{deb}");
    site.write(&partial, kept);
    let _ = std::fs::remove_file(site.path("root/var/cache/apt/archives").join(deb));
    let partial = std::fs::File::options().write(true).open(site.path(&partial)).expect("a file");
    partial.set_modified(httpdate::parse_http_date(&date).expect("a date")).expect("its time");
    let said = apt(&words(
        "install -y --reinstall --download-only -o Debug::Acquire::http=true vouch-sample",
    ));
    assert!(said.contains("206 Partial Content"), "apt resumes: {said}");

    package(&site, "2.0");
    site.publish();
    let began = std::time::Instant::now();
    while !gateway.get("/debian/Packages").text().contains("2.0") {
        assert!(began.elapsed().as_secs() < 30, "the new revision is not shown");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    site.write("root/var/cache/apt/archives/partial/vouch-sample_2.0_all.deb", "cut off");
    let said = apt(&["update"]);
    assert!(!said.contains("W:") && !said.contains("E:"), "{said}");
    apt(&install);
    if is_root() {
        assert_eq!(installed().expect("the package's file"), "2.0");
    }
}

#[test]
#[ignore = "needs Chromium"]
fn browser_shows_listings_and_runs_no_scripts() {
    let browser = ["chromium-headless-shell", "chromium"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    let browser = browser.expect("the package chromium-headless-shell is installed");
    let site = TestSite::new();
    site.small_tree();
    site.write("src/a & b/<img src=x onerror=document.title=1>", "x");
    site.write(
        "src/page.html",
        "<title>as published</title><style>p{color:red}</style><p>text</p><script>document.title='script ran'</script>",
    );
    site.publish();
    let _replica = site.serve();
    let gateway = Gateway::start(&site, &[]);
    let open = |options: &[&str], path: &str| {
        let data = format!("--user-data-dir={}", site.path("browser").display());
        let url = gateway.url(path);
        let args = format!(
            "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --enable-logging=stderr {data}"
        );
        let mut args = words(&args);
        args.extend(options);
        args.push(&url);
        let output = run(&site, browser, &args);
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (dom, log) = open(&["--dump-dom"], "/");
    assert!(dom.contains("<bdi>hello</bdi>") && !log.contains("CONSOLE"), "{dom}{log}");
    let (dom, log) = open(&["--dump-dom"], "/a%20%26%20b/");
    assert!(
        dom.contains("&lt;img src=x onerror=document.title=1&gt;")
            && !dom.contains("<img")
            && !log.contains("CONSOLE"),
        "{dom}{log}"
    );
    let (dom, log) = open(&["--dump-dom"], "/page.html");
    assert!(dom.contains("<title>as published</title>") && log.contains("script"), "{dom}{log}");
    let picture = |name: &str, options: &[&str]| {
        let shot = format!("--screenshot={}", site.path(name).display());
        open(&[options, &[&shot, "--hide-scrollbars"]].concat(), "/dir/");
        std::fs::read(site.path(name)).expect("a picture")
    };
    let light = picture("light.png", &["--window-size=1000,600"]);
    let dark =
        picture("dark.png", &["--window-size=1000,600", "--blink-settings=preferredColorScheme=0"]);
    assert!(light != dark && light.len() > 10_000, "{} bytes", light.len());
}
