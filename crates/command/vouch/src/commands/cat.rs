use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use vouch_tree::{Blob, Content};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Failure, Outcome, forgive_closed_pipe};
use crate::revision_options::RevisionArgs;
use crate::tree_path::{OpenTree, TreePath};
use vouch_daemon::printable::printable;

/// Write files of a published tree to standard output.
///
/// Every byte is verified before it is written. After a failure, the output is a correct beginning
/// of the file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch cat @pub.example.org,HOSTID/etc/motd\n  vouch cat --revision 12 @pub.example.org,HOSTID/list | sort"
)]
pub(crate) struct Args {
    /// Tree and path of each file.
    #[arg(value_name = "NAME/PATH", required = true)]
    paths: Vec<OsString>,
    #[command(flatten)]
    revision: RevisionArgs,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let paths = args.paths.iter().map(|path| TreePath::parse(path)).collect::<Outcome<Vec<_>>>()?;
    forgive_closed_pipe(client_options::block_on(write_all(&args, &paths)))
}

async fn write_all(args: &Args, paths: &[TreePath]) -> Outcome {
    let client = args.client.client().await?;
    // Without the buffer of lines, which splits binary data.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned().at("standard output")?);
    for path in paths {
        let mut open = OpenTree::open(&client, &path.name, &args.client, &args.revision).await?;
        let (mut found, mut blob) = content(&mut open, &path.path).await?;
        let mut file = open.tree.open_file(blob.clone());
        let mut offset = 0;
        while offset < blob.size {
            let bytes = match file.read(offset, STEP).await {
                Err(error) if open.moves_on(&error).await => {
                    let (newer_found, newer) = content(&mut open, &path.path).await?;
                    if offset > 0 && newer != blob {
                        return Err(Failure::input(
                            printable(&found),
                            "changed during the read, and no replica has the old revision",
                        ));
                    }
                    (found, blob) = (newer_found, newer);
                    file = open.tree.open_file(blob.clone());
                    continue;
                }
                bytes => bytes?,
            };
            if bytes.is_empty() {
                return Err(Failure::input(printable(&found), "ends before its size"));
            }
            out.write_all(&bytes).at("standard output")?;
            offset += bytes.len() as u64;
        }
    }
    out.flush().at("standard output")?;
    // The next command finds the data of this one.
    client.flush().await;
    Ok(())
}

async fn content(open: &mut OpenTree, path: &[u8]) -> Outcome<(Vec<u8>, Blob)> {
    let (found, inode) = open.follow(path).await?;
    match inode.content {
        Content::Regular { blob, .. } => Ok((found, blob)),
        Content::Directory { .. } => {
            let shown = format!("{}/{}", open.tree.name(), printable(&found));
            Err(Failure::input(shown, "is a directory")
                .cure("give a file in it; `vouch ls` lists it"))
        }
        _ => Err(Failure::input(printable(&found), "is not a regular file")),
    }
}

/// One leaf is not copied. The client reads ahead by itself.
const STEP: usize = vouch_tree::LEAF_LEN_MAX;
