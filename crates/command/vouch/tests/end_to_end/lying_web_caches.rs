//! Real caches that an origin has filled with lies.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use vouch_testkit::words;

use crate::test_site::{TestSite, free_port};
use crate::web_caches::{Cache, published};
use vouch_testkit::{noise, require_program};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    FlippedBytes,
    OtherObject,
    Truncated,
    OtherRange,
    ErrorPage,
    Redirect,
    Gone,
    OldHead,
}

impl Lie {
    const ALL: [Self; 8] = [
        Self::FlippedBytes,
        Self::OtherObject,
        Self::Truncated,
        Self::OtherRange,
        Self::ErrorPage,
        Self::Redirect,
        Self::Gone,
        Self::OldHead,
    ];

    /// First part of the URLs under which the origin lies so.
    fn path(self) -> String {
        format!("{self:?}")
    }

    /// Each cache keeps it after the origin has become honest.
    const fn is_kept(self) -> bool {
        matches!(
            self,
            Self::FlippedBytes | Self::OtherObject | Self::Truncated | Self::ErrorPage | Self::Gone
        )
    }
}

struct Origin {
    files: BTreeMap<String, Vec<u8>>,
    old_manifest: Vec<u8>,
    is_honest: AtomicBool,
}

struct Response {
    status: &'static str,
    header: String,
    body: Vec<u8>,
}

impl Origin {
    fn start(site: &TestSite, old_manifest: Vec<u8>) -> (Arc<Self>, u16) {
        let mut files = BTreeMap::new();
        for dir in ["", "packs/", "index/"] {
            for entry in std::fs::read_dir(site.path("db").join(dir)).expect("a directory") {
                let path = entry.expect("an entry").path();
                let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
                if path.is_file() {
                    files.insert(format!("{dir}{name}"), std::fs::read(&path).expect("a file"));
                }
            }
        }
        let origin = Arc::new(Self { files, old_manifest, is_honest: AtomicBool::new(false) });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::clone(&origin);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let origin = Arc::clone(&shared);
                std::thread::spawn(move || origin.serve(stream));
            }
        });
        (origin, port)
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
        let target = lines.next()?.split(' ').nth(1)?.to_owned();
        let fields = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>();
        let range = fields.iter().find_map(|line| {
            let (start, end) = line
                .to_lowercase()
                .strip_prefix("range: bytes=")?
                .split_once('-')
                .map(|(a, b)| (a.to_owned(), b.to_owned()))?;
            Some((start.parse().ok()?, end.parse::<usize>().ok()? + 1))
        });
        let Response { status, header, body } = self.answer(&target, range);
        // squid keeps no response without a date.
        let (len, date) = (body.len(), httpdate::fmt_http_date(SystemTime::now()));
        write!(stream, "HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Length: {len}\r\nConnection: close\r\n{header}\r\n").ok()?;
        stream.write_all(&body).ok()
    }

    fn answer(&self, target: &str, range: Option<(usize, usize)>) -> Response {
        let is_second = target.contains('?') && !target.contains("manifest");
        let target = target.split('?').next().unwrap_or(target).trim_start_matches('/');
        let (first, name) = target.split_once('/').unwrap_or((target, ""));
        let is_honest = self.is_honest.load(Ordering::Relaxed);
        let lies_about = |lie: &Lie| {
            if *lie == Lie::OldHead { name == "manifest" } else { name.starts_with("packs/") }
        };
        let lie = Lie::ALL
            .into_iter()
            .find(|lie| lie.path() == first)
            .filter(|lie| !is_honest && lies_about(lie));
        let Some(file) = self.files.get(name) else {
            return Response { status: "404 Not Found", header: String::new(), body: Vec::new() };
        };
        // The lies of a second request must not meet the second request of the honest origin.
        let cache_control = match name {
            _ if is_second => "no-store",
            "manifest" => "public, max-age=30",
            _ => "public, max-age=31536000",
        };
        let header = format!("Cache-Control: {cache_control}\r\n");
        let mut file = file.clone();
        match lie {
            Some(Lie::FlippedBytes) => file.iter_mut().step_by(2048).for_each(|byte| *byte ^= 0x40),
            Some(Lie::OtherObject) => file.clone_from(self.other_pack(name)),
            Some(Lie::Truncated) => file.truncate(file.len() / 2),
            Some(Lie::ErrorPage) => file = b"<html>Your session has expired.</html>".to_vec(),
            Some(Lie::Gone) => {
                return Response { status: "404 Not Found", header, body: Vec::new() };
            }
            Some(Lie::OldHead) => file.clone_from(&self.old_manifest),
            Some(Lie::Redirect) => {
                let header = format!("{header}Location: /{}/{name}\r\n", Lie::OtherObject.path());
                return Response { status: "302 Found", header, body: Vec::new() };
            }
            Some(Lie::OtherRange) => {
                return part(
                    &file,
                    range.map_or((4096, file.len()), |(start, end)| (start + 4096, end + 4096)),
                    &header,
                );
            }
            None => {}
        }
        match range {
            Some(range) if lie != Some(Lie::ErrorPage) => part(&file, range, &header),
            _ => Response { status: "200 OK", header, body: file },
        }
    }

    fn other_pack(&self, name: &str) -> &Vec<u8> {
        let packs: Vec<_> = self.files.keys().filter(|name| name.starts_with("packs/d")).collect();
        let at = packs.iter().position(|found| *found == name).unwrap_or(0);
        &self.files[packs[(at + 1) % packs.len()]]
    }
}

