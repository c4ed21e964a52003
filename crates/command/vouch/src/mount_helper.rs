//! `mount.vouch NAME DIR -o OPTIONS`, as called by mount(8), becomes `vouch mount`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ArgAction;

use crate::config;
use crate::exit::{Code, Failure, Outcome};

#[derive(Debug)]
pub(crate) enum Request {
    Mount(MountRequest),
    /// Mount nothing (`mount --fake`).
    Fake,
}

#[derive(Debug)]
pub(crate) struct MountRequest {
    /// The command line of `vouch mount`.
    pub(crate) line: Vec<OsString>,
    point: PathBuf,
    /// `_netdev`, which the kernel does not keep.
    is_remote: bool,
}

impl MountRequest {
    /// Keeps `_netdev` in /run/mount/utab, which mount(8) leaves to its helpers. Without it, systemd
    /// takes the mount for a local one as soon as it sees it, and never reaches remote-fs.target.
    pub(crate) fn keep_netdev(&self) {
        if !self.is_remote {
            return;
        }
        let Ok(source) = vouch_tree_mount::mount_source(&self.point) else { return };
        let mut command = Command::new("mount");
        command
            .args(["--fake", "--internal-only", "-t", "fuse.vouch", "-o", "_netdev", "--"])
            .arg(source)
            .arg(&self.point);
        if !command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
        {
            tracing::warn!("{}: mount(8) does not keep _netdev for systemd", self.point.display());
        }
    }
}

pub(crate) fn is_helper(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new("mount.vouch"))
}

/// As in mount(8).
pub(crate) const fn exit_code(code: Code) -> u8 {
    match code {
        Code::Success => 0,
        Code::Usage => INVOCATION,
        _ => MOUNT_FAILURE,
    }
}

/// Without -s, fails for options that neither mount(8) nor `vouch mount` knows.
pub(crate) fn translate(arguments: &[OsString]) -> Outcome<Request> {
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let (mut is_sloppy, mut is_fake) = (false, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        if bytes.len() < 2 || bytes[0] != b'-' {
            places.push(argument.clone());
            continue;
        }
        for (at, flag) in bytes.iter().enumerate().skip(1) {
            match flag {
                b's' => is_sloppy = true,
                b'f' => is_fake = true,
                b'n' | b'v' | b'r' | b'w' => {}
                b'o' | b'N' | b't' => {
                    let joined =
                        (at + 1 < bytes.len()).then(|| OsStr::from_bytes(&bytes[at + 1..]));
                    let value = joined.or_else(|| rest.next().map(OsString::as_os_str));
                    let Some(value) = value else {
                        return Err(usage(&format!("-{}", char::from(*flag)), "needs a value"));
                    };
                    if *flag == b'o' {
                        options.extend(split(value.as_bytes()));
                    }
                    break;
                }
                other => {
                    return Err(usage(
                        &format!("-{}", char::from(*other)),
                        "is not an option of mount helpers",
                    ));
                }
            }
        }
    }
    let [tree, point] = <[OsString; 2]>::try_from(places)
        .map_err(|_| usage("mount.vouch", "takes a tree and a directory"))?;
    let is_remote = options.iter().any(|option| option == b"_netdev");
    let mut line: Vec<OsString> =
        ["vouch", "mount", "--background", "--helper"].map(OsString::from).to_vec();
    for option in options {
        match translate_option(&option) {
            Ok(argument) => line.extend(argument),
            Err(failure) if !is_sloppy => return Err(failure),
            Err(_) => {}
        }
    }
    if tree.as_bytes().starts_with(b"/") {
        let why = "is a path, not the name of a tree";
        return Err(usage(&tree.to_string_lossy(), why)
            .cure("give @HOST,HOSTID or a short name; mount(8) takes a file of that name in the current directory for the device"));
    }
    let first = if tree.as_bytes() == config::AUTO.as_bytes() { "--auto".into() } else { tree };
    line.extend([first, point.clone()]);
    Ok(if is_fake {
        Request::Fake
    } else {
        Request::Mount(MountRequest { line, point: point.into(), is_remote })
    })
}

