//! Writes a file of a published tree to standard output.
//!
//! `cargo run -p vouch-tree-client --example cat -- '@pub.example.org,HOSTID' docs/readme.txt`

use std::error::Error;
use std::io::Write as _;

use vouch_tree::Content;
use vouch_tree_client::{Client, ClientOptions, ResolvedPath, TreeOptions};

const READ_LEN: usize = 1 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(name), Some(path)) = (args.next(), args.next()) else {
        return Err("usage: cat NAME PATH".into());
    };
    let client = Client::new(ClientOptions::default())?;
    let tree = client.open(&name.parse()?, &TreeOptions::default()).await?;
    let inode = match tree.resolve_path(tree.revision()?.root(), path.as_bytes()).await? {
        ResolvedPath::Inside { inode, .. } => inode,
        ResolvedPath::Outside { target, .. } => {
            return Err(format!(
                "the path leads out of the tree: {}",
                String::from_utf8_lossy(&target)
            )
            .into());
        }
    };
    let Content::Regular { blob, .. } = inode.content else {
        return Err("not a regular file".into());
    };
    let (file, mut out, mut offset) = (tree.open_file(blob), std::io::stdout().lock(), 0);
    loop {
        let bytes = file.read(offset, READ_LEN).await?;
        if bytes.is_empty() {
            return Ok(());
        }
        out.write_all(&bytes)?;
        offset += bytes.len() as u64;
    }
}
