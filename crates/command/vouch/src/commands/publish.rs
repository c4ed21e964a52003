mod image;
mod source_snapshot;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use vouch_tree::{Iv, TreeName};
use vouch_tree_publish::{
    DeletionMax, LEVEL_DEFAULT, Options, Progress, RefusePrivate, Signer, Summary, publish_assembly,
};
use vouch_tree_store::disk::SystemDisk;
use vouch_tree_store::{Database, WriteOptions};

use self::image::ImageArgs;
use self::source_snapshot::SourceSnapshot;
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::keep_options::KeepArgs;
use crate::passphrase::PassphraseArgs;
use crate::witness_options::{WitnessArgs, visibility};
use crate::{interrupt, key_directory as keys, log_keys, output, progress, size, when};

/// Build or update the signed database of a directory.
///
/// Publishing to an existing database makes the next revision: files with unchanged size, mtime,
/// ctime and inode are not read again, and equal blocks are stored once. The old revision stays in
/// force until the new one is complete. After an interruption, the next run reuses what was stored.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch publish /srv/tree --db /srv/db --keys keys --location pub.example.org\n  \
                  vouch publish /srv/tree --db /srv/db --keys keys --location pub.example.org --tag v1.2 --keep 30\n  \
                  vouch publish /srv/tree --db /srv/db --keys keys --location pub.example.org --exclude '*.tmp' --exclude /build --dry-run\n  \
                  vouch publish /srv/tree --db s3://trees/tools --keys keys --location pub.example.org\n  \
                  vouch publish --from-image docker://registry.example.org/app:1.2 --db /srv/images --keys keys --location pub.example.org --tag app-1.2\n\n\
                  Publish again well within --duration, even if nothing has changed: clients refuse a revision that has expired.\n\
                  A directory that holds a file `.vouch-opaque` lists only what has been referenced, as does one named by --opaque.\n\
                  The environment configures a bucket: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_PROFILE, AWS_ENDPOINT_URL, AWS_REGION; VOUCH_BUCKET_DIR for local copies.\n\
                  Where the clock was ahead at the last publication (\"starts at ..., which is in the future\"): set it right, then publish once \
                  with --clock-was-ahead. A certificate from that time is not valid yet: make another by `vouch certify`."
)]
pub(crate) struct Args {
    /// Directory to publish.
    #[arg(value_name = "DIR", env = "VOUCH_SOURCE", required_unless_present = "from_image")]
    source: Option<PathBuf>,
    #[command(flatten)]
    image: ImageArgs,
    /// The database, a directory or s3://BUCKET/PREFIX; created if missing.
    #[arg(long, value_name = "DB")]
    db: PathBuf,
    /// Directory with signing.key, signing.cert, and log.key and log.cert for the log of revisions.
    #[arg(long, value_name = "KEYDIR")]
    keys: PathBuf,
    /// Host that clients ask first: the host part of the tree's name.
    #[arg(long, value_name = "HOST[:PORT]", env = "VOUCH_LOCATION")]
    location: String,
    /// Take what is not given here from [tree.NAME.publish] of the configuration.
    #[arg(long = "tree", value_name = "NAME")]
    _tree: Option<String>,
    /// Validity of the revision: publish again within this time.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = when::parse_duration)]
    duration: Duration,
    /// Publish although the newest revision starts in the future. Use this if the clock was ahead
    /// when that revision was made and is right now. Clients with a right clock refused that
    /// revision and accept this one. Clients whose clock was ahead too refuse this one until that
    /// time, or until the tree's file in their state directory is removed.
    #[arg(long)]
    clock_was_ahead: bool,
    /// Tag of this revision; tagged revisions are kept.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Text for `vouch log`, signed with the revision.
    #[arg(long, short, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    keep: KeepArgs,
    /// Read and count, and store nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Leave out names that match this pattern; may be repeated. A pattern with a slash is relative
    /// to DIR, another one is for names in all directories. `*` matches no slash, `**` does.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Stop if the tree loses more than so many files, or more than so many per cent of them (and at
    /// least ten files, or all): the disk may not be mounted [default: 50%; no limit for images].
    #[arg(long, value_name = "N|N%", value_parser = parse_deletion_max)]
    max_delete: Option<DeletionMax>,
    /// Publish or refuse files that other users cannot read: published files are readable by
    /// everyone. The default refuses to make a new tree with such files, and warns later; of images,
    /// it warns.
    #[arg(long, value_name = "CHOICE")]
    private_files: Option<PrivateFiles>,
    /// Read every file again, whatever its times.
    #[arg(long)]
    rehash: bool,
    /// Leave out unreadable files, and list them, instead of stopping.
    #[arg(long)]
    skip_unreadable: bool,
    /// Do not cross into other file systems.
    #[arg(long)]
    one_file_system: bool,
    /// Read a snapshot of DIR, so that the revision has all files as they were at one moment.
    ///
    /// `new` makes a read-only btrfs snapshot for the time of the run; DIR must be the root of a
    /// subvolume. NAME is a snapshot in DIR's .snapshot, .snap or .zfs/snapshot. A value with a
    /// slash is the directory of a snapshot. The summary names the snapshot.
    #[arg(long, value_name = "new|NAME|PATH")]
    from_snapshot: Option<String>,
    /// Directory, relative to DIR, whose names are hidden until used; may be repeated.
    #[arg(long, value_name = "PATH")]
    opaque: Vec<PathBuf>,
    /// Compression level of zstd; 0 stores data uncompressed.
    #[arg(long, value_name = "LEVEL", default_value_t = LEVEL_DEFAULT, value_parser = clap::value_parser!(i32).range(0..=19))]
    level: i32,
    /// Length of new packs [default: 448K, which web caches keep; 1/4096 of databases over 1.75G, up to
    /// 32M; 32M in buckets].
    #[arg(long, value_name = "SIZE", value_parser = size::parse_pack_len)]
    pack_size: Option<u32>,
    /// Threads; the default is one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Time to wait for another writer of the database.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = when::parse_duration)]
    wait: Duration,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    #[command(flatten)]
    witnesses: WitnessArgs,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PrivateFiles {
    /// Publish them.
    Allow,
    /// Publish them, and warn.
    Warn,
    /// Stop.
    Refuse,
}

fn parse_deletion_max(text: &str) -> Result<DeletionMax, String> {
    let bad = || "write a number of files, or a percentage from 0% to 100%".to_owned();
    match text.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|percent| *percent <= 100)
            .map(DeletionMax::Percent)
            .ok_or_else(bad),
        None => text.parse().map(DeletionMax::Files).map_err(|_| bad()),
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let (key, cert) = keys::read_signing(&args.keys, &args.passphrase)?;
    let (log, asking) = args.witnesses.attach(log_keys::read(&args.keys)?)?;
    let hostid = cert.root.hostid();
    let name = TreeName::new(&args.location, hostid).at("--location")?;
    let duration_s = u32::try_from(args.duration.as_secs())
        .map_err(|_| Failure::usage("--duration", "longer than the format allows"))?;
    let image = args.image.open()?;
    let source = args
        .source
        .clone()
        .or_else(|| args.image.place().map(|place| place.to_string().into()))
        .ok_or_else(|| Failure::usage("DIR", "is missing"))?;
    if image.is_none() {
        check_directory(&source)?;
    }
    let from = args.from_snapshot.as_deref();
    let snapshot = from.map(|from| SourceSnapshot::find(&source, from)).transpose()?;
    let (wait, policy) = (args.wait, args.keep.retention());
    // A dry run of a tree that has no database yet.
    let scratch =
        (args.dry_run && !Database::exists(&args.db)).then(tempfile::tempdir).transpose()?;
    let db = scratch.as_ref().map_or(args.db, |scratch| scratch.path().join("db"));
    // A database or key in the live directory is also in its snapshots.
    let is_outside = |source: &Path| {
        vouch_tree_publish::check_outside_source(source, args.one_file_system, &db, &args.keys)
    };
    if image.is_none() {
        is_outside(&source)?;
    }
    let source = snapshot.as_ref().map_or(source, |snapshot| snapshot.path.clone());
    if image.is_none() {
        is_outside(&source)?;
    }
    let options = Options {
        clock_was_ahead: args.clock_was_ahead,
        tag: args.tag,
        keep: policy.and_then(|policy| policy.only_last()),
        rehash: args.rehash,
        skip_unreadable: args.skip_unreadable,
        one_file_system: args.one_file_system,
        opaque: args.opaque,
        private: keys::identities(&args.keys),
        level: args.level,
        threads: args.threads.map_or(0, usize::from),
        snapshot: snapshot.as_ref().map(|snapshot| snapshot.options),
        exclude: args.exclude,
        deletion_max: args
            .max_delete
            .or_else(|| image.is_none().then_some(DeletionMax::Percent(50))),
        refuse_private: match args.private_files {
            None if image.is_none() => RefusePrivate::First,
            Some(PrivateFiles::Refuse) => RefusePrivate::Always,
            None | Some(PrivateFiles::Allow | PrivateFiles::Warn) => RefusePrivate::Never,
        },
        message: args.message,
        is_dry_run: args.dry_run,
        log,
        ..Options::new(source, name, when::now_s(), duration_s)
    };
    // Check the options first: an invalid publication leaves no database behind.
    vouch_tree_publish::check_options(&options)?;
    Database::ensure(&SystemDisk, &db, hostid, Iv::from_bytes(*keys::random()?), wait)?;
    let writer = Database::open_write(
        &db,
        WriteOptions {
            lock_wait: wait,
            pack_len: args.pack_size,
            packs_by_thread: true,
            ..WriteOptions::default()
        },
    )?;
    if writer.hostid() != hostid {
        return Err(Failure::input(
            db.display(),
            format_args!("is the database of another tree, {}", writer.hostid()),
        )
        .cure("choose another --db, or the --keys of that tree"));
    }
    let progress = Arc::new(Progress::default());
    let stop = progress.clone();
    let taken = interrupt::stop_gracefully(move || stop.stop());
    let signer = Signer { key: &key, cert };
    let summary: Outcome<Summary> = watched(global, &progress, || match &image {
        None => Ok(vouch_tree_publish::publish(&writer, &signer, &options, &progress)?),
        Some(image) => Ok(publish_assembly(&writer, &signer, &options, &progress, |into| {
            vouch_image::unpack(image, args.image.len_max(), into)
        })?),
    });
    drop(taken);
    let summary = summary?;
    if let (false, Some(policy)) =
        (args.dry_run, policy.filter(|policy| policy.only_last().is_none()))
    {
        writer.retain(policy)?;
    }
    warn(&summary, args.private_files);
    let log = writer.evidence()?.map(|evidence| evidence.proof.checkpoint.checkpoint().size);
    let read_from = snapshot.as_ref().map(|snapshot| snapshot.name.as_str());
    match args.json {
        true => output::json(&Report {
            dry_run: args.dry_run,
            log_entries: log,
            ..Report::new(&summary, read_from)
        })?,
        false => output::text(&summary_text(&summary, read_from, log, args.dry_run))?,
    }
    asking.map_or(Ok(()), |asking| asking.check(summary.revision))
}

