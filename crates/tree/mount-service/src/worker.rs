use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tokio::sync::mpsc;
use vouch_daemon::failure::{At as _, Failure, Outcome};
use vouch_daemon::log_output;
use vouch_tree::TreeName;
use vouch_tree_client::{Client, Tree};
use vouch_tree_mount::{
    MountHandle, MountImage, MountOptions, Mounted, Predecessor, take_over_namespace,
    take_over_tree,
};

use crate::link::{Link, Message, MessageKind};
use crate::plan::{MountPlan, MountSource};
use crate::role::{Role, role_of};
use crate::serve::Companions;
use crate::supervisor::{EXCLUSIVE, KILLED};

pub(crate) enum Task {
    Start(Arc<File>),
    TakeOver(OwnedFd, Arc<File>),
}

/// Binds this process to its supervisor, and takes its first message.
pub(crate) fn begin(is_detached: bool) -> Outcome<(Arc<Link>, Task)> {
    // Without a supervisor nobody could continue the mount.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(io::Error::from)
        .at("prctl(2)")?;
    let link = Link::from_standard_input().at("standard input")?;
    let wrong = || Failure::usage("--role", "is for the program's own use");
    let Some(Message { kind, descriptors, .. }) = link.receive().at("standard input")? else {
        return Err(wrong());
    };
    let mut descriptors = descriptors.into_iter();
    let task = match (kind, descriptors.next(), descriptors.next()) {
        (MessageKind::Start, Some(journal), None) => Task::Start(Arc::new(journal.into())),
        (MessageKind::Prepare, Some(device), Some(journal)) => {
            if is_detached {
                log_output::leave_standard_error();
            }
            Task::TakeOver(device, Arc::new(journal.into()))
        }
        _ => return Err(wrong()),
    };
    Ok((Arc::new(link), task))
}

pub(crate) struct Orders {
    link: Arc<Link>,
    orders: mpsc::UnboundedReceiver<Message>,
}

