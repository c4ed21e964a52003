//! The options of exports(5): what each means here, and what is said of each that is not taken.

use vouch_nfs4_server::{Flavour, FlavourAccess, Squash, SquashWho};

/// Number under which an export is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsid {
    /// `fsid=root`, `fsid=0`: the root of the name space.
    Root,
    /// `fsid=N`.
    Number(u32),
    /// `fsid=UUID`.
    Uuid([u8; 16]),
}

/// Options of one client of one export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Rights of every flavour that does not have others.
    pub(crate) read_only: bool,
    /// Replies wait until changes of names and attributes are on the disk.
    pub(crate) sync: bool,
    pub(crate) squash: Squash,
    /// Flavours in order of preference, with what is said of each alone; empty stands for the
    /// default, `sys`.
    flavours: Vec<Named>,
    /// The flavours of the last `sec=` of the list that is read: what follows is about them. None
    /// before the first: that is about all.
    group: Option<Vec<Flavour>>,
    /// Calls from ports below 1024 only.
    pub(crate) secure: bool,
    pub(crate) fsid: Option<Fsid>,
    /// Mount points below are shown.
    pub(crate) cross_mounts: bool,
    /// Exported only while a file system is mounted here (empty: on the path itself).
    pub(crate) mount_point: Option<Vec<u8>>,
    /// The credential of a client's machine may write what its users have written. An option of
    /// ours.
    pub(crate) machine_writes: bool,
}

/// A flavour that was named, and rights that were given after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    flavour: Flavour,
    read_only: Option<bool>,
    squash: Option<SquashWho>,
}

impl Named {
    fn new(flavour: Flavour) -> Self {
        Named { flavour, read_only: None, squash: None }
    }
}

/// Why an option is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OptionIssue {
    /// The export is served without it.
    Warning(String),
    /// The export can't be served like this.
    Error(String, &'static str),
}

impl Default for Options {
    /// Those that exports(5) names: `ro,sync,wdelay,hide,root_squash,secure`, and `anonuid=65534`.
    fn default() -> Self {
        Options {
            read_only: true,
            sync: true,
            flavours: Vec::new(),
            group: None,
            squash: Squash { who: SquashWho::Root, anonymous_uid: NOBODY, anonymous_gid: NOBODY },
            secure: true,
            fsid: None,
            cross_mounts: false,
            mount_point: None,
            machine_writes: false,
        }
    }
}

