use std::fmt;
use std::str::FromStr;

use crate::config::PlatformJson;

/// Operating system, architecture by the names of Go, and maybe a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    pub(crate) os: String,
    pub(crate) architecture: String,
    pub(crate) variant: Option<String>,
}

/// This machine's.
impl Default for Platform {
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }
}

impl Platform {
    pub(crate) fn of(json: &PlatformJson) -> Self {
        let PlatformJson { os, architecture, variant } = json.clone();
        Self { os, architecture, variant }
    }

    pub(crate) fn matches(&self, json: &PlatformJson) -> bool {
        self.os == json.os
            && self.architecture == json.architecture
            && (self.variant.is_none() || self.variant == json.variant)
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(os), Some(architecture), variant, None) => Ok(Self { os, architecture, variant }),
            _ => Err("give OS/ARCHITECTURE[/VARIANT], as linux/arm64".to_owned()),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}
