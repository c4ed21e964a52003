//! An export: its state directory, its process, its address and its keytab.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use vouch_export::{NameServiceStatus, RefusalStatus, Status};
use vouch_trust::{Access, Exposure};

use crate::MachineStatus;
use crate::finding::{Fault, Finding, Findings};

/// Checks the export with this state directory.
pub fn check(state: &Path, machine: &MachineStatus, findings: &mut Findings) {
    findings.add(rights(state));
    let absolute = |path: &str| Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
    let Some((daemon, status)) = machine
        .exports()
        .find(|(_, status)| absolute(&status.site.state) == absolute(&state.to_string_lossy()))
    else {
        return findings.add(
            Finding::note(
                Fault::ExportNotRunning,
                state.display(),
                "no server with this state directory answers this user",
            )
            .cure("start it, or run as root; its log says why it ended"),
        );
    };
    findings.add(Finding::ok(
        state.display(),
        format_args!("used by process {}, {} exports", daemon.pid, status.exports.len()),
    ));
    for address in
        status.site.addresses.iter().filter_map(|address| address.parse::<SocketAddr>().ok())
    {
        findings.add(listens(address));
    }
    if let Some(keytab) = &status.site.keytab {
        findings.add(check_keytab(Path::new(keytab)));
    }
    findings.add(name_service(&status));
    let recent = crate::now_s().saturating_sub(REFUSAL_AGE_S_MAX);
    for refused in status
        .refusals
        .iter()
        .filter(|refused| u64::try_from(refused.at_seconds).is_ok_and(|at| at >= recent))
    {
        findings.add(refusal(refused));
    }
    findings.add_logged_errors(state.display(), daemon);
}

/// Reports failed and late look-ups of users and groups by the export.
fn name_service(status: &Status) -> Finding {
    let NameServiceStatus { silent_ms, lookups, failed, late, refused, .. } = &status.name_service;
    let subject = "users and groups";
    match silent_ms {
        Some(silent_ms) => Finding::problem(
            Fault::NameServiceSilent,
            subject,
            format_args!(
                "look-ups have failed for {} s ({failed} failed, {late} took too long); {refused} calls got NFS4ERR_DELAY",
                silent_ms / 1000
            ),
        )
        .cure("`getent passwd USER` and `getent group GROUP` must answer at once: see that sssd or nslcd runs and reaches the directory"),
        None if *late > 0 => Finding::note(Fault::NameServiceSlow, subject, format_args!("{late} calls waited for a look-up in vain"))
            .cure("time `getent passwd USER` and `id USER`; index uid, uidNumber, gidNumber and memberUid in the directory"),
        None => Finding::ok(subject, format_args!("{lookups} look-ups, {failed} failed")),
    }
}

/// A caller that the server refused.
fn refusal(
    RefusalStatus { fault, caller, address, reason, at_seconds }: &RefusalStatus,
) -> Finding {
    let at = jiff::Timestamp::from_second(*at_seconds).unwrap_or_default();
    let subject = if caller.is_empty() { address } else { caller };
    let what = format!("was refused at {at} from {address}: {reason}");
    match fault.as_str() {
        "user-without-account" => Finding::note(Fault::UserWithoutAccount, subject, what)
            .cure("`getent passwd USER` must show the user; else map the principal by auth_to_local in krb5.conf or by --principal-map"),
        "client-name-conflict" => Finding::note(Fault::ClientNameConflict, subject, what)
            .cure("if two machines have one host name, rename one of them, or set nfs4_unique_id of the module nfs on each"),
        // The reason of a refused ticket ends with its cure. A problem it is not: any peer may send a
        // bad ticket.
        "keytab-stale-key" => Finding::note(Fault::KeytabStaleKey, subject, what),
        "clock-skew" => Finding::note(Fault::ClockSkew, subject, what),
        _ => Finding::note(Fault::TicketRefused, subject, what),
    }
}

/// The state directory holds the key of file handles.
fn rights(state: &Path) -> Finding {
    let checked =
        fs::metadata(state).map(|metadata| vouch_trust::check(state, &metadata, Access::Nothing));
    match checked {
        Err(error) => Finding::problem(
            Fault::StateRights,
            state.display(),
            format_args!("cannot be entered: {error}"),
        )
        .cure("run as its owner"),
        Ok(Err(Exposure { place, what, cure, .. })) => Finding::problem(
            Fault::StateRights,
            place.display(),
            format_args!("{what}; the server does not start with it"),
        )
        .cure(format_args!(
            "{cure}; if others had access, remove filehandle.key and mount all clients again"
        )),
        Ok(Ok(())) => Finding::ok(state.display(), "state directory is private"),
    }
}

fn listens(address: SocketAddr) -> Finding {
    let mut local = address;
    if address.ip().is_unspecified() {
        local.set_ip(if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    match TcpStream::connect_timeout(&local, CONNECT_WAIT_MAX) {
        Ok(_) => Finding::ok(address, "accepts connections from this machine"),
        Err(error) => Finding::problem(
            Fault::PortBlocked,
            address,
            format_args!("does not accept connections from this machine: {error}"),
        )
        .cure(format_args!(
            "a firewall rule of this machine blocks port {} (`nft list ruleset`)",
            address.port()
        )),
    }
}

/// Checks that the keytab has a key of the service nfs, and that only its owner may read it.
pub fn check_keytab(keytab: &Path) -> Finding {
    check_keytab_for(keytab, SERVICE)
}

/// The same for another service.
pub(crate) fn check_keytab_for(keytab: &Path, service: &str) -> Finding {
    match fs::metadata(keytab) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::problem(Fault::KeytabMissing, keytab.display(), "does not exist")
                .cure(format_args!("make it on the KDC (`kadmin: ktadd -k FILE {service}/HOST`), or name another by --keytab"));
        }
        Ok(metadata) => {
            if let Err(Exposure { place, what, cure, .. }) =
                vouch_trust::check(keytab, &metadata, Access::GroupRead)
            {
                return Finding::problem(Fault::KeytabRights, place.display(), what)
                    .cure(format_args!("{cure}, and change the keys if others could read them"));
            }
        }
        _ => {}
    }
    match vouch_gss_mit::check_keytab(Some(keytab), service) {
        Ok(()) => Finding::ok(keytab.display(), format_args!("has a key of the service {service}")),
        Err(fault) => {
            Finding::problem(Fault::KeytabWithoutKey, keytab.display(), format_args!("no key of {service}/HOST can be used: {fault}")).cure(
                format_args!(
                    "add it on the KDC: `kadmin: addprinc -randkey {service}/HOST` and `ktadd -k FILE {service}/HOST`; in a domain of \
                     Samba `net ads setspn add {service}/HOST` and `net ads keytab create`; `klist -ke FILE` lists what is there"
                ),
            )
        }
    }
}

const SERVICE: &str = "nfs";
const REFUSAL_AGE_S_MAX: u64 = 3600;
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
