//! Attributes of volumes: parameters of a StorageClass, `volumeAttributes` of a PersistentVolume or of
//! a volume within a pod. Unknown ones are refused, so that a misspelt policy is no missing policy.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use tonic::Status;
use vouch_tree::TreeName;

use crate::records::digest;

/// A mount of a tree. Equal ones share one mount on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeMount {
    pub(crate) name: String,
    pub(crate) revision: Option<u64>,
    pub(crate) tag: Option<String>,
    /// The text of a policy of witnesses.
    pub(crate) policy: Option<String>,
    pub(crate) replicas: Vec<String>,
    pub(crate) only_replicas: bool,
    pub(crate) replica_tls: bool,
    pub(crate) refresh: Option<String>,
}

/// An exported directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportMount {
    pub(crate) server: String,
    pub(crate) share: String,
    pub(crate) port: Option<u16>,
    pub(crate) sec: Option<String>,
    pub(crate) xprtsec: Option<String>,
    /// The pod's user gets tickets of Kerberos for it.
    pub(crate) has_pod_tickets: bool,
    /// `vouch nfs-mount` in place of the kernel's client.
    pub(crate) is_fuse: bool,
    /// Files of the node: authorities, certificate, key.
    pub(crate) tls: [Option<String>; 3],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attributes {
    /// With a path within.
    Tree(TreeMount, String),
    Export(ExportMount),
}

impl Attributes {
    pub(crate) fn parse(given: &HashMap<String, String>) -> Result<Self, Status> {
        let mut rest: BTreeMap<&str, &str> = given
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .filter(|(key, _)| !key.contains(".k8s.io/") && !key.contains("kubernetes.io/"))
            .collect();
        let attributes = match (rest.contains_key("name"), rest.contains_key("server")) {
            (true, false) => Self::tree(&mut rest)?,
            (false, true) => Self::export(&mut rest)?,
            (true, true) => {
                return Err(invalid("name and server: give one of them, for a tree or an export"));
            }
            (false, false) => {
                return Err(invalid(
                    "name is missing; set it to the tree's name, @HOST,HOSTID, in volumeAttributes \
                     or in the parameters of the StorageClass",
                ));
            }
        };
        match rest.keys().next() {
            Some(key) => {
                Err(invalid(&format!("{key}: unknown attribute; docs/kubernetes.md lists them")))
            }
            None => Ok(attributes),
        }
    }

    fn tree(rest: &mut BTreeMap<&str, &str>) -> Result<Self, Status> {
        let mut take = |key| rest.remove(key).map(str::trim).filter(|value| !value.is_empty());
        let name = take("name").unwrap_or_default();
        // A path in the name, as the commands take it.
        let (name, path) = name.split_once('/').unwrap_or((name, ""));
        // The canonical text is that of the kernel's mount table.
        let name: TreeName = name.parse().map_err(|error| invalid(&format!("name: {error}")))?;
        let path = [path, take("path").unwrap_or("")].join("/").trim_matches('/').to_owned();
        let revision = take("revision")
            .map(|text| text.parse().map_err(|_| invalid("revision: is not a number")))
            .transpose()?;
        let mount = TreeMount {
            name: name.to_string(),
            revision,
            tag: take("tag").map(str::to_owned),
            policy: take("policy").map(str::to_owned),
            replicas: take("replica").map(list).unwrap_or_default(),
            only_replicas: take("onlyReplicas")
                .map_or(Ok(false), |text| flag("onlyReplicas", text))?,
            replica_tls: take("replicaTls").map_or(Ok(false), |text| flag("replicaTls", text))?,
            refresh: take("refresh").map(interval).transpose()?,
        };
        if mount.revision.is_some() && mount.tag.is_some() {
            return Err(invalid("revision and tag: give one of them"));
        }
        Ok(Self::Tree(mount, path))
    }

