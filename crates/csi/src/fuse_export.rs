//! Attributes of an export, and a pod's identity, as a mount by `vouch nfs-mount`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use tonic::Status;

use crate::attributes::{ExportMount, TLS_FILES, invalid};
use crate::mount_spec::ExportSpec;
use crate::pod_certificate::is_in;

/// The pod as kubelet describes it, with `podInfoOnMount`, and its Secret.
pub(crate) struct Pod<'a> {
    pub(crate) context: &'a HashMap<String, String>,
    pub(crate) secrets: &'a HashMap<String, String>,
    pub(crate) target: &'a Path,
}

impl ExportMount {
    /// `flags` are the mountOptions of the class.
    pub(crate) fn fuse(
        &self,
        flags: &[String],
        is_read_only: bool,
        pod: &Pod<'_>,
    ) -> Result<ExportSpec, Status> {
        let mut options: Vec<OsString> =
            self.sec.iter().map(|sec| format!("--sec={sec}").into()).collect();
        options.extend(self.port.map(|port| format!("--port={port}").into()));
        for flag in flags.iter().flat_map(|flag| flag.split(',')) {
            options.extend(option(flag)?.map(OsString::from));
        }
        if is_read_only && !options.contains(&READ_ONLY.into()) {
            options.push(READ_ONLY.into());
        }
        let is_of_pod = ["ca.crt", "tls.crt"].map(|file| is_in(pod.secrets, file));
        self.tls_options(pod, is_of_pod, &mut options)?;
        let is_own = self.has_pod_tickets || is_of_pod.contains(&true);
        Ok(ExportSpec {
            source: self.source(),
            options,
            target: is_own.then(|| pod.target.to_owned()),
            cache: None,
        })
    }

    /// Files of the Secret come before those of the node.
    fn tls_options(
        &self,
        pod: &Pod<'_>,
        [has_authority, has_certificate]: [bool; 2],
        options: &mut Vec<OsString>,
    ) -> Result<(), Status> {
        if !self.has_tls() {
            return match has_authority || has_certificate {
                true => Err(invalid("xprtsec: a Secret with a certificate needs tls or mtls")),
                false => Ok(()),
            };
        }
        let [authority, certificate, key] = &self.tls;
        if authority.is_none() && !has_authority {
            return Err(invalid(
                "tlsCa: name the file of the server's authority, or put it as ca.crt into the Secret",
            ));
        }
        let is_mutual = self.xprtsec.as_deref() == Some("mtls");
        if is_mutual && certificate.is_none() && !has_certificate {
            return Err(invalid(
                "tlsCert: xprtsec=mtls needs a certificate, by tlsCert and tlsKey or in the Secret",
            ));
        }
        if has_certificate && !is_in(pod.secrets, "tls.key") {
            return Err(invalid("the Secret has tls.crt without tls.key"));
        }
        let mut push = |option: &str, key: &str, file: &Option<String>| -> Result<(), Status> {
            if let Some(file) = file {
                options.extend([option.into(), filled(key, file, pod.context)?.into()]);
            }
            Ok(())
        };
        if !has_authority {
            push("--tls-ca", TLS_FILES[0], authority)?;
        }
        if !has_certificate {
            push("--tls-cert", TLS_FILES[1], certificate)?;
            push("--tls-key", TLS_FILES[2], key)?;
        }
        Ok(())
    }
}

/// Each namespace or pod has a file of its own by `${namespace}`, `${serviceAccount}` and `${pod}`.
fn filled(key: &str, file: &str, context: &HashMap<String, String>) -> Result<String, Status> {
    // Names are unique within their namespace, and a namespace's name has neither of these characters.
    let has_name = |text: &str| VARIABLES[1..].iter().any(|(name, _)| text.contains(name));
    let is_within = |end: &&str| file.split_once(*end).is_some_and(|(start, _)| !has_name(start));
    if has_name(file) && !["${namespace}/", "${namespace}."].iter().any(is_within) {
        return Err(invalid(&format!(
            "{key}: other namespaces have equal names; write ${{namespace}}/ or ${{namespace}}. before them"
        )));
    }
    let mut text = file.to_owned();
    for (variable, name) in VARIABLES {
        if !text.contains(variable) {
            continue;
        }
        let value = context.get(name).ok_or_else(|| {
            invalid(&format!(
                "{key}: {variable} needs podInfoOnMount: true in the CSIDriver object"
            ))
        })?;
        // Names of Kubernetes are such. Another one must not lead to another file.
        let is_plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        if value.is_empty() || value.starts_with('.') || !value.bytes().all(is_plain) {
            return Err(invalid(&format!("{key}: {variable} is no name of Kubernetes")));
        }
        text = text.replace(variable, value);
    }
    match text.contains("${") {
        true => Err(invalid(&format!(
            "{key}: of variables there are ${{namespace}}, ${{serviceAccount}} and ${{pod}}"
        ))),
        false => Ok(text),
    }
}