impl Options {
    /// Takes a list such as `rw,sec=krb5p:krb5i,anonuid=99`. What stands before its first `sec=` is
    /// about all flavours, also about those that the line's defaults have named.
    pub(super) fn take(&mut self, list: &str, issues: &mut Vec<OptionIssue>) {
        self.group = None;
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            if let Err(issue) = self.take_one(option) {
                issues.push(issue);
            }
        }
    }

    fn take_one(&mut self, option: &str) -> Result<(), OptionIssue> {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let number =
            || value.and_then(|value| value.parse::<i64>().ok()).ok_or_else(|| option_error(option, "is no number", "write a number"));
        match (name, value) {
            ("rw", None) => self.set_read_only(false),
            ("ro", None) => self.set_read_only(true),
            // As nfs-utils have it: all are squashed where that is said anywhere.
            ("root_squash", None) => self.set_squash(|who| if who == SquashWho::All { who } else { SquashWho::Root }),
            ("no_root_squash", None) => self.set_squash(|who| if who == SquashWho::All { who } else { SquashWho::Nobody }),
            ("all_squash", None) => self.set_squash(|_| SquashWho::All),
            ("no_all_squash", None) => self.set_squash(|who| if who == SquashWho::All { SquashWho::Root } else { who }),
            ("anonuid", _) => {
                self.squash.anonymous_uid =
                    id(number()?).ok_or_else(|| option_error(option, "is no user number", "write 0 to 4294967294"))?
            }
            ("anongid", _) => {
                self.squash.anonymous_gid =
                    id(number()?).ok_or_else(|| option_error(option, "is no group number", "write 0 to 4294967294"))?
            }
            ("secure", None) => self.secure = true,
            ("insecure", None) => self.secure = false,
            ("sec", Some(list)) => self.take_flavours(list)?,
            ("fsid", Some(value)) => {
                self.fsid = Some(fsid(value).ok_or_else(|| {
                    option_error(option, "is neither a number, nor root, nor a UUID", "write fsid=7, fsid=root or a UUID")
                })?)
            }
            ("machine_writes", None) => self.machine_writes = true,
            ("crossmnt", None) => self.cross_mounts = true,
            ("nocrossmnt", None) => self.cross_mounts = false,
            ("hide", None) => {}
            ("mountpoint" | "mp", value) => self.mount_point = Some(value.unwrap_or_default().as_bytes().to_vec()),
            // What these ask for is how it always works.
            ("sync", None) => self.sync = true,
            ("async", None) => self.sync = false,
            ("no_subtree_check" | "no_pnfs" | "acl" | "wdelay", None) => {}
            ("no_wdelay", None) => return warning(option, "writes are never delayed for others to come; remove it"),
            ("subtree_check", None) => {
                return warning(
                    option,
                    "it is not done: what is moved out of the export stays reachable by handles that were given out before, though none can be guessed; \
                     give the export a file system of its own where that matters, and write no_subtree_check",
                );
            }
            ("nohide", None) => return warning(option, "a nested export is always seen by its clients; remove it"),
            ("no_acl", None) => return warning(option, "it is about NFSv3; over NFSv4 ACLs are an attribute; remove it"),
            ("insecure_locks" | "secure_locks" | "auth_nlm" | "no_auth_nlm", None) => {
                return warning(option, "it is about the lock manager of NFSv3; locks of NFSv4 are authenticated; remove it");
            }
            ("security_label", None) => return warning(option, "security labels are not passed on; remove it"),
            ("rdirplus" | "nordirplus", None) => return warning(option, "it is about NFSv3; an NFSv4 client chooses; remove it"),
            ("xprtsec", Some(list)) => transport(option, list)?,
            ("pnfs", None) => return Err(option_error(option, "asks for pNFS layouts, which are not given", "remove it")),
            ("refer" | "replicas", _) => {
                return Err(option_error(
                    option,
                    "asks for a referral, which is not given",
                    "mount the other server directly, and remove it",
                ));
            }
            ("reexport", Some(_)) => {
                return warning(option, "an export without fsid= has a number from its path, which stays, whatever it lies on; remove it");
            }
            _ => return Err(option_error(option, "is no option of exports(5)", "see vouch-export(1) for those that are known")),
        }
        Ok(())
    }

    fn set_read_only(&mut self, read_only: bool) {
        if self.group.is_none() {
            self.read_only = read_only;
        }
        self.of_group().for_each(|named| named.read_only = Some(read_only));
    }

    fn set_squash(&mut self, change: impl Fn(SquashWho) -> SquashWho) {
        let all = self.squash.who;
        if self.group.is_none() {
            self.squash.who = change(all);
        }
        self.of_group().for_each(|named| named.squash = Some(change(named.squash.unwrap_or(all))));
    }

    /// exports(5): rights after a `sec=` are for its flavours. Before it they are for all that are
    /// there: what a client's own list says goes before the line's defaults.
    fn of_group(&mut self) -> impl Iterator<Item = &mut Named> {
        let group = &self.group;
        self.flavours.iter_mut().filter(|named| group.as_ref().is_none_or(|group| group.contains(&named.flavour)))
    }

    fn take_flavours(&mut self, list: &str) -> Result<(), OptionIssue> {
        let mut group = Vec::new();
        for name in list.split(':') {
            let flavour = match name {
                "sys" | "unix" => Flavour::Sys,
                "null" | "none" => Flavour::None,
                "krb5" => Flavour::Krb5,
                "krb5i" => Flavour::Krb5i,
                "krb5p" => Flavour::Krb5p,
                _ => {
                    return Err(option_error(
                        &format!("sec={name}"),
                        "is no security flavour",
                        "write sys, krb5, krb5i or krb5p, with colons between",
                    ));
                }
            };
            group.push(flavour);
            if !self.flavours.iter().any(|named| named.flavour == flavour) {
                self.flavours.push(Named::new(flavour));
            }
        }
        self.group = Some(group);
        Ok(())
    }

    /// Flavours that are let in, best first, and what each may do.
    pub(crate) fn access(&self) -> Vec<FlavourAccess> {
        let default = [Named::new(Flavour::Sys)];
        let named = if self.flavours.is_empty() { &default[..] } else { &self.flavours[..] };
        let access = |named: &Named| FlavourAccess {
            flavour: named.flavour,
            read_only: named.read_only.unwrap_or(self.read_only),
            squash: Squash { who: named.squash.unwrap_or(self.squash.who), ..self.squash },
            secure_port: self.secure,
            machine_writes: self.machine_writes,
        };
        named.iter().map(access).collect()
    }

    /// The same flavours, in the same order.
    pub(super) fn same_flavours(&self, other: &Options) -> bool {
        self.flavours.iter().map(|named| named.flavour).eq(other.flavours.iter().map(|named| named.flavour))
    }

    /// What exportfs(8) would do otherwise: it hands the rights of one group on to flavours that
    /// are named later. As the manual has it, they get what stands before the first
    /// `sec=`. Said where that makes a difference.
    pub(super) fn differences(&self) -> Option<OptionIssue> {
        let handed_on = |at: usize| {
            let (named, before) = (&self.flavours[at], &self.flavours[..at]);
            let read_only = before.iter().filter_map(|other| other.read_only).next_back().unwrap_or(self.read_only);
            let squash = before.iter().filter_map(|other| other.squash).next_back().unwrap_or(self.squash.who);
            (named.read_only.is_none() && read_only != self.read_only) || (named.squash.is_none() && squash != self.squash.who)
        };
        let at = (1..self.flavours.len()).find(|&at| handed_on(at))?;
        Some(OptionIssue::Warning(format!(
            "a flavour after the first sec= has rights from before it ({}), where exportfs gives it those of the flavours named earlier; write its rights after its own sec=",
            if self.flavours[at].read_only.unwrap_or(self.read_only) { "ro" } else { "rw" },
        )))
    }

    /// Takes the flavours from a client name of old, `gss/krb5i`.
    pub(super) fn set_flavour(&mut self, flavour: Flavour) {
        self.flavours = vec![Named::new(flavour)];
    }
}