/// Options of `-o`: separated by commas, except in double quotes.
fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut options, mut option, mut is_quoted) = (Vec::new(), Vec::new(), false);
    for byte in text {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => options.push(std::mem::take(&mut option)),
            other => option.push(*other),
        }
    }
    options.push(option);
    options.retain(|option| !option.is_empty());
    options
}

fn translate_option(option: &[u8]) -> Outcome<Option<OsString>> {
    let end = option.iter().position(|byte| *byte == b'=').unwrap_or(option.len());
    let name = String::from_utf8_lossy(&option[..end]).replace('_', "-");
    match &*name {
        // A published tree is always read-only; mount(8) says `rw` by default.
        "ro" | "rw" | "defaults" | "exec" | "nosuid" | "nodev" | "async" | "sync" | "dirsync"
        | "silent" | "loud" | "mand" | "nomand" => {
            return Ok(None);
        }
        "atime" | "noatime" | "relatime" | "norelatime" | "strictatime" | "nostrictatime"
        | "diratime" | "nodiratime" | "lazytime" | "nolazytime" => return Ok(None),
        // For mount(8) itself, fstab(5) and systemd.
        "auto" | "noauto" | "user" | "nouser" | "users" | "nousers" | "owner" | "noowner"
        | "group" | "nogroup" | "nofail" | "-netdev" | "comment" | "uhelper" | "helper" => {
            return Ok(None);
        }
        name if name.starts_with("x-") || name.starts_with("X-") => return Ok(None),
        "remount" => {
            return Err(usage("remount", "is not possible")
                .cure("unmount and mount again; a new revision appears without it"));
        }
        "bind" | "rbind" | "move" => return Err(usage(&name, "is not for a published tree")),
        _ => {}
    }
    let mut command = crate::cli::command();
    command.build();
    let mount = command.find_subcommand("mount").expect("the command is defined");
    let is_known = mount.get_arguments().any(|arg| {
        arg.get_long() == Some(&name)
            && !arg.is_hide_set()
            && !matches!(
                arg.get_action(),
                ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
            )
    });
    if !is_known {
        return Err(usage(&name, "is not an option of a vouch mount")
            .cure("`vouch help mount` lists the options; leave out the two dashes"));
    }
    let mut argument = format!("--{name}").into_bytes();
    argument.extend_from_slice(&option[end..]);
    Ok(Some(OsString::from_vec(argument)))
}

fn usage(what: &str, why: &str) -> Failure {
    Failure::usage(what, why)
}

const INVOCATION: u8 = 1;

pub(crate) const MOUNT_FAILURE: u8 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> Result<String, String> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        match translate(&arguments) {
            Ok(Request::Mount(request)) => {
                Ok(request.line.join(OsStr::new(" ")).into_string().expect("text"))
            }
            Ok(Request::Fake) => Ok("fake".into()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[test]
    fn options_become_those_of_the_command() {
        let options =
            "rw,noexec,cache=/c,x-systemd.automount,_netdev,allow_other,replica=a,replica=b";
        assert_eq!(
            line(&["@h,id", "/mnt", "-o", options]).as_deref(),
            Ok(
                "vouch mount --background --helper --noexec --cache=/c --allow-other --replica=a --replica=b @h,id /mnt"
            )
        );
        assert_eq!(
            line(&["auto", "/vouch", "-sv", "-oro"]).as_deref(),
            Ok("vouch mount --background --helper --auto /vouch")
        );
        assert_eq!(
            line(&["t", "/m", "-o", "statement-tree=\"@h,id/p\""]).as_deref(),
            Ok("vouch mount --background --helper --statement-tree=@h,id/p t /m")
        );
        assert_eq!(line(&["t", "/m", "-f"]).as_deref(), Ok("fake"));
    }

    #[test]
    fn unknown_options_are_refused_unless_tolerated() {
        assert!(line(&["t", "/m", "-o", "cahce=/c"]).is_err_and(|why| why.contains("cahce")));
        assert!(line(&["t", "/m", "-s", "-o", "cahce=/c"]).is_ok());
        assert!(line(&["t", "/m", "-o", "remount"]).is_err());
        assert!(line(&["t", "/m", "-o", "detached"]).is_err());
        assert!(line(&["/cwd/t", "/m"]).is_err_and(
            |why| why.contains("working directory") || why.contains("current directory")
        ));
        assert!(line(&["t"]).is_err());
    }
}