fn check_directory(source: &Path) -> Outcome {
    if source.is_dir() {
        return Ok(());
    }
    let failure = if source.exists() {
        Failure::input(source.display(), "not a directory")
    } else {
        Failure::not_found(source.display(), "no such directory")
    };
    Err(failure.cure("give the directory to publish"))
}

fn warn(summary: &Summary, private_files: Option<PrivateFiles>) {
    if let (Some(example), true) =
        (&summary.private_example, private_files != Some(PrivateFiles::Allow))
    {
        tracing::warn!(
            files = summary.private_count,
            example,
            "files that other users cannot read here are readable by everyone in the tree; leave them out with --exclude, or say --private-files allow"
        );
    }
    if let Some(wanted) = summary.end_wanted {
        tracing::warn!(
            valid_until = when::utc(summary.expires),
            wanted = when::utc(wanted),
            "the signing key's certificate ends before --duration does; run `vouch certify --valid-for` for a longer one"
        );
    }
}

fn watched<T>(global: &Global, progress: &Arc<Progress>, work: impl FnOnce() -> T) -> T {
    let bar = progress::spinner(global, "publishing");
    let (drawn, seen) = (bar.clone(), progress.clone());
    let drawer = progress::Drawer::start(move || {
        drawn.set_message(format!(
            "{} files, {} seen, {} read",
            seen.files(),
            output::bytes(seen.bytes()),
            output::bytes(seen.bytes_read())
        ));
    });
    let result = work();
    drop(drawer);
    bar.finish_and_clear();
    result
}