/// `xprtsec=`: by what a transport may be protected; any of the list suffices. Where `none` is
/// among them TLS is not demanded of anybody; without it, whoever came over a plain connection
/// would get in against the administrator's will.
fn transport(option: &str, list: &str) -> Result<(), OptionIssue> {
    if list.split(':').any(|mode| !matches!(mode, "none" | "tls" | "mtls")) {
        return Err(option_error(option, "is no list of none, tls and mtls", "write xprtsec=none, or leave it out"));
    }
    if !list.split(':').any(|mode| mode == "none") {
        return Err(option_error(
            option,
            "demands RPC over TLS (RFC 9289), which is not spoken here",
            "write sec=krb5p for privacy or sec=krb5i for integrity instead, or use a tunnel and xprtsec=none",
        ));
    }
    if list == "none" {
        return Ok(());
    }
    warning(
        option,
        "RPC over TLS is not spoken here, so every client comes as by xprtsec=none; where that is too little write sec=krb5p or sec=krb5i",
    )
}

fn warning(option: &str, why: &str) -> Result<(), OptionIssue> {
    Err(OptionIssue::Warning(format!("option {option} is not taken: {why}")))
}

fn option_error(option: &str, what: &str, cure: &'static str) -> OptionIssue {
    OptionIssue::Error(format!("option {option} {what}"), cure)
}

/// exports(5) takes −2 and −1 for user numbers at the end of the range.
fn id(number: i64) -> Option<u32> {
    u32::try_from(number).ok().or_else(|| (number == -2).then_some(u32::MAX - 1)).filter(|&id| id != u32::MAX)
}

fn fsid(value: &str) -> Option<Fsid> {
    if value == "root" {
        return Some(Fsid::Root);
    }
    if let Ok(number) = value.parse::<u32>() {
        return Some(if number == 0 { Fsid::Root } else { Fsid::Number(number) });
    }
    // A UUID, with hyphens or colons wherever they are liked (exports(5)).
    let digits: String = value.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?;
    bytes.try_into().ok().map(Fsid::Uuid)
}

