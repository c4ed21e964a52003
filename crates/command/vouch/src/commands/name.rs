use std::path::Path;

use serde::Serialize;
use vouch_tree::{HostId, TreeName};
use vouch_tree_store::Database;

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::{config, key_directory as keys, output};

/// Print or parse a self-certifying name.
///
/// A name is @HOST[:PORT],HOSTID. HOST is the first host to ask; HOSTID is a hash of the root key
/// and authenticates the tree. A client needs nothing else: no certificate authority, no account on
/// the server.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch name keys --location pub.example.org      name of the tree whose keys are in keys/\n  \
                  vouch name /srv/db                              HOSTID of a database\n  \
                  vouch name @pub.example.org,HOSTID --json       take a name apart, or learn what is wrong with it"
)]
pub(crate) struct Args {
    /// A key directory, a database, a key or certificate file, a name, a short name of the
    /// configuration, or a HOSTID.
    #[arg(value_name = "WHAT")]
    what: String,
    /// HOST[:PORT] of the printed name.
    #[arg(long, value_name = "HOST[:PORT]")]
    location: Option<String>,
    /// Print the parts as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let configured = config::loaded().tree(&args.what).filter(|_| !Path::new(&args.what).exists());
    let (hostid, named) = if let Some(tree) = configured {
        (*tree.name.hostid(), Some(tree.name.clone()))
    } else if args.what.starts_with('@') {
        let name: TreeName = args.what.parse().at("name")?;
        (*name.hostid(), Some(name))
    } else {
        (of_path_or_text(&args.what)?, None)
    };
    let name = match &args.location {
        Some(location) => Some(TreeName::new(location, hostid).at("--location")?),
        None => named,
    };
    if args.json {
        return output::json(&Report {
            hostid: hostid.to_string(),
            host: name.as_ref().map(|name| name.host().to_owned()),
            port: name.as_ref().map(TreeName::port),
            name: name.as_ref().map(TreeName::to_string),
        });
    }
    output::text(&match name {
        Some(name) => format!("{name}\n"),
        None => format!("{hostid}\n"),
    })
}

fn of_path_or_text(what: &str) -> Outcome<HostId> {
    let path = Path::new(what);
    if vouch_tree_store::is_bucket_address(path) {
        return Ok(Database::open_read(path).at(what)?.hostid());
    }
    if path.is_dir() {
        if Database::exists(path) {
            return Ok(Database::open_read(path).at(what)?.hostid());
        }
        for (file, read) in [
            (keys::ROOT_PUBLIC, of_file as fn(&Path) -> Outcome<HostId>),
            (keys::SIGNING_CERT, of_file),
        ] {
            if path.join(file).exists() {
                return read(&path.join(file));
            }
        }
        return Err(Failure::input(what, "is neither a key directory nor a database")
            .cure("look for root.pub, signing.cert or manifest in it"));
    }
    if path.is_file() {
        return of_file(path);
    }
    what.parse().map_err(|_| {
        Failure::not_found(what, "no such file or directory, and not a name or HOSTID")
            .cure("a name looks like @HOST[:PORT],HOSTID")
    })
}

fn of_file(path: &Path) -> Outcome<HostId> {
    let bytes = keys::read_small(path)?;
    if let Some(key) = keys::parse_public(&bytes) {
        return Ok(key.hostid());
    }
    let cert =
        keys::read_cert(path).map_err(|failure| failure.cure("give root.pub or signing.cert"))?;
    Ok(cert.root.hostid())
}

#[derive(Serialize)]
struct Report {
    hostid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
}
