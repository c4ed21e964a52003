//! The processes of a mount, and their arguments.

use std::ffi::OsString;

/// What this process does for the mount. Users start supervisors; the others are started by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// Starts and replaces the worker.
    Supervisor,
    /// Continues a supervisor whose program was replaced.
    Successor,
    /// Serves.
    Worker,
    /// Serves without a supervisor.
    Alone,
}

/// The arguments of this command with another role. There are no options after `--`.
pub(super) fn arguments_with(role: Role, ours: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let name = match role {
        Role::Supervisor => "supervisor",
        Role::Successor => "successor",
        Role::Worker => "worker",
        Role::Alone => "alone",
    };
    let mut arguments: Vec<OsString> = ours.filter(|argument| !argument.to_string_lossy().starts_with(OPTION)).collect();
    let at = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    arguments.insert(at, format!("{OPTION}{name}").into());
    arguments
}

const OPTION: &str = "--role=";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_replaced_and_precedes_double_dash() {
        let with = |line: &str| arguments_with(Role::Worker, line.split(' ').map(OsString::from)).join(std::ffi::OsStr::new(" "));
        assert_eq!(with("mount NAME DIR"), "mount NAME DIR --role=worker");
        assert_eq!(with("mount --role=successor -- NAME DIR"), "mount --role=worker -- NAME DIR");
    }
}