fn summary_text(s: &Summary, snapshot: Option<&str>, log: Option<u64>, is_dry_run: bool) -> String {
    let c = &s.counts;
    let mut text = String::new();
    for skipped in &s.skipped {
        text.push_str(&format!("skipped {}: {}\n", skipped.path, skipped.why));
    }
    let mut rows = vec![
        vec![
            "revision".to_owned(),
            format!(
                "{} until {}{}{}",
                s.revision,
                when::utc(s.expires),
                if s.end_wanted.is_some() {
                    ", when the signing key's certificate ends"
                } else {
                    ""
                },
                if is_dry_run { " (dry run: nothing is stored)" } else { visibility(s.is_visible) }
            ),
        ],
        vec![
            "files".to_owned(),
            format!(
                "{} ({} directories, {} symbolic links, {} others)",
                c.files, c.directories, c.symlinks, c.others
            ),
        ],
        vec!["bytes".to_owned(), format!("{} ({})", c.bytes, output::bytes(c.bytes))],
        vec!["read".to_owned(), format!("{} files, {}", s.files_read, output::bytes(s.bytes_read))],
        vec![
            "new".to_owned(),
            format!("{} in {} frames", output::bytes(s.new_bytes), s.new_frames),
        ],
        vec![
            "shared".to_owned(),
            format!("{} in {} frames", output::bytes(s.shared_bytes), s.shared_frames),
        ],
    ];
    let log = log.map_or_else(
        || "none; `vouch certify` makes a key for a log of revisions".to_owned(),
        |entries| format!("{entries} entries"),
    );
    rows.push(vec!["log".to_owned(), log]);
    if let Some(snapshot) = snapshot {
        rows.push(vec!["snapshot".to_owned(), snapshot.to_owned()]);
    }
    if s.adopted_bytes > 0 {
        rows.push(vec![
            "taken over".to_owned(),
            format!("{} from an interrupted run", output::bytes(s.adopted_bytes)),
        ]);
    }
    if s.deleted_files > 0 {
        rows.push(vec!["fewer".to_owned(), format!("{} files than before", s.deleted_files)]);
    }
    if let Some(example) = &s.private_example {
        rows.push(vec![
            "private".to_owned(),
            format!(
                "{} files that other users cannot read here, such as {example}",
                s.private_count
            ),
        ]);
    }
    if s.skipped_count > 0 {
        rows.push(vec!["skipped".to_owned(), s.skipped_count.to_string()]);
    }
    rows.push(vec!["seconds".to_owned(), format!("{:.2}", s.elapsed.as_secs_f64())]);
    rows.push(vec!["name".to_owned(), s.name.to_string()]);
    text.push_str(&output::table(&rows, &[]));
    text
}

