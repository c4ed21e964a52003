//! The dry run of an export list.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vouch_config::Value;
use vouch_diagnose::{Fault, Finding, Findings, check_keytab};
use vouch_export::{
    CheckedList, CheckedTls, EffectiveExport, ExportList, TlsConfig, TlsFiles, check_principal_map,
    system_keytab,
};
use vouch_tree_client::read_policy;

use super::running::Running;
use crate::exit::{Code, Failure, Outcome};
use crate::{config, output};

/// Check export lists and the files beside them, without a server.
///
/// Reads the lists as a server would at its start or reload, resolves their hosts and opens their
/// directories. Then checks the TLS files, the keytab, the principal map and the policies of
/// witnesses. Prints the options in force for each client, as `exportfs -v` does. Files that are not
/// given are those of [export] in the configuration; without any, the lists are /etc/exports and
/// /etc/exports.d. Exports that were added with --keep count too. Published trees are not opened.
/// Nothing is written, and a running server is not told. With --server, that server checks its own
/// lists and TLS files.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch export check                                   what the service of this machine would load\n  \
                  vouch export check --exports ./exports.new           a list before it is installed\n  \
                  vouch export check --client 192.0.2.7                what one client may do\n\n\
                  Exit codes: 0 no problem found; 1 a problem was found. docs/troubleshooting.md lists all faults by name."
)]
pub(crate) struct Args {
    /// File of exports, or a directory of such files (*.exports); may be repeated.
    #[arg(long, value_name = "FILE")]
    exports: Vec<PathBuf>,
    /// Show only the rules that count for this client.
    #[arg(long, value_name = "ADDR")]
    client: Option<IpAddr>,
    /// Keytab; if a list has a Kerberos flavour, the default is the system's.
    #[arg(long, value_name = "FILE")]
    keytab: Option<PathBuf>,
    /// Certificate of the server (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities (PEM) of client certificates.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Certificate revocation list of these authorities; may be repeated.
    #[arg(long, value_name = "FILE", requires = "tls_client_ca")]
    tls_crl: Vec<PathBuf>,
    /// Map of client certificates.
    #[arg(long, value_name = "FILE", requires = "tls_client_ca")]
    certificate_map: Option<PathBuf>,
    /// Map of Kerberos principals.
    #[arg(long, value_name = "FILE")]
    principal_map: Option<PathBuf>,
    /// Policy of witnesses for exported trees; may be repeated.
    #[arg(long = "policy", value_name = "FILE")]
    witness_policy: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    exports: Vec<EffectiveExport>,
    #[serde(flatten)]
    findings: Findings,
}

pub(super) fn run(args: Args, running: Running<'_>) -> Outcome {
    let mut findings = Findings::default();
    if running.server.is_given() {
        if has_files(&args) {
            return Err(Failure::usage("--server", "checks the files that the server has"));
        }
        let checked = running.connect()?.check(args.client)?;
        let exports = add_list(checked, &mut findings).map_or_else(Vec::new, |list| list.exports);
        return show(exports, findings, args.json);
    }
    let state = running.state;
    let tls = tls(&args);
    if let Some(tls) = &tls {
        add_tls(tls, &mut findings);
    }
    policies(&args).iter().for_each(|policy| findings.add(check_policy(policy)));
    let state = state.map(Path::to_owned).or_else(|| super::default_state().ok());
    let checked = list(&args).check(state.as_deref(), tls.as_ref(), args.client);
    let checked = add_list(checked, &mut findings);
    let lists_kerberos = checked.as_ref().is_some_and(|checked| checked.lists_kerberos);
    let exports = checked.map_or_else(Vec::new, |checked| checked.exports);
    let keytab = args
        .keytab
        .or_else(|| setting("keytab"))
        .or_else(|| if lists_kerberos { system_keytab() } else { None });
    keytab.iter().for_each(|keytab| findings.add(check_keytab(keytab)));
    if let Some(map) = args.principal_map.or_else(|| setting("principal-map")) {
        findings.add(match check_principal_map(&map) {
            Ok(()) => Finding::ok(map.display(), "principal map is valid"),
            Err(error) => Finding::problem(Fault::ExportList, map.display(), error)
                .cure("correct it; see docs/formats/principal-map.md"),
        });
    }
    show(exports, findings, args.json)
}

fn add_list(
    checked: Result<CheckedList, impl Display>,
    findings: &mut Findings,
) -> Option<CheckedList> {
    match checked {
        Ok(checked) => {
            findings
                .add(Finding::ok("export list", format_args!("{} rules", checked.exports.len())));
            checked
                .warnings
                .iter()
                .for_each(|warning| findings.add(warning_of(warning, &checked.left_out)));
            Some(checked)
        }
        Err(error) => {
            findings.add(Finding::problem(Fault::ExportList, "export list", error).cure(
                "correct it; a server does not start with it, and a reload keeps the old list",
            ));
            None
        }
    }
}

/// Files of this machine.
fn has_files(args: &Args) -> bool {
    let Args { keytab, tls_cert, tls_key, tls_client_ca, certificate_map, principal_map, .. } =
        args;
    let files = [keytab, tls_cert, tls_key, tls_client_ca, certificate_map, principal_map];
    let lists = [&args.exports, &args.tls_crl, &args.witness_policy];
    files.iter().any(|file| file.is_some()) || lists.iter().any(|list| !list.is_empty())
}