/// An option of `vouch nfs-mount`, from one of nfs(5) or of its own. None: it is so already.
fn option(flag: &str) -> Result<Option<String>, Status> {
    let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
    let (name, has_value) = match name {
        "rw" | "hard" | "nosuid" | "nodev" if value.is_empty() => return Ok(None),
        "ro" => ("read-only", false),
        "suid" | "dev" | "noexec" | "noac" => (name, false),
        "nconnect" => ("connections", true),
        "soft" | "port" | "acregmin" | "acregmax" | "acdirmin" | "acdirmax" | "principal"
        | "tls-name" | "io-size" | "read-ahead" | "write-buffer" => (name, true),
        _ => {
            return Err(invalid(&format!(
                "mountOptions: {flag}: client: fuse does not have it; docs/kubernetes-exports.md lists its options"
            )));
        }
    };
    match (has_value, value.is_empty()) {
        (true, false) => Ok(Some(format!("--{name}={value}"))),
        (false, true) if !flag.contains('=') => Ok(Some(format!("--{name}"))),
        (true, _) => Err(invalid(&format!("mountOptions: {flag}: needs a value"))),
        (false, _) => Err(invalid(&format!("mountOptions: {flag}: takes no value"))),
    }
}

const READ_ONLY: &str = "--read-only";

const VARIABLES: [(&str, &str); 3] = [
    ("${namespace}", "csi.storage.k8s.io/pod.namespace"),
    ("${serviceAccount}", "csi.storage.k8s.io/serviceAccount.name"),
    ("${pod}", "csi.storage.k8s.io/pod.name"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;

    fn map(given: &[(&str, &str)]) -> HashMap<String, String> {
        given.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn spec(
        attributes: &[(&str, &str)],
        flags: &[&str],
        secrets: &[(&str, &str)],
    ) -> Result<(Vec<String>, bool), String> {
        let fixed = [("server", "f"), ("share", "/v"), ("client", "fuse")];
        let attributes = map(&[&fixed, attributes].concat());
        let context = map(&[
            ("csi.storage.k8s.io/pod.namespace", "physics"),
            ("csi.storage.k8s.io/pod.name", "../../etc"),
        ]);
        let pod = Pod { context: &context, secrets: &map(secrets), target: Path::new("/pods/a") };
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let spec = match Attributes::parse(&attributes) {
            Ok(Attributes::Export(export)) => export.fuse(&flags, true, &pod),
            other => panic!("{other:?}"),
        };
        let spec = spec.map_err(|status| status.message().to_owned())?;
        let options = spec.options.iter().map(|o| o.to_str().expect("text").to_owned());
        Ok((options.collect(), spec.target.is_some()))
    }

    #[test]
    fn options_of_the_class_become_those_of_the_client() {
        let flags = ["noexec,nconnect=4", "hard", "acregmax=5", "ro"];
        let (options, is_own) = spec(&[("sec", "sys"), ("port", "2050")], &flags, &[]).unwrap();
        let wanted = [
            "--sec=sys",
            "--port=2050",
            "--noexec",
            "--connections=4",
            "--acregmax=5",
            "--read-only",
        ];
        assert_eq!((&options[..], is_own), (&wanted.map(String::from)[..], false));
        for bad in ["sec=sys", "timeo=3", "noac=1", "port=", "--allow-other", "x=--y"] {
            let error = spec(&[], &[bad], &[]).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
    }

    #[test]
    fn certificate_is_that_of_namespace_or_secret() {
        let files = [
            ("xprtsec", "mtls"),
            ("tlsCa", "/etc/ca.pem"),
            ("tlsCert", "/etc/${namespace}.pem"),
            ("tlsKey", "/etc/${namespace}.key"),
        ];
        let (options, is_own) = spec(&files, &[], &[]).unwrap();
        assert!(options.contains(&"/etc/physics.pem".to_owned()) && !is_own, "{options:?}");
        let secret = [("tls.crt", "c"), ("tls.key", "k"), ("ca.crt", "a")];
        let (options, is_own) = spec(&files, &[], &secret).unwrap();
        assert!(is_own && options == ["--read-only"], "{options:?}");
        for (attributes, secrets, part) in [
            (&[("xprtsec", "tls")][..], &[][..], "tlsCa"),
            (&[("xprtsec", "mtls"), ("tlsCa", "/a")], &[], "tlsCert"),
            (&[("xprtsec", "mtls"), ("tlsCa", "/a")], &secret[..1], "tls.key"),
            (&[], &secret, "xprtsec"),
            (&[("xprtsec", "tls"), ("tlsCa", "/${namespace}/${pod}")], &[], "no name"),
            (
                &[("xprtsec", "tls"), ("tlsCa", "/${namespace}.${serviceAccount}")],
                &[],
                "podInfoOnMount",
            ),
            (&[("xprtsec", "tls"), ("tlsCa", "/${pod}")], &[], "equal names"),
            (&[("xprtsec", "tls"), ("tlsCa", "/${serviceAccount}")], &[], "equal names"),
            (&[("xprtsec", "tls"), ("tlsCa", "/${namespace}-${pod}")], &[], "equal names"),
            (&[("xprtsec", "tls"), ("tlsCa", "/${pod}-${namespace}/a")], &[], "equal names"),
            (&[("xprtsec", "tls"), ("tlsCa", "/${node}")], &[], "variables"),
        ] {
            let error = spec(attributes, &[], secrets).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
