//! Arrays of jobs of many users in Slurm, whose jobs use one export under krb5p at the same time.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

use vouch_nfs4::Attributes;
use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_nfs4_client::{Client, Error};
use vouch_rpcsec_gss::Service;

use vouch_testkit::{in_own_mounts, require, succeed, this_test, within};

use super::site::Site;
use super::slurm::Slurm;
use super::{SECONDS, export};
use crate::export::Export;
use crate::own_client;

const INSIDE: &str = "VOUCH_TEST_ARRAY";
/// Number of users, which makes the test a campaign. All other figures are the same.
const USERS: &str = "VOUCH_ARRAY_USERS";
const TASKS: usize = 5;
const LIFE: Duration = Duration::from_secs(16);
const WORK_S: u64 = 20;
const UID_START: usize = 61_001;

fn users() -> Vec<(String, u32)> {
    let count = std::env::var(USERS).map_or(3, |count| count.parse().expect("a number of users"));
    (0..count)
        .map(|user| {
            (format!("arrayuser{user}"), u32::try_from(UID_START + user).expect("a small number"))
        })
        .collect()
}

/// The job's side: appends lines to a file of its own, and reads them, for longer than a ticket lives.
pub(crate) async fn work(address: SocketAddr) {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"));
    let (job, user) = (variable("SLURM_JOB_ID"), variable("SLURM_JOB_USER"));
    let client = own_client::client_of(&format!("job {job}"), address, 1, Service::Privacy).await;
    let end = Instant::now() + Duration::from_secs(variable(SECONDS).parse().expect("a number"));
    let len = write_lines(&client, &format!("{user}-{job}"), end)
        .await
        .unwrap_or_else(|error| panic!("job {job} of {user}: {error}"));
    println!("bytes: {len}");
}