fn part(file: &[u8], (start, end): (usize, usize), header: &str) -> Response {
    let end = end.min(file.len());
    if start >= end {
        return Response {
            status: "416 Range Not Satisfiable",
            header: String::new(),
            body: Vec::new(),
        };
    }
    let header = format!("{header}Content-Range: bytes {start}-{}/{}\r\n", end - 1, file.len());
    Response { status: "206 Partial Content", header, body: file[start..end].to_vec() }
}

/// A failed command may have written the files before the first wrong one, and the start of that.
fn assert_no_wrong_byte(site: &TestSite, out: &str, what: &str) {
    for file in std::fs::read_dir(site.path(out).join("noise")).into_iter().flatten() {
        let file = file.expect("an entry").path();
        let right = std::fs::read(site.path("src/noise").join(file.file_name().expect("a name")))
            .unwrap_or_default();
        assert!(
            right.starts_with(&std::fs::read(&file).expect("a file")),
            "{what}: wrong bytes in {}",
            file.display()
        );
    }
}

#[test]
#[ignore = "needs nginx, squid and varnish"]
fn real_cache_full_of_lies_gives_no_wrong_byte() {
    std::thread::scope(|scope| {
        for cache in [Cache::Squid, Cache::Varnish, Cache::Nginx] {
            require_program(cache.program());
            scope.spawn(move || fill_with_lies(cache));
        }
    });
}

fn fill_with_lies(cache: Cache) {
    let site = published();
    let old_manifest = std::fs::read(site.path("db/manifest")).expect("a manifest");
    site.write("src/noise/3", noise(103, 60_000));
    site.publish_with(&["--pack-size", "256K"]);
    let (origin, origin_port) = Origin::start(&site, old_manifest);
    let name = site.name("");
    let direct = format!("http://127.0.0.1:{origin_port}/honest");
    site.run_ok(&format!(
        "get --no-cache --only-replicas --replica {direct} --proxy DIRECT {name} direct"
    ));
    site.assert_same("src", "direct", &[]);
    let port = free_port();
    let (_cache, through) = cache.start(&site, port, origin_port, "");
    let get = |lie: Lie, out: &str, more: &[&str]| {
        let what = format!("{cache:?}, {lie:?}, {out}");
        let (began, out, url) =
            (Instant::now(), format!("{lie:?}-{out}"), format!("{}{}", through[1], lie.path()));
        let args = format!(
            "get --no-cache --timeout 5s --only-replicas --replica {url} {} {}",
            through[2], through[3]
        );
        let mut args = words(&args);
        args.extend(more);
        let output = site.run([&args[..], &[&name, &out]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: {:?}", began.elapsed());
        assert_no_wrong_byte(&site, &out, &what);
        match output.status.code() {
            Some(0) => site.assert_same("src", &out, &[]),
            code => assert!(
                matches!(code, Some(5 | 6)) && error.contains(&url),
                "{what}: {code:?} {error}"
            ),
        }
        output.status.success()
    };
    for lie in Lie::ALL {
        assert!(!get(lie, "filling", &[]), "{cache:?}, {lie:?}");
    }
    origin.is_honest.store(true, Ordering::Relaxed);
    for lie in Lie::ALL.into_iter().filter(|lie| lie.is_kept()) {
        assert!(
            get(lie, "poisoned", &[]),
            "{cache:?}, {lie:?}: the second fetch got the lie again"
        );
    }
    let _replica = site.serve();
    let honest = format!("127.0.0.1:{}", site.port);
    for lie in Lie::ALL.into_iter().filter(|lie| lie.is_kept()) {
        assert!(
            get(lie, "mended", &["--replica", &honest]),
            "{cache:?}, {lie:?}: an honest replica does not help"
        );
    }
}
