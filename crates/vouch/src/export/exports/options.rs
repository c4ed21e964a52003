//! The options of exports(5): what each means here, and what is said of each that is not taken.

use vouch_nfs4_server::{Flavour, Squash, SquashWho};

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
    pub(crate) read_only: bool,
    /// Flavours in order of preference; empty stands for the default, `sys`.
    pub(crate) flavours: Vec<Flavour>,
    pub(crate) squash: Squash,
    /// Calls from ports below 1024 only.
    pub(crate) secure: bool,
    pub(crate) fsid: Option<Fsid>,
    /// Mount points below are shown.
    pub(crate) cross_mounts: bool,
    /// Exported only while a file system is mounted here (empty: on the path itself).
    pub(crate) mount_point: Option<Vec<u8>>,
    /// Whether rights were given after a `sec=`: they are that group's alone.
    after_sec: bool,
}

/// Why an option is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Objection {
    /// The export is served without it.
    Comment(String),
    /// The export can't be served like this.
    Fault(String, &'static str),
}

impl Default for Options {
    /// Those that exports(5) names: `ro,sync,wdelay,hide,root_squash,secure`, and `anonuid=65534`.
    fn default() -> Self {
        Options {
            read_only: true,
            flavours: Vec::new(),
            squash: Squash { who: SquashWho::Root, anonymous_uid: NOBODY, anonymous_gid: NOBODY },
            secure: true,
            fsid: None,
            cross_mounts: false,
            mount_point: None,
            after_sec: false,
        }
    }
}

impl Options {
    /// Takes a list such as `rw,sec=krb5p:krb5i,anonuid=99`.
    pub(super) fn take(&mut self, list: &str, objections: &mut Vec<Objection>) {
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            if let Err(objection) = self.take_one(option) {
                objections.push(objection);
            }
        }
    }

    fn take_one(&mut self, option: &str) -> Result<(), Objection> {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let number = || value.and_then(|value| value.parse::<i64>().ok()).ok_or_else(|| fault(option, "is no number", "write a number"));
        match (name, value) {
            ("rw", None) => self.set_rights(|options| options.read_only = false)?,
            ("ro", None) => self.set_rights(|options| options.read_only = true)?,
            ("root_squash", None) => self.set_rights(|options| options.squash.who = SquashWho::Root)?,
            ("no_root_squash", None) => self.set_rights(|options| options.squash.who = SquashWho::Nobody)?,
            ("all_squash", None) => self.set_rights(|options| options.squash.who = SquashWho::All)?,
            ("no_all_squash", None) => self.set_rights(|options| {
                if options.squash.who == SquashWho::All {
                    options.squash.who = SquashWho::Root;
                }
            })?,
            ("anonuid", _) => {
                self.squash.anonymous_uid = id(number()?).ok_or_else(|| fault(option, "is no user number", "write 0 to 4294967294"))?
            }
            ("anongid", _) => {
                self.squash.anonymous_gid = id(number()?).ok_or_else(|| fault(option, "is no group number", "write 0 to 4294967294"))?
            }
            ("secure", None) => self.secure = true,
            ("insecure", None) => self.secure = false,
            ("sec", Some(list)) => self.take_flavours(list)?,
            ("fsid", Some(value)) => {
                self.fsid = Some(
                    fsid(value)
                        .ok_or_else(|| fault(option, "is neither a number, nor root, nor a UUID", "write fsid=7, fsid=root or a UUID"))?,
                )
            }
            ("crossmnt", None) => self.cross_mounts = true,
            ("hide", None) => {}
            ("mountpoint" | "mp", value) => self.mount_point = Some(value.unwrap_or_default().as_bytes().to_vec()),
            // What these ask for is how it always works.
            ("sync" | "no_subtree_check" | "no_pnfs" | "acl" | "wdelay", None) => {}
            ("async", None) => {
                return comment(
                    option,
                    "replies never claim more than is on the disk: a client that wants speed sends unstable writes and commits them; remove it or write sync",
                );
            }
            ("no_wdelay", None) => return comment(option, "writes are never delayed for others to come; remove it"),
            ("subtree_check", None) => {
                return comment(
                    option,
                    "filehandles carry an authenticator, so that none can be guessed; a renamed file stays open; remove it or write no_subtree_check",
                );
            }
            ("nohide", None) => return comment(option, "a nested export is always seen by its clients; remove it"),
            ("no_acl", None) => return comment(option, "it is about NFSv3; over NFSv4 ACLs are an attribute; remove it"),
            ("insecure_locks" | "secure_locks" | "auth_nlm" | "no_auth_nlm", None) => {
                return comment(option, "it is about the lock manager of NFSv3; locks of NFSv4 are authenticated; remove it");
            }
            ("security_label", None) => return comment(option, "security labels are not passed on; remove it"),
            ("rdirplus" | "nordirplus", None) => return comment(option, "it is about NFSv3; an NFSv4 client chooses; remove it"),
            ("xprtsec", Some("none")) => {}
            ("xprtsec", _) => {
                return Err(fault(option, "asks for TLS, which is not spoken here", "use sec=krb5p, or a tunnel and no xprtsec="));
            }
            ("pnfs", None) => return Err(fault(option, "asks for pNFS layouts, which are not given", "remove it")),
            ("refer" | "replicas", _) => {
                return Err(fault(option, "asks for a referral, which is not given", "mount the other server directly, and remove it"));
            }
            _ => return Err(fault(option, "is no option of exports(5)", "see vouch-export(1) for those that are known")),
        }
        Ok(())
    }

    /// exports(5): rights after a `sec=` are for that group of flavours. One set of rights for all is what is served here.
    fn set_rights(&mut self, set: impl FnOnce(&mut Self)) -> Result<(), Objection> {
        let before = (self.read_only, self.squash);
        set(self);
        if self.after_sec && before != (self.read_only, self.squash) {
            return Err(Objection::Fault(
                "rights that differ by security flavour are not served".into(),
                "put rights before the first sec=, and list all flavours that get them: rw,sec=krb5p:krb5i",
            ));
        }
        Ok(())
    }

    fn take_flavours(&mut self, list: &str) -> Result<(), Objection> {
        self.after_sec = true;
        for name in list.split(':') {
            let flavour = match name {
                "sys" | "unix" => Flavour::Sys,
                "null" | "none" => Flavour::None,
                "krb5" => Flavour::Krb5,
                "krb5i" => Flavour::Krb5i,
                "krb5p" => Flavour::Krb5p,
                _ => {
                    return Err(fault(
                        &format!("sec={name}"),
                        "is no security flavour",
                        "write sys, krb5, krb5i or krb5p, with colons between",
                    ));
                }
            };
            if !self.flavours.contains(&flavour) {
                self.flavours.push(flavour);
            }
        }
        Ok(())
    }

    /// Flavours that are let in, best first.
    pub(crate) fn effective_flavours(&self) -> Vec<Flavour> {
        if self.flavours.is_empty() { vec![Flavour::Sys] } else { self.flavours.clone() }
    }

    /// Takes the flavours from a client name of old, `gss/krb5i`.
    pub(super) fn set_flavour(&mut self, flavour: Flavour) {
        self.flavours = vec![flavour];
    }
}

