//! Order of services in nsswitch.conf(5). The C library hides failures: `getgrouplist` leaves out
//! groups, and a service at the end of the line turns an outage into "no such user". Here a failed
//! service is an error, unless another one knows the answer.

use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nsswitch {
    pub(super) passwd: Vec<Step>,
    pub(super) group: Vec<Step>,
    /// Without this line, all services of `group` are asked for a user's groups.
    pub(super) initgroups: Option<Vec<Step>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) service: String,
    ends: Ends,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    success: bool,
    not_found: bool,
    failure: bool,
}

impl Default for Ends {
    fn default() -> Self {
        Ends { success: true, not_found: false, failure: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome<T> {
    Found(T),
    NotFound,
    Failed(i32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceFailed {
    pub(super) service: String,
    pub(super) errno: i32,
}

impl Nsswitch {
    pub(super) fn parse(text: &str) -> Self {
        let line = |database: &str| {
            let mut found = text.lines().filter_map(|line| {
                let (name, services) = line.split('#').next()?.split_once(':')?;
                (name.trim() == database).then(|| steps(services))
            });
            found.next_back().filter(|steps| !steps.is_empty())
        };
        let files = || steps("files");
        Nsswitch {
            passwd: line("passwd").unwrap_or_else(files),
            group: line("group").unwrap_or_else(files),
            initgroups: line("initgroups"),
        }
    }
}

fn steps(services: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let spaced = services.replace('[', " [ ").replace(']', " ] ");
    let mut is_action = false;
    for word in spaced.split_ascii_whitespace() {
        match (word, steps.last_mut()) {
            ("[", _) => is_action = true,
            ("]", _) => is_action = false,
            (action, Some(step)) if is_action => step.ends.apply(action),
            (_, _) if is_action => {}
            (service, _) => steps.push(Step { service: service.to_owned(), ends: Ends::default() }),
        }
    }
    steps
}

impl Ends {
    fn apply(&mut self, action: &str) {
        let Some((status, action)) = action.split_once('=') else { return };
        let ends = action.eq_ignore_ascii_case("return");
        let (others, status) =
            status.strip_prefix('!').map_or((false, status), |status| (true, status));
        let is = |name: &str| status.eq_ignore_ascii_case(name) != others;
        let Ends { success, not_found, failure } = *self;
        *self = Ends {
            success: if is("SUCCESS") { ends } else { success },
            not_found: if is("NOTFOUND") { ends } else { not_found },
            failure: if is("UNAVAIL") { ends } else { failure },
        };
    }
}

/// `ask` returns `None` for a service that is not installed.
pub(super) fn first<T>(
    steps: &[Step],
    mut ask: impl FnMut(&str) -> Option<Outcome<T>>,
) -> Result<Option<T>, ServiceFailed> {
    let mut failed = None;
    for Step { service, ends } in steps {
        let ended = match ask(service) {
            None => false,
            Some(Outcome::Found(found)) => return Ok(Some(found)),
            Some(Outcome::NotFound) => ends.not_found,
            Some(Outcome::Failed(errno)) => {
                failed = failed.or_else(|| failure(service, errno));
                ends.failure
            }
        };
        if ended {
            break;
        }
    }
    failed.map_or(Ok(None), Err)
}

/// All services together: the list of a user's groups is complete or an error.
pub(super) fn all<T>(
    nsswitch: &Nsswitch,
    mut ask: impl FnMut(&str) -> Option<Outcome<Vec<T>>>,
) -> Result<Vec<T>, ServiceFailed> {
    let (steps, success_ends) = match &nsswitch.initgroups {
        Some(steps) => (steps, true),
        None => (&nsswitch.group, false),
    };
    let mut found = Vec::new();
    for Step { service, ends } in steps {
        let ended = match ask(service) {
            None => false,
            Some(Outcome::Found(more)) => {
                found.extend(more);
                success_ends && ends.success
            }
            Some(Outcome::NotFound) => ends.not_found,
            Some(Outcome::Failed(errno)) => {
                failure(service, errno).map_or(Ok(()), Err)?;
                ends.failure
            }
        };
        if ended {
            break;
        }
    }
    Ok(found)
}

/// A missing file, the service of a systemd that does not run, and a module whose daemon was never
/// set up are no outages.
fn failure(service: &str, errno: i32) -> Option<ServiceFailed> {
    let is_outage = match service {
        "files" | "compat" | "db" | "extrausers" | "altfiles" => errno != libc::ENOENT,
        "systemd" | "mymachines" => false,
        "sss" => is_sssd_set_up(Path::new("/")),
        _ => true,
    };
    is_outage.then(|| ServiceFailed { service: service.to_owned(), errno })
}

/// A package installs the module, also where SSSD was never configured. The socket is on disk and
/// stays while SSSD is stopped; so does its configuration if the socket is lost.
fn is_sssd_set_up(root: &Path) -> bool {
    ["var/lib/sss/pipes/nss", "etc/sssd/sssd.conf"]
        .iter()
        .any(|path| root.join(path).try_exists().unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Failed, Found, NotFound};

    fn passwd(line: &str) -> Vec<Step> {
        Nsswitch::parse(&format!("# passwd: nothing\npasswd: {line} # more\n")).passwd
    }

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| &*step.service).collect()
    }

    #[test]
    fn parses_services_and_actions() {
        assert_eq!(names(&passwd("files  sss systemd")), ["files", "sss", "systemd"]);
        assert_eq!(Nsswitch::parse("group:\n").group, passwd("files"));
        assert_eq!(Nsswitch::parse("").initgroups, None);
        assert_eq!(
            names(&Nsswitch::parse("initgroups: sss [SUCCESS=merge] files").initgroups.unwrap()),
            ["sss", "files"]
        );
        let ends = |line: &str| passwd(line)[0].ends;
        assert_eq!(
            ends("ldap [NOTFOUND=return] files"),
            Ends { not_found: true, ..Ends::default() }
        );
        assert_eq!(
            ends("ldap [ UNAVAIL=RETURN notfound=return ]"),
            Ends { failure: true, not_found: true, ..Ends::default() }
        );
        assert_eq!(
            ends("sss[!UNAVAIL=return] files"),
            Ends { success: true, not_found: true, failure: false }
        );
        assert_eq!(ends("[NOTFOUND=return] files"), Ends::default());
    }

    #[test]
    fn outage_is_not_mistaken_for_a_missing_user() {
        let ask = |line: &str, of: &[(&str, Outcome<u32>)]| {
            first(&passwd(line), |service| {
                of.iter().find(|(name, _)| *name == service).map(|(_, outcome)| outcome.clone())
            })
        };
        let down = |service: &str| Err(ServiceFailed { service: service.into(), errno: 2 });
        let away = [("files", NotFound), ("ldap", Failed(2)), ("systemd", Failed(2))];
        assert_eq!(ask("files ldap systemd", &away), down("ldap"));
        assert_eq!(ask("files systemd", &away), Ok(None));
        assert_eq!(ask("files ldap", &[("files", Found(7)), ("ldap", Failed(2))]), Ok(Some(7)));
        assert_eq!(ask("ldap files", &[("files", Found(7)), ("ldap", Failed(2))]), Ok(Some(7)));
        assert_eq!(
            ask("ldap [UNAVAIL=return] files", &[("files", Found(7)), ("ldap", Failed(2))]),
            down("ldap")
        );
        assert_eq!(
            ask("ldap [NOTFOUND=return] files", &[("files", Found(7)), ("ldap", NotFound)]),
            Ok(None)
        );
        assert_eq!(ask("files not-installed", &[("files", NotFound)]), Ok(None));
        assert_eq!(ask("files", &[("files", Failed(2))]), Ok(None));
        assert_eq!(
            ask("files", &[("files", Failed(libc::EMFILE))]),
            Err(ServiceFailed { service: "files".into(), errno: libc::EMFILE })
        );
    }

    #[test]
    fn sssd_that_was_never_set_up_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        // What the package of the module brings.
        std::fs::create_dir_all(root.path().join("var/lib/sss/pipes/private")).unwrap();
        assert!(!is_sssd_set_up(root.path()));
        put("etc/sssd/sssd.conf");
        assert!(is_sssd_set_up(root.path()), "the socket of a configured SSSD may be lost");
        std::fs::remove_file(root.path().join("etc/sssd/sssd.conf")).unwrap();
        put("var/lib/sss/pipes/nss");
        assert!(is_sssd_set_up(root.path()), "SSSD is stopped");
    }

    // Holds on each machine: with SSSD set up, a failure is an outage, else nothing.
    #[test]
    fn absent_sssd_ends_no_lookup() {
        let found = first::<u32>(&passwd("files sss"), |service| {
            Some(if service == "sss" { Failed(libc::ENOENT) } else { NotFound })
        });
        assert_eq!(found.is_err(), is_sssd_set_up(Path::new("/")));
    }

    #[test]
    fn groups_are_complete_or_an_error() {
        let ask = |text: &str, ldap: Outcome<Vec<u32>>| {
            all(&Nsswitch::parse(text), |service| match service {
                "files" => Some(Found(vec![1, 2])),
                "ldap" => Some(ldap.clone()),
                _ => None,
            })
        };
        assert_eq!(ask("group: files ldap", Found(vec![3])), Ok(vec![1, 2, 3]));
        assert_eq!(ask("group: files ldap", NotFound), Ok(vec![1, 2]));
        assert!(ask("group: files ldap", Failed(2)).is_err());
        assert_eq!(ask("group: files\ninitgroups: files ldap", Found(vec![3])), Ok(vec![1, 2]));
        assert_eq!(
            ask("group: files\ninitgroups: files [SUCCESS=continue] ldap", Found(vec![3])),
            Ok(vec![1, 2, 3])
        );
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(text: String) {
            Nsswitch::parse(&text);
            Nsswitch::parse(&format!("passwd: {text}\ngroup:[{text}]{text}"));
        }
    }
}
