use std::ffi::OsString;
use std::io::{self, Write};

use serde::Serialize;
use vouch_tree::{Content, FileType, Inode};
use vouch_tree_client::Position;

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Outcome, forgive_closed_pipe};
use crate::revision_options::RevisionArgs;
use crate::tree_path::{OpenTree, TreePath};
use crate::{output, when};
use vouch_daemon::printable::{JsonName, printable};

/// List directories of a published tree.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch ls @pub.example.org,HOSTID\n  vouch ls -l @pub.example.org,HOSTID/bin\n  \
                  vouch ls -R --json @pub.example.org,HOSTID     one JSON object a line\n\n\
                  Of an opaque directory no names are listed, as in a mount that nobody has used yet; those that are given are shown.\n\
                  Names are printed as they are, with control characters and what is not UTF-8 as \\xNN."
)]
pub(crate) struct Args {
    /// Tree and path.
    #[arg(value_name = "NAME[/PATH]", required = true)]
    paths: Vec<OsString>,
    /// Show names that begin with a dot too, which is the default.
    #[arg(long = "all", short = 'a')]
    _all: bool,
    /// Show mode, links, owner, size and time (UTC) too.
    #[arg(long, short)]
    long: bool,
    /// List directories below too.
    #[arg(long, short = 'R')]
    recursive: bool,
    /// List the directory itself instead of its contents.
    #[arg(long, short)]
    directory: bool,
    #[command(flatten)]
    revision: RevisionArgs,
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let paths = args.paths.iter().map(|path| TreePath::parse(path)).collect::<Outcome<Vec<_>>>()?;
    forgive_closed_pipe(client_options::block_on(list_all(&args, &paths)))
}

async fn list_all(args: &Args, paths: &[TreePath]) -> Outcome {
    let client = args.client.client().await?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    for path in paths {
        let mut open = OpenTree::open(&client, &path.name, &args.client, &args.revision).await?;
        let (base, inode) = if args.directory {
            (path.path.clone(), open.find(&path.path).await?)
        } else {
            open.follow(&path.path).await?
        };
        if args.directory || !inode.is_directory() {
            let shown = if path.path.is_empty() { &b"."[..] } else { &path.path };
            print(args, &mut out, &[(shown.to_vec(), inode)]).at("standard output")?;
        } else {
            list(args, &mut open, &mut out, &base, inode).await?;
        }
    }
    out.flush().at("standard output")
}

/// The list of directories is on the heap, since a tree may be deeper than the stack. If replicas
/// drop the revision, listing continues in the next one after the last name.
async fn list(
    args: &Args,
    open: &mut OpenTree,
    out: &mut impl Write,
    base: &[u8],
    top: Inode,
) -> Outcome {
    let mut waiting = vec![(Vec::new(), top, open.revision.order())];
    while let Some((prefix, mut dir, mut revision)) = waiting.pop() {
        if args.recursive && !args.json && !prefix.is_empty() {
            writeln!(out, "\n{}:", printable(&prefix)).at("standard output")?;
        }
        let mut below = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            if matches!(dir.content, Content::Directory { opaque: true, .. }) {
                out.flush().at("standard output")?;
                let shown =
                    below_base(open.tree.name().to_string().as_bytes(), &below_base(base, &prefix));
                // The reader of standard error may be gone.
                let _ = writeln!(
                    io::stderr(),
                    "{} is opaque: its names are hidden; give a name in it",
                    printable(&shown)
                );
                break;
            }
            let position = last.as_ref().map_or(Position::Start, |name| Position::After(name));
            let page = match open.tree.list(&dir, position).await {
                Err(error) if revision < open.revision.order() || open.moves_on(&error).await => {
                    dir = open.follow_inside(&below_base(base, &prefix)).await?.1;
                    revision = open.revision.order();
                    continue;
                }
                page => page?,
            };
            let mut rows = Vec::with_capacity(page.entries().len());
            for entry in page.entries() {
                let name = entry.name.as_bytes();
                let path = if prefix.is_empty() {
                    name.to_vec()
                } else {
                    [&prefix, &b"/"[..], name].concat()
                };
                if args.recursive && entry.inode.is_directory() {
                    below.push((path.clone(), entry.inode.clone(), revision));
                }
                rows.push((if args.json { path } else { name.to_vec() }, entry.inode.clone()));
            }
            print(args, out, &rows).at("standard output")?;
            match page.entries().last() {
                Some(entry) if !page.last => last = Some(entry.name.as_bytes().to_vec()),
                _ => break,
            }
        }
        waiting.extend(below.into_iter().rev());
    }
    Ok(())
}