#[derive(Serialize)]
struct Report {
    name: String,
    hostid: String,
    revision: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waits_for_witnesses: bool,
    expires: String,
    files: u64,
    directories: u64,
    symlinks: u64,
    others: u64,
    bytes: u64,
    files_read: u64,
    bytes_read: u64,
    reread: u64,
    new_frames: u64,
    new_bytes: u64,
    shared_frames: u64,
    shared_bytes: u64,
    adopted_bytes: u64,
    skipped: Vec<Skipped>,
    skipped_count: u64,
    private_files: u64,
    deleted_files: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
}

#[derive(Serialize)]
struct Skipped {
    path: String,
    why: String,
}

impl Report {
    fn new(s: &Summary, snapshot: Option<&str>) -> Report {
        Report {
            name: s.name.to_string(),
            hostid: s.name.hostid().to_string(),
            revision: s.revision,
            waits_for_witnesses: !s.is_visible,
            expires: when::utc(s.expires),
            files: s.counts.files,
            directories: s.counts.directories,
            symlinks: s.counts.symlinks,
            others: s.counts.others,
            bytes: s.counts.bytes,
            files_read: s.files_read,
            bytes_read: s.bytes_read,
            reread: s.reread,
            new_frames: s.new_frames,
            new_bytes: s.new_bytes,
            shared_frames: s.shared_frames,
            shared_bytes: s.shared_bytes,
            adopted_bytes: s.adopted_bytes,
            skipped: s
                .skipped
                .iter()
                .map(|skipped| Skipped { path: skipped.path.clone(), why: skipped.why.clone() })
                .collect(),
            skipped_count: s.skipped_count,
            private_files: s.private_count,
            deleted_files: s.deleted_files,
            dry_run: false,
            seconds: s.elapsed.as_secs_f64(),
            log_entries: None,
            snapshot: snapshot.map(str::to_owned),
        }
    }
}
