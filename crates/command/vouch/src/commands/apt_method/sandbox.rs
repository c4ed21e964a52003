//! Methods run as root and give up its rights, as apt's own ones do.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::Path;

use nix::unistd::{User, setgroups, setresgid, setresuid};

use super::message::Message;
use crate::client_options::ClientArgs;
use crate::exit::{At as _, Failure, Outcome};

/// Becomes the user of `APT::Sandbox::User`, if this process runs as root and apt names one.
pub(super) fn enter(configuration: &Message, client: &mut ClientArgs) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let items = configuration.all("Config-Item").filter_map(|item| item.split_once('='));
    let named = items.filter(|(name, _)| name.eq_ignore_ascii_case("APT::Sandbox::User"));
    let Some(name) = named.map(|(_, value)| value).last().filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let user = User::from_name(name).map_err(std::io::Error::from).at(name)?.ok_or_else(|| {
        Failure::input(name, "no such user; apt names it in APT::Sandbox::User")
            .cure("create this user, or set APT::Sandbox::User")
    })?;
    // The directory of root's other commands is closed to this user.
    if let Some(state) = client.use_state_by_default(Path::new(STATE)) {
        create_private(state).at(state.display())?;
        chown(state, Some(user.uid.as_raw()), Some(user.gid.as_raw())).at(state.display())?;
    }
    rustix::thread::set_no_new_privs(true).map_err(std::io::Error::from).at("sandbox")?;
    setgroups(&[user.gid])
        .and_then(|()| setresgid(user.gid, user.gid, user.gid))
        .and_then(|()| setresuid(user.uid, user.uid, user.uid))
        .map_err(std::io::Error::from)
        .at(name)
}

fn create_private(directory: &Path) -> std::io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // chown(2) follows a symbolic link, and would give its target to the user.
            let is_directory = fs::symlink_metadata(directory)?.is_dir();
            is_directory.then_some(()).ok_or_else(|| std::io::ErrorKind::NotADirectory.into())
        }
        created => created,
    }
}

/// Remembers the newest revision seen of each tree.
const STATE: &str = "/var/lib/vouch-apt";
