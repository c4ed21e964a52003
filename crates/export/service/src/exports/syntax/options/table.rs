//! The options that are taken: the parser, the help of the command and a test of the documents
//! read this table.

use vouch_nfs4_server::{Locations, SquashWho, Transport};
use vouch_vfs_posix::{IoMode, SnapshotPattern};

use super::{
    Fsid, OptionIssue, Options, Written, data_servers, locations, option_error, qos, size,
};

pub(super) struct OptionRow {
    pub(super) name: &'static str,
    pub(super) how: How,
}

/// Valued options have the form of their value.
#[derive(Clone, Copy)]
pub(super) enum How {
    Flag(fn(&mut Options)),
    Valued(&'static str, Take),
    /// The value may be left out.
    Optional(&'static str, Take),
}

type Take = fn(&mut Options, Written<'_>) -> Result<(), OptionIssue>;

/// Each option with the form of its value, such as `fsid=NUMBER|root|UUID`.
pub fn option_forms() -> impl Iterator<Item = String> {
    OPTIONS.iter().map(|taken| match taken.how {
        How::Flag(_) => taken.name.to_owned(),
        How::Valued(form, _) => format!("{}={form}", taken.name),
        How::Optional(form, _) => format!("{}[={form}]", taken.name),
    })
}

pub(super) const OPTIONS: &[OptionRow] = &[
    flag("rw", |options| options.set_read_only(false)),
    flag("ro", |options| options.set_read_only(true)),
    valued("sec", "FLAVOUR[:FLAVOUR]", |options, written| options.take_flavours(written.value)),
    // As in nfs-utils, all_squash wins in any order.
    flag("root_squash", |options| {
        options.set_squash(|who| if who == SquashWho::All { who } else { SquashWho::Root })
    }),
    flag("no_root_squash", |options| {
        options.set_squash(|who| if who == SquashWho::All { who } else { SquashWho::Nobody })
    }),
    flag("all_squash", |options| options.set_squash(|_| SquashWho::All)),
    flag("no_all_squash", |options| {
        options.set_squash(|who| if who == SquashWho::All { SquashWho::Root } else { who })
    }),
    valued("anonuid", "UID", |options, written| {
        options.squash.anonymous_uid = id(written, "user")?;
        Ok(())
    }),
    valued("anongid", "GID", |options, written| {
        options.squash.anonymous_gid = id(written, "group")?;
        Ok(())
    }),
    valued("fsid", "NUMBER|root|UUID", |options, written| {
        let fsid = fsid(written.value).ok_or_else(|| {
            option_error(
                written.option,
                "is neither a number, nor root, nor a UUID",
                "write fsid=7, fsid=root or a UUID",
            )
        })?;
        options.fsid = Some(fsid);
        Ok(())
    }),
    flag("secure", |options| options.secure = true),
    flag("insecure", |options| options.secure = false),
    flag("crossmnt", |options| options.cross_mounts = true),
    flag("nocrossmnt", |options| options.cross_mounts = false),
    optional("mountpoint", "PATH", take_mount_point),
    optional("mp", "PATH", take_mount_point),
    flag("sync", |options| options.sync = true),
    flag("async", |options| options.sync = false),
    valued("xprtsec", "none|tls|mtls[:…]", |options, written| {
        options.transport_min = transport(written)?;
        Ok(())
    }),
    valued("refer", "/PATH@HOST[+HOST][:/PATH@HOST]", take_locations),
    valued("replicas", "/PATH@HOST[+HOST][:/PATH@HOST]", take_locations),
    // The server does what they say, or always does it. sign_fh: filehandles are authenticated with
    // the key of the state directory.
    flag("no_subtree_check", |_| {}),
    flag("hide", |_| {}),
    flag("wdelay", |_| {}),
    flag("acl", |_| {}),
    flag("no_pnfs", |_| {}),
    flag("sign_fh", |_| {}),
    // Extensions.
    flag("machine_writes", |options| options.machine_writes = true),
    flag("no_delegations", |options| options.no_delegations = true),
    // exports(5) has it for NFSv3.
    flag("no_acl", |options| options.no_acl = true),
    flag("no_xattr", |options| options.no_xattr = true),
    flag("security_label", |options| options.labels = true),
    flag("uncacheable", |options| options.uncacheable = true),
    valued("qos", "ops:RATE+bytes:RATE+…", |options, written| {
        options.qos = Some(qos::parse(written.value).ok_or_else(|| {
            option_error(
                written.option,
                "is not a list of limits",
                "write for example qos=ops:2000+bytes:100M+burst:500ms+weight:2; docs/fairness.md has all limits",
            )
        })?);
        Ok(())
    }),
    valued("quota", "SIZE", |options, written| {
        let size = size::parse(written.value).filter(|size| (QUOTA_MIN..=QUOTA_MAX).contains(size));
        options.quota = Some(size.ok_or_else(|| {
            let advice =
                "write a number of bytes, at least 1M, or for example quota=500M or quota=2T";
            option_error(written.option, "is not a size", advice)
        })?);
        Ok(())
    }),
    valued("io", "buffered|uncached|direct[:SIZE]", |options, written| {
        options.io_mode = Some(io_mode(written.value).ok_or_else(|| {
            let advice = "write io=buffered, io=uncached, io=direct, or for example io=direct:64k";
            option_error(written.option, "is not a mode of I/O", advice)
        })?);
        Ok(())
    }),
    optional("snapshots", "DIR|DIR/*/PATH", |options, written| {
        options.snapshots =
            Some(if written.option == written.name { None } else { Some(snapshots(written)?) });
        Ok(())
    }),
    valued("snapdir", "visible|hidden", |options, written| {
        options.snapshots_visible = Some(match written.value {
            "visible" => true,
            "hidden" => false,
            _ => {
                return Err(option_error(
                    written.option,
                    "is neither visible nor hidden",
                    "write snapdir=visible or snapdir=hidden",
                ));
            }
        });
        Ok(())
    }),
    valued("pnfs", "ADDRESS[:PORT][+ADDRESS[:PORT]]", |options, written| {
        let servers = data_servers::parse(written.value).ok_or_else(|| {
            option_error(
                written.option,
                "is not a list of different addresses",
                "write ADDRESS[:PORT][+ADDRESS[:PORT]]",
            )
        })?;
        options.data_servers = Some(servers);
        Ok(())
    }),
];

/// One message has up to 1 MiB.
const QUOTA_MIN: u64 = 1 << 20;
const QUOTA_MAX: u64 = 1 << 60;

/// Shorter I/O gains from the cache, and clients send whole blocks of this length.
const DIRECT_LEN_DEFAULT: u32 = 256 << 10;

fn io_mode(value: &str) -> Option<IoMode> {
    match value {
        "buffered" => Some(IoMode::Buffered),
        "uncached" => Some(IoMode::Uncached),
        "direct" => Some(IoMode::Direct { len_min: DIRECT_LEN_DEFAULT }),
        _ => {
            let len_min = size::parse(value.strip_prefix("direct:")?)?.try_into().ok()?;
            Some(IoMode::Direct { len_min })
        }
    }
}

const fn flag(name: &'static str, set: fn(&mut Options)) -> OptionRow {
    OptionRow { name, how: How::Flag(set) }
}

const fn valued(name: &'static str, form: &'static str, take: Take) -> OptionRow {
    OptionRow { name, how: How::Valued(form, take) }
}

const fn optional(name: &'static str, form: &'static str, take: Take) -> OptionRow {
    OptionRow { name, how: How::Optional(form, take) }
}

fn take_mount_point(options: &mut Options, written: Written<'_>) -> Result<(), OptionIssue> {
    options.mount_point = Some(written.value.as_bytes().to_vec());
    Ok(())
}

fn take_locations(options: &mut Options, written: Written<'_>) -> Result<(), OptionIssue> {
    let list = locations::parse(written.value).ok_or_else(|| {
        option_error(
            written.option,
            "is not a list of locations",
            "write /PATH@HOST[+HOST][:/PATH@HOST], with IPv6 addresses in []",
        )
    })?;
    options.locations = Some(Locations { is_referral: written.name == "refer", list });
    Ok(())
}

fn snapshots(written: Written<'_>) -> Result<SnapshotPattern, OptionIssue> {
    let advice = "write snapshots=DIR, or snapshots=DIR/*/PATH where each snapshot has the directory below PATH";
    SnapshotPattern::parse(written.value)
        .ok_or_else(|| option_error(written.option, "is not a directory of snapshots", advice))
}

/// One listed transport suffices, and a stronger one always does.
fn transport(written: Written<'_>) -> Result<Transport, OptionIssue> {
    let mode = |word: &str| {
        [Transport::Clear, Transport::Tls, Transport::MutualTls]
            .into_iter()
            .find(|mode| mode.name() == word)
    };
    let modes: Option<Vec<Transport>> = written.value.split(':').map(mode).collect();
    modes.and_then(|modes| modes.into_iter().min()).ok_or_else(|| {
        option_error(
            written.option,
            "is not a list of none, tls and mtls",
            "write for example xprtsec=tls:mtls",
        )
    })
}

/// exports(5): -2 is a number at the end of the range.
fn id(written: Written<'_>, of: &str) -> Result<u32, OptionIssue> {
    let Ok(number) = written.value.parse::<i64>() else {
        return Err(option_error(written.option, "is not a number", "write a number"));
    };
    let id = u32::try_from(number)
        .ok()
        .or_else(|| (number == -2).then_some(u32::MAX - 1))
        .filter(|&id| id != u32::MAX);
    id.ok_or_else(|| {
        option_error(written.option, &format!("is not a {of} number"), "write 0 to 4294967294")
    })
}

pub(super) fn fsid(value: &str) -> Option<Fsid> {
    if value == "root" {
        return Some(Fsid::Root);
    }
    if let Ok(number) = value.parse::<u32>() {
        return Some(if number == 0 { Fsid::Root } else { Fsid::Number(number) });
    }
    // A UUID with hyphens or colons anywhere (exports(5)).
    let digits: String = value.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?;
    bytes.try_into().ok().map(Fsid::Uuid)
}
