mod fork;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use vouch_tree::statement::revocation_reason;
use vouch_tree_client::{Tree, VerifyEvent};
use vouch_tree_store::{Database, Progress};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{Code, Failure, Outcome};
use crate::revision_options::RevisionArgs;
use crate::tree_path::{OpenTree, TreePath};
use crate::{output, progress, when};
use vouch_daemon::printable::printable;

/// Verify that a published tree is completely readable, or that a database is sound.
///
/// Each read verifies its data; this command reads everything. With --db it checks a local database
/// instead: it hashes every frame, and checks that all data of the kept revisions is there. Exits
/// with 1 if anything is wrong, and with 5 if the database is sound but its key is revoked. If replicas stop answering, it prints what it has found so far, and
/// exits like other commands.
///
/// With --fork it checks, offline, evidence that the keys of the tree have signed two statements that
/// contradict each other. Exits with 1 if the evidence proves nothing.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch verify @pub.example.org,HOSTID\n  vouch verify --replica mirror.example --only-replicas --no-cache @pub.example.org,HOSTID   check one mirror\n  \
                  vouch verify --db /srv/db\n  vouch verify --fork /var/lib/vouch/fork/HOSTID HOSTID"
)]
pub(crate) struct Args {
    /// The tree, or a path in it to a symbolic link that leads to the tree. With --fork, a HOSTID
    /// suffices.
    #[arg(value_name = "NAME[/PATH]", required_unless_present = "db")]
    name: Option<OsString>,
    /// A database, a directory or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DB", conflicts_with = "name")]
    db: Option<PathBuf>,
    /// Evidence of a fork, which `vouch pull`, `vouch monitor` and all readers keep.
    #[arg(long, value_name = "DIR", requires = "name", conflicts_with = "db")]
    fork: Option<PathBuf>,
    #[command(flatten)]
    revision: RevisionArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    if let (Some(dir), Some(name)) = (&args.fork, &args.name) {
        return fork::run(dir, name, args.json);
    }
    let started = Instant::now();
    let (mut report, end) = match (&args.db, &args.name) {
        (Some(_), _) if !args.revision.is_newest() => {
            return Err(Failure::usage("--db", "checks all kept revisions")
                .cure("leave out --revision and --tag"));
        }
        (Some(db), _) => (of_database(db, global)?, Ok(())),
        (None, Some(name)) => {
            let path = TreePath::parse(name)?;
            client_options::block_on(of_tree(&args, &path, global))?
        }
        (None, None) => return Err(Failure::usage("NAME", "missing")),
    };
    report.seconds = started.elapsed().as_secs_f64();
    if args.json {
        output::json(&report)?;
    } else {
        let mut text: String =
            report.problems.iter().map(|problem| format!("{problem}\n")).collect();
        text.extend(report.notes.iter().map(|note| format!("note: {note}\n")));
        text.extend(report.witnesses.as_ref().map(Witnesses::text));
        text.push_str(&report.summary());
        output::text(&text)?;
    }
    end?;
    match (report.problem_count, report.revoked) {
        (0, None) => Ok(()),
        (0, Some(reason)) => {
            let why = format_args!(
                "the key of this tree is revoked ({}), and clients refuse the tree",
                printable(reason.as_bytes())
            )
            .to_string();
            Err(Failure::refused(report.what, why)
                .cure("make new keys, and publish into a new database"))
        }
        _ => Err(Failure::silent(Code::Differs)),
    }
}