fn show(exports: Vec<EffectiveExport>, findings: Findings, json: bool) -> Outcome {
    let has_problems = findings.has_problems();
    if json {
        output::json(&Report { exports, findings })?;
    } else {
        let shown: String = exports.iter().map(line).collect();
        output::text(&format!("{shown}{}{findings}", if exports.is_empty() { "" } else { "\n" }))?;
    }
    if has_problems { Err(Failure::silent(Code::Differs)) } else { Ok(()) }
}

/// The form of `exportfs -v`.
fn line(EffectiveExport { path, client, options }: &EffectiveExport) -> String {
    format!("{path:<15} {client}({options})\n")
}

/// A source that is left out is a problem, any other warning is not.
fn warning_of(warning: &str, left_out: &[String]) -> Finding {
    let is_left_out =
        left_out.iter().any(|source| warning.starts_with(&format!("{source} is not exported")));
    let (what, cure) = warning.rsplit_once("; ").unwrap_or((warning, ""));
    let finding = match is_left_out {
        true => Finding::problem(Fault::NotExported, "export list", what),
        false => Finding::note(Fault::ExportWarning, "export list", what),
    };
    if cure.is_empty() { finding } else { finding.cure(cure) }
}

fn add_tls(tls: &TlsConfig, findings: &mut Findings) {
    const FAULT: Fault = Fault::Certificate;
    match tls.check() {
        Err(error) => findings.add(
            Finding::problem(FAULT, "TLS", error)
                .cure("correct the file; a server does not start with it"),
        ),
        Ok(CheckedTls { certificate, days_left, is_revocation_overdue }) => {
            findings.add(match days_left {
                ..0 => Finding::problem(
                    FAULT,
                    certificate,
                    "the certificate has expired: clients refuse it",
                )
                .cure("renew it"),
                0..14 => Finding::note(
                    FAULT,
                    certificate,
                    format_args!("the certificate expires in {days_left} days"),
                )
                .cure("renew it"),
                _ => Finding::ok(
                    certificate,
                    format_args!("certificate and key fit; {days_left} days left"),
                ),
            });
            if is_revocation_overdue {
                findings.add(
                    Finding::note(
                        FAULT,
                        "TLS",
                        "a list of revoked certificates is older than its next update",
                    )
                    .cure("fetch the new one"),
                );
            }
        }
    }
}

fn list(args: &Args) -> ExportList {
    let mut files = args.exports.clone();
    if files.is_empty() {
        if let Some(dir) = setting("dir") {
            let text =
                |name, default: &str| values(name).pop().unwrap_or_else(|| default.to_owned());
            return ExportList::One {
                source: dir.into_os_string().into_encoded_bytes(),
                pseudo: text("pseudo", "/export"),
                options: text("options", "rw,insecure"),
            };
        }
        files = values("exports").into_iter().map(PathBuf::from).collect();
    }
    if files.is_empty() {
        files = ["/etc/exports", "/etc/exports.d"].map(PathBuf::from).to_vec();
    }
    ExportList::Files(files)
}

fn tls(args: &Args) -> Option<TlsConfig> {
    let file = |given: &Option<PathBuf>, name| given.clone().or_else(|| setting(name));
    let revoked = if args.tls_crl.is_empty() {
        values("tls-crl").into_iter().map(PathBuf::from).collect()
    } else {
        args.tls_crl.clone()
    };
    let (certificate, key) =
        file(&args.tls_cert, "tls-cert").zip(file(&args.tls_key, "tls-key"))?;
    Some(TlsConfig {
        files: TlsFiles {
            certificate,
            key,
            client_authorities: file(&args.tls_client_ca, "tls-client-ca"),
            revoked,
        },
        certificate_map: file(&args.certificate_map, "certificate-map"),
        by_kernel: false,
    })
}

/// The top level of the configuration has those of all readers.
fn policies(args: &Args) -> Vec<PathBuf> {
    if !args.witness_policy.is_empty() {
        return args.witness_policy.clone();
    }
    let of_exports = values("policy");
    let policies = if of_exports.is_empty() { values_at("policy") } else { of_exports };
    policies.into_iter().map(PathBuf::from).collect()
}

fn check_policy(policy: &Path) -> Finding {
    match read_policy(policy) {
        Ok(_) => Finding::ok(policy.display(), "policy of witnesses is valid"),
        Err(error) => Finding::problem(Fault::ExportList, "policy", error)
            .cure("correct it; a server does not start with it"),
    }
}

fn setting(name: &str) -> Option<PathBuf> {
    values(name).pop().map(PathBuf::from)
}

/// Of [export] in the configuration.
fn values(name: &str) -> Vec<String> {
    values_at(&format!("export.{name}"))
}

fn values_at(key: &str) -> Vec<String> {
    let settings = config::loaded().settings();
    let found = settings.into_iter().find(|(found, _)| found == key);
    match found.map(|(_, setting)| setting.value) {
        Some(Value::One(value)) => vec![value],
        Some(Value::Many(values)) => values,
        Some(Value::Flag(_)) | None => Vec::new(),
    }
}