/// Returns the length of the file.
async fn write_lines(client: &Client, name: &str, end: Instant) -> Result<usize, Error> {
    let root = client.walk(b"export").await?;
    let file = client
        .open(&root.handle, name.as_bytes(), ShareAccess::BOTH, Some(&Attributes::default()))
        .await?;
    let mut content = Vec::new();
    while content.is_empty() || Instant::now() < end {
        let line = format!("{name} {}\n", content.len());
        client.write(&file, content.len() as u64, line.as_bytes(), StableHow::FileSync).await?;
        content.extend_from_slice(line.as_bytes());
        let (bytes, _) = client.read(&file, 0, 100_000).await?;
        assert!(bytes == content, "{name}: what was read is not what was written");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    client.close_file(file).await?;
    Ok(content.len())
}

/// The users exist in a mount namespace of the test.
#[test]
#[ignore = "needs root, Slurm and a KDC"]
fn jobs_of_arrays_work_with_tickets_of_their_users() {
    require("root, for users of its own", rustix::process::geteuid().is_root());
    let accounts = tempfile::NamedTempFile::new().expect("a file");
    let lines: String =
        users().iter().map(|(name, uid)| format!("{name}:x:{uid}:100::/:/bin/sh\n")).collect();
    std::fs::write(
        accounts.path(),
        std::fs::read_to_string("/etc/passwd").expect("the users of this machine") + &lines,
    )
    .expect("a file");
    std::fs::set_permissions(accounts.path(), std::fs::Permissions::from_mode(0o644))
        .expect("an own file");
    let test = this_test("jobs::array::array_process");
    let mut command = Command::new("sh");
    command
        .args(["-c", "mount --bind \"$0\" /etc/passwd && exec \"$@\""])
        .arg(accounts.path())
        .arg(test.get_program())
        .args(test.get_args())
        .env(INSIDE, "1");
    succeed(&mut in_own_mounts(&command))
        .lines()
        .filter_map(|line| Some(&line[line.find("array: ")?..]))
        .for_each(|line| println!("{line}"));
}

/// The child in the namespace; does nothing without its variable.
#[test]
fn array_process() {
    if std::env::var(INSIDE).is_err() {
        return;
    }
    let mut site = Site::start(LIFE);
    let users = users();
    let slurm = Slurm::start(&site, 20);
    site.realm.kdc.add(&users.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    let export = export(&site);
    site.open_for_users();
    let began = Instant::now();
    let script = script(&site, &slurm, &export);
    users
        .iter()
        .for_each(|(user, _)| drop(slurm.submit(user, &script, &[&format!("--array=1-{TASKS}")])));
    let caches_max = wait_for_jobs(&slurm, &site);
    println!(
        "array: {} jobs of {} users in {} s",
        users.len() * TASKS,
        users.len(),
        began.elapsed().as_secs()
    );
    let ids = assert_owners(&export, &slurm, &users);
    within(60, "the jobs are forgotten", || site.list().trim() == "[]");
    assert_eq!(site.leftovers(), Vec::<String>::new());
    let found = site.audit(&[], &[]);
    let count = |what: &str| found.matches(what).count();
    for act in ["job-begin", "job-end", "ticket-withdrawn"] {
        assert_eq!(count(act), ids.len(), "{act}: {found}");
    }
    let opens = site.audit(&["--job", &ids[0]], &[&export.trail()]).matches(" OPEN ok ").count();
    assert!(opens > 0, "the trail of the export has no record of job {}", ids[0]);
    assert_eq!(count("ticket-refused"), 0, "{found}");
    println!("array: {caches_max} caches at once, {} tickets minted", count("ticket-minted"));
}

fn script(site: &Site, slurm: &Slurm, export: &Export) -> String {
    let program = slurm.path("output").join("program");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    format!(
        "#!/bin/sh\nexport KRB5_CONFIG={} KRB5CCNAME=FILE:{}/krb5cc_$(id -u) VOUCH_TEST_PORT={} VOUCH_TEST_ENCTYPE= \
         VOUCH_TEST_CASE=array-task {SECONDS}={WORK_S}\nexec {} --exact own_client::client_process --nocapture\n",
        site.realm.kdc.path("strict.conf").display(),
        site.path("n1").display(),
        export.address.port(),
        program.display()
    )
}

/// Returns how many caches the node had at once.
fn wait_for_jobs(slurm: &Slurm, site: &Site) -> usize {
    let (end, mut caches_max) = (Instant::now() + Duration::from_secs(1800), 0);
    while !slurm.output("squeue", &["--noheader"]).trim().is_empty() {
        assert!(Instant::now() < end, "the jobs do not end: {}", slurm.output("squeue", &[]));
        caches_max = caches_max.max(site.leftovers().len());
        std::thread::sleep(Duration::from_millis(200));
    }
    caches_max
}

/// Each job has made one file, which its user owns and which has all that it wrote. Returns the
/// jobs' numbers.
fn assert_owners(export: &Export, slurm: &Slurm, users: &[(String, u32)]) -> Vec<String> {
    let files = std::fs::read_dir(export.data(".")).expect("the exported directory").flatten();
    let names: Vec<String> =
        files.map(|file| file.file_name().into_string().expect("a name")).collect();
    let log = || format!("{}\n{}\n{}", export.log(), slurm.logs(), outputs(slurm));
    assert_eq!(names.len(), users.len() * TASKS, "{names:?}\n{}", log());
    let mut jobs = Vec::new();
    for name in &names {
        let (user, job) = name.split_once('-').expect("user and job");
        let (_, uid) = users.iter().find(|(known, _)| known == user).expect("a user of the test");
        assert_eq!(std::fs::metadata(export.data(name)).expect("the file").uid(), *uid, "{name}");
        let written = std::fs::metadata(export.data(name)).expect("the file").len();
        let output = std::fs::read_to_string(slurm.path("output").join(format!("out-{job}")))
            .expect("the job's output");
        assert!(
            output.contains(&format!("bytes: {written}\n")),
            "{name} has {written} bytes: {output}\n{}",
            log()
        );
        jobs.push(job.to_owned());
    }
    for (user, _) in users {
        assert_eq!(
            names.iter().filter(|name| name.starts_with(&format!("{user}-"))).count(),
            TASKS,
            "{user}: {names:?}"
        );
    }
    jobs
}

fn outputs(slurm: &Slurm) -> String {
    let files = std::fs::read_dir(slurm.path("output")).expect("a directory").flatten();
    let outputs = files.filter(|file| file.file_name().to_string_lossy().starts_with("out-"));
    outputs.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
}