    fn export(rest: &mut BTreeMap<&str, &str>) -> Result<Self, Status> {
        let mut take = |key| rest.remove(key).map(str::trim).filter(|value| !value.is_empty());
        let export = ExportMount {
            server: take("server").unwrap_or_default().to_owned(),
            share: take("share").unwrap_or_default().to_owned(),
            port: take("port")
                .map(|text| text.parse().map_err(|_| invalid("port: is no port")))
                .transpose()?,
            sec: take("sec").map(str::to_owned),
            xprtsec: take("xprtsec").map(str::to_owned),
            has_pod_tickets: take("podTickets")
                .map_or(Ok(false), |text| flag("podTickets", text))?,
            is_fuse: match take("client") {
                None | Some("kernel") => false,
                Some("fuse") => true,
                Some(_) => return Err(invalid("client: write kernel or fuse")),
            },
            tls: TLS_FILES.map(|key| take(key).map(str::to_owned)),
        };
        let is_host = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b))
                && !host.starts_with('-')
        };
        if !is_host(&export.server) {
            return Err(invalid("server: write a host name or an address"));
        }
        if !export.share.starts_with('/') || export.share.split('/').any(|part| part == "..") {
            return Err(invalid("share: write the absolute path of the export"));
        }
        known("sec", &export.sec, &["sys", "krb5", "krb5i", "krb5p"])?;
        let is_kerberos = export.sec.as_deref().is_some_and(|sec| sec.starts_with("krb5"));
        if export.has_pod_tickets && !is_kerberos {
            return Err(invalid("podTickets: they need sec of krb5, krb5i or krb5p"));
        }
        if export.is_fuse && is_kerberos && !export.has_pod_tickets {
            return Err(invalid(
                "podTickets: client: fuse with sec of Kerberos needs \"true\": the mount would use the \
                 tickets of the node's root",
            ));
        }
        known("xprtsec", &export.xprtsec, &["none", "tls", "mtls"])?;
        let has_tls = export.is_fuse && export.has_tls();
        for (key, file) in TLS_FILES.iter().zip(&export.tls) {
            match file {
                Some(file) if !file.starts_with('/') => {
                    return Err(invalid(&format!("{key}: write an absolute path")));
                }
                Some(_) if !has_tls => {
                    return Err(invalid(&format!(
                        "{key}: needs client: fuse, and xprtsec of tls or mtls; tlshd has the files of the \
                         kernel's client"
                    )));
                }
                _ => {}
            }
        }
        if export.tls[1].is_some() != export.tls[2].is_some() {
            return Err(invalid("tlsCert and tlsKey: give both of them"));
        }
        Ok(Self::Export(export))
    }
}

impl TreeMount {
    pub(crate) fn key(&self) -> String {
        digest(&serde_json::to_vec(self).expect("text and numbers"))
    }

    /// Of `vouch mount`, before the name.
    pub(crate) fn options(&self) -> Vec<OsString> {
        let mut options = Vec::new();
        let mut option = |text: String| options.push(OsString::from(text));
        if let Some(revision) = self.revision {
            option(format!("--revision={revision}"));
        }
        if let Some(tag) = &self.tag {
            option(format!("--tag={tag}"));
        }
        if let Some(refresh) = &self.refresh {
            option(format!("--refresh={refresh}"));
        }
        self.replicas.iter().for_each(|replica| option(format!("--replica={replica}")));
        if self.only_replicas {
            option("--only-replicas".into());
        }
        if self.replica_tls {
            option("--replica-tls".into());
        }
        options
    }
}

impl ExportMount {
    pub(crate) fn has_tls(&self) -> bool {
        matches!(self.xprtsec.as_deref(), Some("tls" | "mtls"))
    }

    /// As in mount(8)'s tables.
    pub(crate) fn source(&self) -> String {
        let is_bare_ipv6 = self.server.contains(':') && !self.server.starts_with('[');
        let server = if is_bare_ipv6 { format!("[{}]", self.server) } else { self.server.clone() };
        format!("{server}:{}", self.share)
    }

    /// Source and options of mount.nfs(8).
    pub(crate) fn mount(
        &self,
        flags: &[String],
        is_read_only: bool,
    ) -> Result<(String, String), Status> {
        let mut options = vec!["vers=4".to_owned()];
        options.extend(self.port.map(|port| format!("port={port}")));
        options.extend(self.sec.iter().map(|sec| format!("sec={sec}")));
        options.extend(self.xprtsec.iter().map(|security| format!("xprtsec={security}")));
        for flag in flags {
            for option in flag.split(',') {
                let is_set = ["sec", "xprtsec"].contains(&option.split('=').next().unwrap_or(""));
                let is_old = option.contains("vers=") && !option.contains("vers=4");
                if is_set || is_old {
                    return Err(invalid(&format!(
                        "mountOptions: {option}: exports have version 4, and sec and xprtsec of the class"
                    )));
                }
            }
            options.push(flag.clone());
        }
        if is_read_only {
            options.push("ro".into());
        }
        Ok((self.source(), options.join(",")))
    }
}

fn list(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| c == ',' || c.is_whitespace());
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn flag(key: &str, text: &str) -> Result<bool, Status> {
    text.parse().map_err(|_| invalid(&format!("{key}: write \"true\" or \"false\"")))
}

/// A pod chooses it for its inline volume, and its node and the replicas do the work.
fn interval(text: &str) -> Result<String, Status> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let scale = match &text[end..] {
        "" | "s" => Some(1),
        "m" | "min" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = text[..end].parse::<u64>().ok().zip(scale);
    match seconds.and_then(|(number, scale)| number.checked_mul(scale)) {
        Some(seconds) if seconds >= REFRESH_S_MIN => Ok(text.to_owned()),
        _ => Err(invalid(&format!("refresh: write {REFRESH_S_MIN}s or more, as 90s, 5m or 1h"))),
    }
}

const REFRESH_S_MIN: u64 = 10;

/// Attributes with files of the node.
pub(crate) const TLS_FILES: [&str; 3] = ["tlsCa", "tlsCert", "tlsKey"];