/// `nobody` and `nogroup`.
const NOBODY: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &str) -> (Options, Vec<OptionIssue>) {
        let (mut options, mut issues) = (Options::default(), Vec::new());
        options.take(list, &mut issues);
        (options, issues)
    }

    fn told(options: &Options) -> String {
        let one =
            |access: &FlavourAccess| format!("{:?}:{},{:?}", access.flavour, if access.read_only { "ro" } else { "rw" }, access.squash.who);
        options.access().iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let (options, issues) = read("");
        assert!(issues.is_empty());
        assert!(options.read_only && options.sync && options.secure && !options.cross_mounts);
        assert_eq!(options.squash, Squash { who: SquashWho::Root, anonymous_uid: 65_534, anonymous_gid: 65_534 });
        assert_eq!(told(&options), "Sys:ro,Root");
    }

    // As nfs-utils: two flags, and who says that all are squashed is not overruled by what is said of
    // the superuser.
    #[test]
    fn all_are_squashed_whatever_is_said_of_the_superuser() {
        for list in
            ["all_squash,no_root_squash", "no_root_squash,all_squash", "all_squash,root_squash", "all_squash,sec=sys,no_root_squash"]
        {
            let (options, issues) = read(list);
            assert!(issues.is_empty() && told(&options).ends_with(",All"), "{list}: {}", told(&options));
        }
        assert_eq!(read("all_squash,no_root_squash,no_all_squash").0.squash.who, SquashWho::Root);
        assert_eq!(read("no_root_squash,no_all_squash").0.squash.who, SquashWho::Nobody);
    }

    #[test]
    fn options_are_taken() {
        let (options, issues) =
            read("rw,all_squash,anonuid=-2,anongid=100,insecure,crossmnt,mp=/m,sec=krb5p:krb5i,sec=sys,fsid=7,sync,no_subtree_check");
        assert_eq!(issues, []);
        assert!(!options.read_only && !options.secure && options.cross_mounts);
        assert_eq!(options.squash, Squash { who: SquashWho::All, anonymous_uid: 0xffff_fffe, anonymous_gid: 100 });
        assert_eq!(told(&options), "Krb5p:rw,All Krb5i:rw,All Sys:rw,All");
        assert_eq!((options.fsid, options.mount_point), (Some(Fsid::Number(7)), Some(b"/m".to_vec())));
    }

    // exports(5), General Options and User ID Mapping: what is neither commented on nor refused is what
    // is done.
    #[test]
    fn every_option_of_the_manual_that_is_taken_is_taken_silently() {
        for option in [
            "secure",
            "insecure",
            "rw",
            "ro",
            "async",
            "sync",
            "wdelay",
            "hide",
            "crossmnt",
            "nocrossmnt",
            "no_subtree_check",
            "mountpoint",
            "mp",
            "mountpoint=/m",
            "mp=/m",
            "fsid=5",
            "fsid=root",
            "no_pnfs",
            "acl",
            "root_squash",
            "no_root_squash",
            "all_squash",
            "no_all_squash",
            "anonuid=5",
            "anongid=5",
            "sec=sys",
            "sec=krb5:krb5i:krb5p",
            "xprtsec=none",
        ] {
            assert_eq!(read(option).1, [], "{option}");
        }
    }

    #[test]
    fn crossing_is_what_is_asked_for_last() {
        assert!(!read("crossmnt,nocrossmnt").0.cross_mounts && read("nocrossmnt,crossmnt").0.cross_mounts);
    }

    #[test]
    fn who_demands_tls_is_told_what_there_is_instead() {
        let (_, issues) = read("rw,xprtsec=mtls");
        assert!(
            matches!(&issues[..], [OptionIssue::Error(what, cure)] if what.contains("TLS") && cure.contains("krb5p") && cure.contains("krb5i"))
        );
    }

    #[test]
    fn async_is_what_is_asked_for_last() {
        assert!(!read("rw,async").0.sync);
        assert!(read("async,rw,sync").0.sync);
        assert!(read("rw,async").1.is_empty());
    }

    #[test]
    fn fsids_have_three_forms() {
        assert_eq!((fsid("root"), fsid("0"), fsid("12")), (Some(Fsid::Root), Some(Fsid::Root), Some(Fsid::Number(12))));
        assert_eq!(fsid("00112233-4455-6677-8899-aabbccddeeff"), fsid("00112233:44556677:8899aabb:ccddeeff"));
        assert!(matches!(fsid("00112233-4455-6677-8899-aabbccddeeff"), Some(Fsid::Uuid([0, 0x11, ..]))));
        assert_eq!((fsid("-1"), fsid("abc")), (None, None));
    }

    #[test]
    fn every_option_that_is_not_taken_is_told() {
        for option in [
            "no_wdelay",
            "subtree_check",
            "nohide",
            "no_acl",
            "no_auth_nlm",
            "auth_nlm",
            "insecure_locks",
            "secure_locks",
            "security_label",
            "rdirplus",
            "nordirplus",
            "xprtsec=none:tls:mtls",
            "xprtsec=mtls:none",
            "reexport=auto-fsidnum",
            "reexport=predefined-fsidnum",
        ] {
            assert!(matches!(&read(option).1[..], [OptionIssue::Warning(text)] if text.contains(option)), "{option}");
        }
        for option in [
            "pnfs",
            "refer=/a@b",
            "replicas=/a@b",
            "xprtsec=tls",
            "xprtsec=tls:mtls",
            "xprtsec=ssl",
            "xprtsec=",
            "nonsense",
            "rw=1",
            "anonuid=x",
            "anonuid=4294967295",
            "fsid=q",
            "sec=spkm3",
        ] {
            assert!(matches!(&read(option).1[..], [OptionIssue::Error(text, _)] if text.contains(option)), "{option}");
        }
    }

    #[test]
    fn rights_after_a_flavour_are_its_own() {
        let access = |list: &str| {
            let (options, issues) = read(list);
            assert_eq!(issues, [], "{list}");
            told(&options)
        };
        // exports(5), Kerberos: "sec=sys,rw,sec=krb5..." of the manual.
        assert_eq!(access("sec=krb5p,rw,sec=sys,ro"), "Krb5p:rw,Root Sys:ro,Root");
        assert_eq!(
            access("rw,sec=krb5p:krb5i,no_root_squash,sec=sys,ro,all_squash,anonuid=5"),
            "Krb5p:rw,Nobody Krb5i:rw,Nobody Sys:ro,All"
        );
        assert_eq!(access("ro,sec=sys,rw"), "Sys:rw,Root");
        // A flavour that is named again stays in its place.
        assert_eq!(access("sec=sys:krb5,ro,sec=sys,rw"), "Sys:rw,Root Krb5:ro,Root");
        assert_eq!(access("all_squash,sec=sys,no_all_squash,sec=krb5,all_squash"), "Sys:ro,Root Krb5:ro,All");
    }

    #[test]
    fn rights_from_before_are_for_all_and_said_where_exportfs_differs() {
        for (list, access) in
            [("sec=krb5p,rw,sec=sys", "Krb5p:rw,Root Sys:ro,Root"), ("rw,sec=sys,ro,sec=krb5", "Sys:ro,Root Krb5:rw,Root")]
        {
            let (options, _) = read(list);
            assert_eq!(told(&options), access);
            assert!(matches!(options.differences(), Some(OptionIssue::Warning(_))), "{list}");
        }
        for list in ["sec=krb5p,rw,sec=sys,ro", "rw,sec=krb5p:sys", "sec=sys:krb5,rw", ""] {
            assert_eq!(read(list).0.differences(), None, "{list}");
        }
    }

    #[test]
    fn defaults_of_a_line_are_completed_by_the_client() {
        let (mut options, mut issues) = read("sec=krb5p,ro");
        options.take("rw,sec=sys", &mut issues);
        // What the client says before a sec= of its own is about all flavours.
        assert_eq!((told(&options), issues), ("Krb5p:rw,Root Sys:rw,Root".to_owned(), vec![]));
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics_and_is_never_silent(list in "[a-z_=,:0-9-]{0,40}") {
            let (_, issues) = read(&list);
            let known = list.split(',').all(|option| option.is_empty() || read(option).1.is_empty());
            proptest::prop_assert!(known || !issues.is_empty());
        }
    }
}