async fn of_tree(args: &Args, path: &TreePath, global: &Global) -> Outcome<(Report, Outcome)> {
    let client = args.client.client().await?;
    let mut open = OpenTree::open(&client, &path.name, &args.client, &args.revision).await?;
    if !path.path.is_empty() {
        let (found, _) = open.follow(&path.path).await?;
        if !found.is_empty() {
            let why = format_args!(
                "leads to /{} of {}, which is not the root of a tree",
                printable(&found),
                open.tree.name()
            )
            .to_string();
            return Err(Failure::input(printable(&path.path), why)
                .cure("verify checks whole trees; give a link to a tree, or no path"));
        }
    }
    let bar = progress::spinner(global, "verifying");
    let mut report = Report {
        what: open.tree.name().to_string(),
        revision: Some(open.revision.number()),
        ..Report::default()
    };
    report.valid_until = u64::try_from(open.revision.expires()).ok().map(when::utc);
    report.witnesses = args.revision.is_newest().then(|| Witnesses::of(&open.tree)).flatten();
    let mut events = open.tree.verify_all(&open.revision);
    let mut end = Ok(());
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let failure = Failure::from(error);
                report.ended_early = true;
                report.add_problem(failure.to_string());
                end = Err(failure);
                break;
            }
        };
        match event {
            VerifyEvent::Progress { frames, bytes, waiting } => {
                (report.frames, report.bytes) = (frames, bytes);
                bar.set_message(format!(
                    "{frames} frames, {}, {waiting} left so far",
                    output::bytes(bytes)
                ));
            }
            VerifyEvent::Bad { path, error } => {
                report.add_problem(format!("{}: {error}", printable(&path)))
            }
            VerifyEvent::Done { frames, bytes, bad, .. } => {
                (report.frames, report.bytes) = (frames, bytes);
                report.problem_count = report.problem_count.max(bad);
            }
        }
    }
    bar.finish_and_clear();
    Ok((report, end))
}

fn of_database(db: &Path, global: &Global) -> Outcome<Report> {
    let bar = progress::spinner(global, "verifying");
    let tick = |now: Progress| bar.set_message(progress::stage_text(&now));
    let found = Database::verify(db, Some(&tick));
    bar.finish_and_clear();
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let Some(problem) = error.as_damage() else { return Err(error.into()) };
            let mut report = Report { what: db.display().to_string(), ..Report::default() };
            report.add_problem(problem);
            return Ok(report);
        }
    };
    let mut report = Report {
        what: db.display().to_string(),
        frames: found.frames,
        bytes: found.bytes,
        revisions: Some(found.revisions),
        log_entries: Some(found.log_entries).filter(|entries| *entries > 0),
        ..Report::default()
    };
    let opened = Database::open_read(db)?;
    report.revoked = revocation_reason(&opened.hostid(), &opened.statements());
    report.problem_count = found.problem_count;
    report.problems = found.problems;
    report.notes = found.notes;
    Ok(report)
}

#[derive(Default, Serialize)]
struct Report {
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    witnesses: Option<Witnesses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revisions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_entries: Option<u64>,
    /// The reason, if the database has a revocation of the tree's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<String>,
    frames: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended_early: bool,
    problem_count: u64,
    problems: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    seconds: f64,
}

/// Of the newest revision, by the policies of the tree and the reader.
#[derive(Serialize)]
struct Witnesses {
    cosigned: usize,
    witnesses: usize,
    oldest: String,
    newest: String,
    quorum_time: String,
}

impl Witnesses {
    fn of(tree: &Tree) -> Option<Self> {
        let found = tree.witnessing()?;
        Some(Self {
            cosigned: found.cosigned,
            witnesses: found.witnesses,
            oldest: when::utc(found.oldest?),
            newest: when::utc(found.newest?),
            quorum_time: when::utc(found.quorum_time?),
        })
    }

    fn text(&self) -> String {
        let Self { cosigned, witnesses, oldest, newest, quorum_time } = self;
        format!(
            "cosigned by {cosigned} of {witnesses} witnesses, from {oldest} to {newest}; quorum at {quorum_time}\n"
        )
    }
}

impl Report {
    fn add_problem(&mut self, problem: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX || self.ended_early {
            self.problems.push(problem);
        }
    }

    fn summary(&self) -> String {
        let of = match (self.revision, &self.valid_until, self.revisions) {
            (Some(number), Some(until), _) => format!("revision {number}, valid until {until}: "),
            (_, _, Some(count)) => format!("{count} revisions: "),
            _ => String::new(),
        };
        let (bytes, seconds) = (output::bytes(self.bytes), self.seconds);
        let verdict = match self.problem_count {
            0 if self.revoked.is_some() => "sound, but REVOKED".to_owned(),
            0 => "sound".to_owned(),
            count if self.ended_early => format!("{count} PROBLEMS, incomplete"),
            count => format!("{count} PROBLEMS"),
        };
        format!("{}: {of}{} frames, {bytes} in {seconds:.1} s: {verdict}\n", self.what, self.frames)
    }
}

const PROBLEMS_MAX: usize = 1000;
