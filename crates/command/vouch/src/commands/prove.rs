use std::ffi::OsString;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use vouch_tree::proof::Finding;
use vouch_xdr::{Writer, Xdr as _};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Outcome};
use crate::output;
use crate::revision_options::RevisionArgs;
use crate::tree_path::{OpenTree, TreePath};
use vouch_daemon::printable::printable;

/// Write a proof of what a signed revision holds at a path.
///
/// `vouch check-proof` checks the proof offline, with nothing but the tree's name. The proof of a
/// regular file contains its content, compressed as in the tree. The proof of an absent name
/// contains the page of the directory that would hold the name. Links inside the tree are not
/// followed: the proof of a symbolic link proves its target.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch prove @pub.example.org,HOSTID/bin/tool --out tool.proof\n  vouch prove @pub.example.org,HOSTID/bin/tool --revision 12 --out tool-12.proof\n  \
                  vouch check-proof @pub.example.org,HOSTID tool.proof"
)]
pub(crate) struct Args {
    /// Tree and path.
    #[arg(value_name = "NAME[/PATH]")]
    path: OsString,
    /// New file for the proof.
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    revision: RevisionArgs,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let path = TreePath::parse(&args.path)?;
    let above =
        args.out.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    output::require_new(&args.out)?;
    let mut file = tempfile::NamedTempFile::new_in(above).at(above.display())?;
    let line = client_options::block_on(write(&args, &path, file.as_file_mut()))?;
    file.as_file().sync_all().at(args.out.display())?;
    file.persist_noclobber(&args.out).map_err(|error| error.error).at(args.out.display())?;
    output::text(&line)
}

async fn write(args: &Args, path: &TreePath, file: &mut std::fs::File) -> Outcome<String> {
    let client = args.client.client().await?;
    let open = OpenTree::open(&client, &path.name, &args.client, &args.revision).await?;
    let mut proof = open.tree.prove(&open.revision, &path.path)?;
    let mut out = BufWriter::new(file);
    out.write_all(&proof.header().to_xdr()).at(args.out.display())?;
    while let Some(stored) = proof.next().await {
        let mut item = Writer::new();
        item.opaque(&stored?);
        out.write_all(item.as_bytes()).at(args.out.display())?;
    }
    out.flush().at(args.out.display())?;
    let found = match proof.finding() {
        Some(Finding::Present(_)) => "holds",
        _ => "lacks",
    };
    Ok(format!(
        "revision {} {found} /{}\n",
        open.revision.number(),
        printable(&proof.header().path)
    ))
}
