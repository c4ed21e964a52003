//! The interface of apt's methods: messages on standard input and output, as apt's document
//! "APT Method Interface" describes them.

mod address;
mod download;
mod message;
mod sandbox;

use std::collections::HashMap;
use std::io::{self, BufReader, Write as _};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tokio::sync::{Mutex, OnceCell};
use vouch_tree_client::Client;

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Code, Failure, Outcome};
use crate::tree_path::OpenTree;
use address::{Address, Origin};
use message::{Message, Reader};

/// Download packages for apt from published trees.
///
/// apt runs this command for sources whose address is vouch://@HOST,HOSTID/PATH. Each file is
/// verified while it is read. A run of apt reads one revision of a tree.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example of /etc/apt/sources.list.d/site.list:\n  deb [trusted=yes] vouch://@pub.example.org,HOSTID/debian stable main\n\nOptions come from the table [apt-method] of vouch.toml."
)]
pub(crate) struct Args {
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(mut args: Args, _: &Global) -> Outcome {
    let mut input = Reader::new(BufReader::new(io::stdin()));
    send(&Message::new("100 Capabilities").fields(&[
        ("Version", "1.2"),
        ("Pipeline", "true"),
        ("Send-Config", "true"),
        ("Send-URI-Encoded", "true"),
    ]))?;
    let configuration = match input.next().at("standard input")? {
        None => return Ok(()),
        Some(message) if message.code() == CONFIGURATION => message,
        Some(_) => {
            return Err(Failure::input("standard input", "no 601 Configuration comes first")
                .cure("apt runs this command; give its address in sources.list"));
        }
    };
    // apt writes these files itself, so that a cache of the tree would keep them twice.
    args.client.use_no_cache_by_default();
    if let Err(failure) = sandbox::enter(&configuration, &mut args.client) {
        send(&Message::new("401 General Failure").fields(&[("Message", &failure.to_string())]))?;
        return Err(failure);
    }
    let (requests, receiver) = sync_channel(PIPELINE_LEN_MAX);
    std::thread::spawn(move || {
        while let Ok(Some(message)) = input.next() {
            if message.code() == ACQUIRE && requests.send(message).is_err() {
                break;
            }
        }
    });
    client_options::block_on(async move {
        let method = Arc::new(Method {
            client: args.client.client().await?,
            args: args.client,
            trees: Mutex::default(),
        });
        let mut running = tokio::task::JoinSet::new();
        while let Ok(request) = tokio::task::block_in_place(|| receiver.recv()) {
            let method = Arc::clone(&method);
            running.spawn(async move { method.answer(&request).await });
            if running.len() >= PIPELINE_LEN_MAX {
                running.join_next().await;
            }
        }
        running.join_all().await.into_iter().collect()
    })
}

struct Method {
    client: Arc<Client>,
    args: ClientArgs,
    /// Each is opened once, so that the files of a run are of one revision.
    trees: Mutex<HashMap<Origin, Arc<OnceCell<OpenTree>>>>,
}

impl Method {
    async fn answer(&self, request: &Message) -> Outcome {
        let Err(failure) = self.acquire(request).await else { return Ok(()) };
        let reason = match failure.code() {
            Code::NotFound => "HttpError404",
            Code::Unreachable => "Timeout",
            _ => "",
        };
        let uri = request.field("URI").unwrap_or_default();
        let message = failure.to_string();
        let mut fields = vec![("URI", uri), ("Message", &message)];
        if !reason.is_empty() {
            fields.push(("FailReason", reason));
        }
        if failure.code() == Code::Unreachable {
            fields.push(("Transient-Failure", "true"));
        }
        send(&Message::new("400 URI Failure").fields(&fields))
    }

    async fn acquire(&self, request: &Message) -> Outcome {
        let address = Address::parse(request.field("URI").unwrap_or_default())?;
        let tree = self.tree(&address.origin).await?;
        download::download(tree, &address, request).await
    }

    async fn tree(&self, origin: &Origin) -> Outcome<OpenTree> {
        let cell = Arc::clone(self.trees.lock().await.entry(origin.clone()).or_default());
        let open = || OpenTree::open(&self.client, &origin.name, &self.args, &origin.revision);
        cell.get_or_try_init(open).await.cloned()
    }
}

/// Other threads send too: a message is written at once.
fn send(message: &Message) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(message.to_string().as_bytes()).at("standard output")?;
    out.flush().at("standard output")
}

const CONFIGURATION: u16 = 601;
const ACQUIRE: u16 = 600;

/// That of apt, Acquire::Max-Pipeline-Depth.
const PIPELINE_LEN_MAX: usize = 10;
