use crate::gateway::Gateway;
use crate::prelude::*;

pub(crate) fn run(site: &TestSite, program: &str, args: &[&str]) -> Output {
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