fn known(key: &str, value: &Option<String>, all: &[&str]) -> Result<(), Status> {
    match value {
        Some(value) if !all.contains(&value.as_str()) => {
            Err(invalid(&format!("{key}: {value} is none of {}", all.join(", "))))
        }
        _ => Ok(()),
    }
}

pub(crate) fn invalid(why: &str) -> Status {
    Status::invalid_argument(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "@pub.example,kithcvpt7jsybkd6cmzmkn3awzrua3rtfz377znoyvrwog3x2v3q";

    fn parse(given: &[(&str, &str)]) -> Result<Attributes, Status> {
        Attributes::parse(
            &given.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        )
    }

    fn tree(given: &[(&str, &str)]) -> (TreeMount, String) {
        match parse(&[&[("name", NAME)], given].concat()) {
            Ok(Attributes::Tree(tree, path)) => (tree, path),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_attributes_share_a_mount_whatever_the_path() {
        let (plain, _) = tree(&[]);
        let (within, path) = tree(&[("path", "/a/b/"), ("csi.storage.k8s.io/pod.name", "p")]);
        assert_eq!((plain.key(), &*path), (within.key(), "a/b"));
        for other in [
            ("revision", "3"),
            ("tag", "v1"),
            ("policy", "quorum none"),
            ("replica", "m"),
            ("replicaTls", "true"),
        ] {
            assert_ne!(tree(&[other]).0.key(), plain.key(), "{other:?}");
        }
    }

    #[test]
    fn value_of_an_attribute_is_no_other_option() {
        let (tree, _) =
            tree(&[("tag", "--suid"), ("replica", "a, --no-cache"), ("onlyReplicas", "true")]);
        assert_eq!(
            tree.options(),
            ["--tag=--suid", "--replica=a", "--replica=--no-cache", "--only-replicas"]
        );
    }

    #[test]
    fn wrong_attributes_are_named() {
        for (key, value) in [
            ("polcy", "x"),
            ("revision", "new"),
            ("onlyReplicas", "yes"),
            ("server", "filer"),
            ("suid", "true"),
            ("refresh", "9s"),
            ("refresh", "0h"),
            ("refresh", "soon"),
            ("refresh", "99999999999999999999d"),
        ] {
            let status = parse(&[("name", NAME), (key, value)]).expect_err(key);
            assert!(status.message().contains(key), "{}", status.message());
        }
        for refresh in ["10", "90s", "1m", "2h"] {
            let option = format!("--refresh={refresh}");
            assert_eq!(tree(&[("refresh", refresh)]).0.options(), [&*option]);
        }
        assert!(parse(&[("name", "tools")]).is_err() && parse(&[]).is_err());
        assert!(parse(&[("name", NAME), ("tag", "a"), ("revision", "1")]).is_err());
    }

    #[test]
    fn export_is_mounted_with_the_security_of_its_class() {
        let export = |given: &[(&str, &str)]| match parse(given) {
            Ok(Attributes::Export(export)) => export,
            other => panic!("{other:?}"),
        };
        let plain = export(&[("server", "filer.example"), ("share", "/srv/v/pvc-1")]);
        assert_eq!(
            plain.mount(&[], false).unwrap(),
            ("filer.example:/srv/v/pvc-1".into(), "vers=4".into())
        );
        let secure = export(&[
            ("server", "2001:db8::1"),
            ("share", "/v"),
            ("sec", "krb5p"),
            ("xprtsec", "mtls"),
            ("port", "2050"),
        ]);
        let flags = ["nconnect=2".to_owned(), "vers=4.2".to_owned()];
        let (source, options) = secure.mount(&flags, true).unwrap();
        assert_eq!(
            (&*source, &*options),
            ("[2001:db8::1]:/v", "vers=4,port=2050,sec=krb5p,xprtsec=mtls,nconnect=2,vers=4.2,ro")
        );
        for flag in ["sec=sys", "xprtsec=none", "vers=3", "a,sec=sys"] {
            assert!(secure.mount(&[flag.to_owned()], false).is_err(), "{flag}");
        }
        for bad in [
            ("sec", "krb4"),
            ("xprtsec", "ssl"),
            ("server", "-o x"),
            ("share", "v"),
            ("share", "/v/../etc"),
            ("podTickets", "true"),
            ("podTickets", "yes"),
            ("port", "65536"),
            ("client", "nfs"),
            ("tlsCa", "/ca.pem"),
        ] {
            assert!(
                parse(&[&[("server", "f"), ("share", "/v")], &[bad][..]].concat()).is_err(),
                "{bad:?}"
            );
        }
        let mut own = vec![("server", "f"), ("share", "/v"), ("sec", "krb5p"), ("client", "fuse")];
        assert!(parse(&own).unwrap_err().message().starts_with("podTickets"));
        own.push(("podTickets", "true"));
        export(&own);
    }
}