fn comment(option: &str, why: &str) -> Result<(), Objection> {
    Err(Objection::Comment(format!("option {option} is not taken: {why}")))
}

fn fault(option: &str, what: &str, cure: &'static str) -> Objection {
    Objection::Fault(format!("option {option} {what}"), cure)
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

    fn read(list: &str) -> (Options, Vec<Objection>) {
        let (mut options, mut objections) = (Options::default(), Vec::new());
        options.take(list, &mut objections);
        (options, objections)
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let (options, objections) = read("");
        assert!(objections.is_empty());
        assert!(options.read_only && options.secure && !options.cross_mounts);
        assert_eq!(options.squash, Squash { who: SquashWho::Root, anonymous_uid: 65_534, anonymous_gid: 65_534 });
        assert_eq!(options.effective_flavours(), [Flavour::Sys]);
    }

    #[test]
    fn options_are_taken() {
        let (options, objections) =
            read("rw,all_squash,anonuid=-2,anongid=100,insecure,crossmnt,mp=/m,sec=krb5p:krb5i,sec=sys,fsid=7,sync,no_subtree_check");
        assert_eq!(objections, []);
        assert!(!options.read_only && !options.secure && options.cross_mounts);
        assert_eq!(options.squash, Squash { who: SquashWho::All, anonymous_uid: 0xffff_fffe, anonymous_gid: 100 });
        assert_eq!(options.effective_flavours(), [Flavour::Krb5p, Flavour::Krb5i, Flavour::Sys]);
        assert_eq!((options.fsid, options.mount_point), (Some(Fsid::Number(7)), Some(b"/m".to_vec())));
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
        for option in ["async", "no_wdelay", "subtree_check", "nohide", "no_acl", "no_auth_nlm", "security_label", "nordirplus"] {
            assert!(matches!(&read(option).1[..], [Objection::Comment(text)] if text.contains(option)), "{option}");
        }
        for option in [
            "pnfs",
            "refer=/a@b",
            "replicas=/a@b",
            "xprtsec=mtls",
            "nonsense",
            "rw=1",
            "anonuid=x",
            "anonuid=4294967295",
            "fsid=q",
            "sec=spkm3",
        ] {
            assert!(matches!(&read(option).1[..], [Objection::Fault(text, _)] if text.contains(option)), "{option}");
        }
    }

    #[test]
    fn rights_of_one_flavour_alone_are_refused_rather_than_given_to_all() {
        assert!(matches!(read("ro,sec=sys,rw").1[..], [Objection::Fault(..)]));
        assert!(read("sec=krb5,ro").1.is_empty());
        assert!(read("rw,sec=krb5p,rw").1.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics_and_is_never_silent(list in "[a-z_=,:0-9-]{0,40}") {
            let (_, objections) = read(&list);
            let known = list.split(',').all(|option| option.is_empty() || read(option).1.is_empty());
            proptest::prop_assert!(known || !objections.is_empty());
        }
    }
}