impl Orders {
    pub(crate) fn of(link: Arc<Link>) -> io::Result<Self> {
        let (sender, orders) = mpsc::unbounded_channel();
        let receiving = link.clone();
        std::thread::Builder::new().name("supervisor".into()).spawn(move || {
            while let Ok(Some(message)) = receiving.receive() {
                if sender.send(message).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { link, orders })
    }

    pub(crate) fn report_mounted(&self, mounted: &Mounted) -> Outcome {
        let device = mounted.device().at("/dev/fuse")?;
        self.link
            .send(
                MessageKind::Mounted,
                mounted.device_number().unwrap_or_default(),
                &[device.as_fd()],
            )
            .at("the supervisor")
    }

    /// `end` runs before this process leaves the mount to another one.
    pub(crate) async fn execute_orders(&mut self, mounted: &MountHandle, end: impl Fn()) {
        loop {
            let message = self.orders.recv().await;
            let (kind, descriptor) = message
                .map(|message| (message.kind, message.descriptors.into_iter().next()))
                .unzip();
            match kind {
                Some(MessageKind::Stop) => {
                    let answered = match mounted.stop_serving().await {
                        Ok(()) => self.link.send(MessageKind::Stopped, "", &[]),
                        Err(error) => self.link.send(MessageKind::Refused, &error.to_string(), &[]),
                    };
                    if let Err(error) = answered {
                        tracing::warn!("the supervisor: {error}");
                    }
                }
                Some(MessageKind::Refresh) => {
                    let (mounted, stream) = (mounted.clone(), descriptor.flatten());
                    tokio::spawn(async move { refresh(&mounted, stream).await });
                }
                Some(MessageKind::Resume) => mounted.resume(),
                Some(MessageKind::End) => {
                    end();
                    // Nothing is unmounted: the mount goes on.
                    std::process::exit(0);
                }
                Some(MessageKind::Unmount) => return,
                Some(_) => {}
                // The supervisor has ended, and this process is about to be killed.
                None => std::future::pending().await,
            }
        }
    }
}

async fn refresh(mounted: &MountHandle, stream: Option<OwnedFd>) {
    let answer = match mounted.refresh().await {
        Ok(shown) => {
            let trees: Vec<String> = shown
                .iter()
                .map(|(tree, revision)| format!("{tree} revision {revision}"))
                .collect();
            format!("refreshed {}\n", trees.join(", "))
        }
        Err(error) => format!("refused {}\n", error.to_string().replace('\n', " ")),
    };
    if let Some(stream) = stream {
        let _ = UnixStream::from(stream).write_all(answer.as_bytes());
    }
}

enum Opened {
    Tree(Arc<Tree>),
    Namespace(HashMap<String, Arc<Tree>>),
}

pub(crate) async fn take_over<S: MountSource>(
    plan: &MountPlan,
    source: &S,
    (device, journal): (OwnedFd, Arc<File>),
    link: &Link,
    companions: &mut Companions,
) -> Result<(Mounted, Arc<Client>), S::Error> {
    // A trail has one writer, and the client reports to it: both begin when the other process has
    // ended.
    let is_audited = plan.trail.is_some();
    let early =
        if is_audited { None } else { Some(open(plan, source, &journal, companions).await?) };
    link.send(MessageKind::Prepared, if is_audited { EXCLUSIVE } else { "" }, &[])
        .at("the supervisor")?;
    let was_killed = match link.receive().at("the supervisor")? {
        Some(message) if message.kind == MessageKind::TakeOver => message.text == KILLED,
        _ => return Err(Failure::interrupted().into()),
    };
    companions.begin::<S::Error>(plan)?;
    let (client, opened) = match early {
        Some(opened) => opened,
        None => open(plan, source, &journal, companions).await?,
    };
    let options = MountOptions {
        observer: companions.observer(),
        journal: Some(journal.clone()),
        ..plan.options.clone()
    };
    let image = MountImage::read(&journal).map_err(|error| journal_failure(&error))?;
    let predecessor = Predecessor { image, device, was_killed };
    let taken = match opened {
        Opened::Tree(tree) => take_over_tree(options, &tree, predecessor)?,
        Opened::Namespace(trees) => take_over_namespace(
            options,
            client.clone(),
            plan.namespace.clone(),
            &trees,
            predecessor,
        )?,
    };
    link.send(MessageKind::Ready, "", &[]).at("the supervisor")?;
    match link.receive().at("the supervisor")? {
        Some(message) if message.kind == MessageKind::Begin => {}
        _ => return Err(Failure::interrupted().into()),
    }
    let mounted = taken.begin()?;
    link.send(MessageKind::Serving, "", &[]).at("the supervisor")?;
    Ok((mounted, client))
}

async fn open<S: MountSource>(
    plan: &MountPlan,
    source: &S,
    journal: &File,
    companions: &Companions,
) -> Result<(Arc<Client>, Opened), S::Error> {
    // Checked before the other process stops.
    let image = MountImage::read(journal).map_err(|error| journal_failure(&error))?;
    let client = source.client(companions.fault_observer()).await?;
    let opened = match &plan.tree {
        Some(tree) => Opened::Tree(client.open(&tree.name, &tree.options).await?),
        None => {
            let mut trees = HashMap::new();
            for label in image.trees() {
                let Ok(name) = label.parse::<TreeName>() else { continue };
                let mut options = plan.tree_options(&name);
                options.refuse_forwarding = true;
                match client.open(&name, &options).await {
                    Ok(tree) => drop(trees.insert(label.to_owned(), tree)),
                    Err(error) => {
                        tracing::warn!(tree = label, "its open files fail from now on: {error}")
                    }
                }
            }
            Opened::Namespace(trees)
        }
    };
    Ok((client, opened))
}

fn journal_failure(error: &vouch_tree_mount::JournalError) -> Failure {
    Failure::io("taking the mount over", io::Error::other(error.to_string()))
}

/// Tells the supervisor why this process ends, if it is a worker.
pub fn report_failure(arguments: &[OsString], failure: &impl std::fmt::Display) {
    if role_of(arguments) == Some(Role::Worker)
        && let Ok(link) = Link::from_standard_input()
    {
        report(&link, failure);
    }
}

pub(crate) fn report(link: &Link, failure: &impl std::fmt::Display) {
    let _ = link.send(MessageKind::Refused, &failure.to_string(), &[]);
}
