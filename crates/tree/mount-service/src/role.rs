use std::ffi::OsString;
use std::str::FromStr;

/// What this process does for the mount. Users start supervisors; the others are started by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts and replaces the worker.
    Supervisor,
    /// Continues a supervisor whose program was replaced.
    Successor,
    Worker,
    /// Serves without a supervisor.
    Alone,
}

const NAMES: [(&str, Role); 4] = [
    ("supervisor", Role::Supervisor),
    ("successor", Role::Successor),
    ("worker", Role::Worker),
    ("alone", Role::Alone),
];

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, role)| *role).ok_or("no such role")
    }
}

/// The role in the arguments of a process that a supervisor has started.
pub(crate) fn role_of(arguments: &[OsString]) -> Option<Role> {
    arguments.iter().find_map(|argument| argument.to_str()?.strip_prefix(OPTION)?.parse().ok())
}

/// The arguments of this command with another role. There are no options after `--`.
pub(crate) fn arguments_with(role: Role, ours: &[OsString]) -> Vec<OsString> {
    let name = NAMES.iter().find(|(_, known)| *known == role).map_or("", |(name, _)| name);
    let mut arguments: Vec<OsString> = ours
        .iter()
        .filter(|argument| !argument.to_string_lossy().starts_with(OPTION))
        .cloned()
        .collect();
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
        let with = |line: &str| {
            arguments_with(Role::Worker, &line.split(' ').map(OsString::from).collect::<Vec<_>>())
                .join(std::ffi::OsStr::new(" "))
        };
        assert_eq!(with("mount NAME DIR"), "mount NAME DIR --role=worker");
        assert_eq!(with("mount --role=successor -- NAME DIR"), "mount --role=worker -- NAME DIR");
    }
}
