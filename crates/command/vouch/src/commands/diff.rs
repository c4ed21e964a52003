use std::ffi::OsString;
use std::io::{self, Write as _};

use serde::Serialize;
use vouch_tree_client::{Change, ChangeKind, Diff};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Code, Failure, Outcome, forgive_closed_pipe};
use crate::revision_options::RevisionArgs;
use crate::tree_path::{OpenTree, TreePath};
use vouch_daemon::printable::{JsonName, printable};

/// Show the differences between two revisions of a tree, or between two trees.
///
/// Only differing pages are fetched, so the cost depends on the change, not on the tree. Exits with
/// 1 if there are differences, like diff(1).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch diff @pub.example.org,HOSTID                    the newest revision against the one before\n  \
                  vouch diff @pub.example.org,HOSTID --from 7 --to 9\n  vouch diff @a.example,HOSTID @b.example,HOSTID       two trees\n\n\
                  A line is `+ path` (added), `- path` (removed) or `~ path  fields` (changed: type, content, mode, owner, mtime, xattrs, links)."
)]
pub(crate) struct Args {
    /// The tree, or the older of two trees.
    #[arg(value_name = "NAME")]
    old: OsString,
    /// The newer of two trees.
    #[arg(value_name = "OTHER")]
    new: Option<OsString>,
    /// Older revision; the default is the one before --to.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Newer revision; the default is the newest.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let old = TreePath::parse(&args.old)?;
    let new = args.new.as_deref().map(TreePath::parse).transpose()?;
    forgive_closed_pipe(client_options::block_on(compare(&args, &old, new.as_ref())))
}

async fn compare(args: &Args, old: &TreePath, new: Option<&TreePath>) -> Outcome {
    let client = args.client.client().await?;
    let new = OpenTree::open(
        &client,
        &new.unwrap_or(old).name,
        &args.client,
        &RevisionArgs { revision: args.to, tag: None },
    )
    .await?;
    let old = match (args.new.is_some(), args.from) {
        (true, from) => {
            OpenTree::open(
                &client,
                &old.name,
                &args.client,
                &RevisionArgs { revision: from, tag: None },
            )
            .await?
        }
        (false, from) => {
            let number = from.unwrap_or(new.revision.number() - 1);
            if number == 0 {
                return Err(Failure::not_found("the revision before 1", "there is none")
                    .cure("compare with another tree, or publish again"));
            }
            new.at(number).await?
        }
    };
    let mut changes = Diff::new((&old.tree, &old.revision), (&new.tree, &new.revision));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut any = false;
    while let Some(change) = changes.next().await {
        any = true;
        print(args, &mut out, &change?).at("standard output")?;
    }
    out.flush().at("standard output")?;
    if any { Err(Failure::silent(Code::Differs)) } else { Ok(()) }
}

fn print(args: &Args, out: &mut impl io::Write, change: &Change) -> io::Result<()> {
    let (sign, word, fields) = match &change.kind {
        ChangeKind::Added => ("+", "added", Vec::new()),
        ChangeKind::Removed => ("-", "removed", Vec::new()),
        ChangeKind::Changed(fields) => ("~", "changed", fields.names()),
    };
    if args.json {
        let row = Row {
            path: JsonName::new(&change.path),
            change: word,
            fields,
            old_size: change.old.as_ref().map(vouch_tree::Inode::size),
            new_size: change.new.as_ref().map(vouch_tree::Inode::size),
        };
        serde_json::to_writer(&mut *out, &row)?;
        return out.write_all(b"\n");
    }
    let path = if change.path.is_empty() { ".".to_owned() } else { printable(&change.path) };
    if fields.is_empty() {
        writeln!(out, "{sign} {path}")
    } else {
        writeln!(out, "{sign} {path}  {}", fields.join(" "))
    }
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    path: JsonName,
    change: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_size: Option<u64>,
}
