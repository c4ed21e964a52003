//! Races of several writers for one object, as of publishers for the manifest: one may win.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use object_store::Error;
use tokio::sync::Barrier;

use crate::address::Address;
use crate::config::Config;
use crate::error::is_not_implemented;
use crate::lock::WRONG_TAG;
use crate::objects::{Expected, Objects};
use crate::runtime;

/// Whether publishers can share a bucket.
#[derive(Debug)]
pub struct Fitness {
    /// The `s3://` address that was asked about.
    pub address: String,
    /// The URL of the server.
    pub endpoint: String,
    /// Each is a sentence with the number of rounds. Empty: the server is fit.
    pub faults: Vec<String>,
}

/// Races eight writers for ten rounds, for new objects and for replaced ones. The objects have names
/// of their own below the address, and are deleted.
pub fn check_fitness(address: &str) -> io::Result<Fitness> {
    runtime::start()?;
    let parsed = Address::parse(address)?;
    vouch_tls::install_provider();
    let config = Config::from_environment(&parsed)?;
    let Config { store, single_deletes, endpoint, .. } = config;
    let objects = Arc::new(Objects { store, single_deletes, endpoint, address: parsed });
    let random = getrandom::u64().map_err(io::Error::other)?;
    runtime::run(async move {
        let names: Vec<_> =
            (0..ROUNDS).map(|round| format!("vouch-check-{random:016x}-{round}")).collect();
        let mut faults = BTreeMap::new();
        let mut outcome = Ok(());
        for name in &names {
            outcome = objects.round(name, &mut faults).await;
            if outcome.is_err() {
                break;
            }
        }
        let deleted = objects.delete(names.clone()).await;
        outcome.and(deleted)?;
        for name in &names {
            if objects.read(name).await?.is_some() {
                *faults
                    .entry("an object can be read after it was deleted".to_owned())
                    .or_default() += 1;
            }
        }
        let faults = faults
            .into_iter()
            .map(|(fault, rounds): (String, u32)| {
                format!("{fault} (in {rounds} of {ROUNDS} rounds)")
            })
            .collect();
        Ok(Fitness {
            address: objects.address.to_string(),
            endpoint: objects.endpoint.clone(),
            faults,
        })
    })
}

impl Objects {
    async fn round(
        self: &Arc<Self>,
        name: &str,
        faults: &mut BTreeMap<String, u32>,
    ) -> io::Result<()> {
        let mut found = BTreeSet::new();
        let outcome = self.races(name, &mut found).await;
        found.into_iter().for_each(|fault| *faults.entry(fault).or_default() += 1);
        outcome
    }

    async fn races(self: &Arc<Self>, name: &str, faults: &mut BTreeSet<String>) -> io::Result<()> {
        let mut note = |fault: String| {
            faults.insert(fault);
        };
        let mut tag = None;
        for condition in [NONE_MATCH, MATCH] {
            let expected = tag.map_or(Expected::Nothing, Expected::Tag);
            let winners = self.race(name, &expected).await?;
            match winners.len() {
                1 => {}
                0 => note(format!("of {WRITERS} writers with {condition}, none wins")),
                _ => note(format!(
                    "of {WRITERS} writers with {condition}, several are told that theirs was written"
                )),
            }
            let Some((bytes, found)) = self.read(name).await? else {
                note("an object is missing after it was written".to_owned());
                return Ok(());
            };
            if !winners.contains(&bytes) {
                note(format!(
                    "a read after writes with {condition} finds the bytes of a writer that did not win"
                ));
            }
            for (condition, wrong) in
                [(NONE_MATCH, Expected::Nothing), (MATCH, Expected::Tag(WRONG_TAG.to_owned()))]
            {
                match self.put(name, Bytes::from_static(b"wrong"), wrong).await {
                    Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                    Ok(_) => note(format!("a write is accepted although its {condition} is false")),
                    Err(error) if is_not_implemented(&error) => {
                        note(format!("{condition} is not known"))
                    }
                    Err(error) => return Err(self.failed(name, &error).into()),
                }
            }
            tag = Some(found);
        }
        Ok(())
    }

    /// Contents of the writers that won.
    async fn race(self: &Arc<Self>, name: &str, expected: &Expected) -> io::Result<Vec<Bytes>> {
        let start = Arc::new(Barrier::new(WRITERS));
        let writers = (0..WRITERS).map(|writer| {
            let (objects, name, expected, start) =
                (Arc::clone(self), name.to_owned(), expected.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                let bytes = Bytes::from(format!("{name} {expected:?} {writer}\n"));
                start.wait().await;
                objects.put(&name, bytes.clone(), expected).await.map(|_| bytes)
            })
        });
        let (mut winners, mut failure) = (Vec::new(), None);
        for outcome in join_all(writers).await {
            match outcome.map_err(io::Error::other)? {
                Ok(bytes) => winners.push(bytes),
                Err(
                    Error::AlreadyExists { .. }
                    | Error::Precondition { .. }
                    | Error::NotFound { .. },
                ) => {}
                // A server may refuse losers in other words.
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if winners.is_empty() && !is_not_implemented(&error) => {
                Err(self.failed(name, &error).into())
            }
            _ => Ok(winners),
        }
    }

    async fn read(&self, name: &str) -> io::Result<Option<(Bytes, String)>> {
        match self.get(name, None, 4096).await {
            Ok(found) => Ok(found.map(|found| (found.bytes, found.tag))),
            Err(error) if crate::lock::is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

const WRITERS: usize = 8;
const ROUNDS: u32 = 10;
const NONE_MATCH: &str = "If-None-Match: *";
const MATCH: &str = "If-Match";
