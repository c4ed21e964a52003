//! A worker of a mount: serves, and does what its supervisor asks.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use tokio::sync::mpsc;
use vouch_tree::TreeName;
use vouch_tree_client::{Client, FaultObserver, Tree};
use vouch_tree_mount::{MountHandle, MountImage, MountOptions, Mounted, Observer, Predecessor, take_over_namespace, take_over_tree};

use super::audit::MountAudit;
use super::link::{Link, Message, Word};
use super::supervisor::{EXCLUSIVE, KILLED};
use super::{Args, mount_options, namespace_trees};
use crate::exit::{At as _, Cause, Failure, Outcome};
use crate::logging;
use crate::tree_path::TreePath;

/// What a supervisor asks of a new worker.
pub(super) enum Task {
    /// To mount.
    Start(Arc<File>),
    /// To continue the mount of another worker.
    TakeOver(OwnedFd, Arc<File>),
}

/// Binds this process to its supervisor, and takes its first message.
pub(super) fn begin(args: &Args) -> Outcome<(Arc<Link>, Task)> {
    // Without a supervisor nobody could continue the mount: it ends, and its users get errors.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(io::Error::from).at("prctl(2)")?;
    let link = Link::from_standard_input().at("standard input")?;
    let wrong = || Failure::usage("--role", "is for the program's own use");
    let Some(Message { word, descriptors, .. }) = link.receive().at("standard input")? else { return Err(wrong()) };
    let mut descriptors = descriptors.into_iter();
    let task = match (word, descriptors.next(), descriptors.next()) {
        (Word::Start, Some(journal), None) => Task::Start(Arc::new(journal.into())),
        (Word::Prepare, Some(device), Some(journal)) => {
            if args.detached {
                logging::leave_standard_error();
            }
            Task::TakeOver(device, Arc::new(journal.into()))
        }
        _ => return Err(wrong()),
    };
    Ok((Arc::new(link), task))
}

/// What the supervisor asks of a worker that serves.
pub(super) struct Orders {
    link: Arc<Link>,
    orders: mpsc::UnboundedReceiver<Word>,
}

impl Orders {
    pub(super) fn of(link: Arc<Link>) -> io::Result<Self> {
        let (sender, orders) = mpsc::unbounded_channel();
        let receiving = link.clone();
        std::thread::Builder::new().name("supervisor".into()).spawn(move || {
            while let Ok(Some(message)) = receiving.receive() {
                if sender.send(message.word).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { link, orders })
    }

    pub(super) fn report_mounted(&self, mounted: &Mounted) -> Outcome {
        let device = mounted.device().at("/dev/fuse")?;
        self.link.send(Word::Mounted, mounted.device_number().unwrap_or_default(), &[device.as_fd()]).at("the supervisor")
    }

    /// Obeys until the mount shall end. `end` runs before this process leaves the mount to another
    /// one.
    pub(super) async fn obey(&mut self, mounted: &MountHandle, end: impl Fn()) {
        loop {
            match self.orders.recv().await {
                Some(Word::Stop) => {
                    let answered = match mounted.stop_serving().await {
                        Ok(()) => self.link.send(Word::Stopped, "", &[]),
                        Err(error) => self.link.send(Word::Refused, &error.to_string(), &[]),
                    };
                    if let Err(error) = answered {
                        tracing::warn!("the supervisor: {error}");
                    }
                }
                Some(Word::Resume) => mounted.resume(),
                Some(Word::End) => {
                    end();
                    // Nothing is unmounted: the mount goes on.
                    std::process::exit(0);
                }
                Some(Word::Unmount) => return,
                Some(_) => {}
                // The supervisor has ended, and this process is about to be killed.
                None => std::future::pending().await,
            }
        }
    }
}

/// The trees of a mount, opened before the other process stops.
enum Opened {
    Tree(Arc<Tree>),
    Namespace(HashMap<String, Arc<Tree>>),
}

/// Takes the mount of another worker over.
pub(super) async fn take_over(
    args: &Args,
    tree: Option<&TreePath>,
    (device, journal): (OwnedFd, Arc<File>),
    link: &Link,
    begin_audit: impl FnOnce() -> Outcome<Option<Arc<MountAudit>>>,
) -> Outcome<(Mounted, Arc<Client>, Option<Arc<MountAudit>>)> {
    // A trail has one writer, and the client reports to it: both begin when the other process has
    // ended.
    let is_audited = args.audit.config().is_some();
    let early = if is_audited { None } else { Some(open(args, tree, &journal, None).await?) };
    link.send(Word::Prepared, if is_audited { EXCLUSIVE } else { "" }, &[]).at("the supervisor")?;
    let was_killed = match link.receive().at("the supervisor")? {
        Some(message) if message.word == Word::TakeOver => message.text == KILLED,
        _ => return Err(Failure::interrupted()),
    };
    let audit = begin_audit()?;
    let (client, opened) = match early {
        Some(opened) => opened,
        None => open(args, tree, &journal, audit.as_ref()).await?,
    };
    let observer = audit.clone().map(|audit| audit as Arc<dyn Observer>);
    let options = MountOptions { observer, journal: Some(journal.clone()), ..mount_options(args)? };
    let image = MountImage::read(&journal).map_err(|error| journal_failure(&error))?;
    let predecessor = Predecessor { image, device, was_killed };
    let taken = match opened {
        Opened::Tree(tree) => take_over_tree(options, &tree, predecessor)?,
        Opened::Namespace(trees) => take_over_namespace(options, client.clone(), namespace_trees(&args.client), &trees, predecessor)?,
    };
    link.send(Word::Ready, "", &[]).at("the supervisor")?;
    match link.receive().at("the supervisor")? {
        Some(message) if message.word == Word::Begin => {}
        _ => return Err(Failure::interrupted()),
    }
    let mounted = taken.begin()?;
    link.send(Word::Serving, "", &[]).at("the supervisor")?;
    Ok((mounted, client, audit))
}

async fn open(args: &Args, tree: Option<&TreePath>, journal: &File, audit: Option<&Arc<MountAudit>>) -> Outcome<(Arc<Client>, Opened)> {
    // Checked before the other process stops.
    let image = MountImage::read(journal).map_err(|error| journal_failure(&error))?;
    let client = args.client.client_before(audit.map(|audit| audit.clone() as Arc<dyn FaultObserver>)).await?;
    let opened = match tree {
        Some(tree) => Opened::Tree(client.open(&tree.name, &args.client.tree_options(&tree.name)).await?),
        None => {
            let mut trees = HashMap::new();
            for label in image.trees() {
                let Ok(name) = label.parse::<TreeName>() else { continue };
                let mut options = args.client.tree_options(&name);
                options.refuse_forwarding = true;
                match client.open(&name, &options).await {
                    Ok(tree) => drop(trees.insert(label.to_owned(), tree)),
                    Err(error) => tracing::warn!(tree = label, "its open files fail from now on: {error}"),
                }
            }
            Opened::Namespace(trees)
        }
    };
    Ok((client, opened))
}

fn journal_failure(error: &vouch_tree_mount::JournalError) -> Failure {
    Failure::new("taking the mount over", Cause::Io(io::Error::other(error.to_string())))
}

/// Reports a failure to the supervisor before this process ends with it.
pub(super) fn report(link: &Link, failure: &Failure) {
    let _ = link.send(Word::Refused, &failure.to_string(), &[]);
}