fn below_base(base: &[u8], path: &[u8]) -> Vec<u8> {
    [base, path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'/')
}

fn print(args: &Args, out: &mut impl Write, rows: &[(Vec<u8>, Inode)]) -> io::Result<()> {
    if args.json {
        for (path, inode) in rows {
            serde_json::to_writer(&mut *out, &FileRow::new(path, inode))?;
            out.write_all(b"\n")?;
        }
    } else if args.long {
        let cells: Vec<_> = rows.iter().map(|(name, inode)| long_row(name, inode)).collect();
        out.write_all(output::table(&cells, &[1, 2, 3, 4]).as_bytes())?;
    } else {
        for (name, _) in rows {
            writeln!(out, "{}", printable(name))?;
        }
    }
    Ok(())
}

fn long_row(name: &[u8], inode: &Inode) -> Vec<String> {
    let size = match &inode.content {
        Content::CharDevice(n) | Content::BlockDevice(n) => format!("{}, {}", n.major, n.minor),
        _ => inode.size().to_string(),
    };
    let mut shown = printable(name);
    if let Content::Symlink(target) = &inode.content {
        shown = format!("{shown} -> {}", printable(target));
    }
    let attributed = if inode.xattrs.size > 0 { "+" } else { "" };
    vec![
        format!("{}{attributed}", mode_text(inode)),
        inode.nlink.to_string(),
        inode.uid.to_string(),
        inode.gid.to_string(),
        size,
        when::minutes(inode.mtime.s),
        shown,
    ]
}

fn mode_text(inode: &Inode) -> String {
    let kind = match inode.file_type() {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
    };
    let bits = inode.mode;
    let mut text = String::from(kind);
    for (shift, special, with, without) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let rwx = bits >> shift;
        text.push(if rwx & 4 != 0 { 'r' } else { '-' });
        text.push(if rwx & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & special != 0, rwx & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[derive(Serialize)]
pub(super) struct FileRow {
    #[serde(flatten)]
    path: JsonName,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime_s: i64,
    mtime_ns: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<JsonName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    xattrs: bool,
}

impl FileRow {
    pub(super) fn new(path: &[u8], inode: &Inode) -> FileRow {
        let (target, device) = match &inode.content {
            Content::Symlink(target) => (Some(JsonName::new(target)), None),
            Content::CharDevice(n) | Content::BlockDevice(n) => {
                (None, Some(format!("{}:{}", n.major, n.minor)))
            }
            _ => (None, None),
        };
        FileRow {
            path: JsonName::new(path),
            kind: type_word(inode.file_type()),
            mode: format!("{:04o}", inode.mode),
            links: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size(),
            mtime_s: inode.mtime.s,
            mtime_ns: inode.mtime.ns,
            target,
            device,
            xattrs: inode.xattrs.size > 0,
        }
    }
}

impl std::fmt::Display for FileRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, mode {}, owner {}:{}, {} bytes",
            self.kind, self.mode, self.uid, self.gid, self.size
        )?;
        match &self.target {
            Some(target) => write!(f, ", target {target}"),
            None => Ok(()),
        }
    }
}

const fn type_word(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
    }
}
