//! Answers calls of the replica protocol from the files of a database behind a web server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use vouch_tree::BlockHandle;
use vouch_tree::protocol::{
    COMPANIONS_LEN_MAX, COMPANIONS_MAX, FsinfoOffer, GetDataArgs, GetFsinfoArgs, GetFsinfoResult, Procedure, PutStatementResult,
};
use vouch_tree_store::{RemoteFile, RemoteFrame, RemoteSearch, RemoteView};
use vouch_xdr::Xdr;

use super::fetch::{FetchError, Fetcher};
use super::slices::Slices;
use super::{MANIFEST_LEN_MAX, spawned};
use crate::clock::Clock;
use crate::pipe::{Results, data_results};

pub(super) struct HttpDatabase {
    fetcher: Arc<Fetcher>,
    slices: Slices,
    clock: Arc<dyn Clock>,
    view: Mutex<Option<Arc<RemoteView>>>,
    /// True until the first use of the view that [`HttpDatabase::connect`] read.
    is_new: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Store(#[from] vouch_tree_store::Error),
}

impl HttpDatabase {
    pub(super) fn new(fetcher: Fetcher, clock: Arc<dyn Clock>) -> Self {
        let fetcher = Arc::new(fetcher);
        Self { slices: Slices::new(Arc::clone(&fetcher)), fetcher, clock, view: Mutex::default(), is_new: AtomicBool::new(false) }
    }

    /// Checks that the web server is reachable and has a database.
    pub(super) async fn connect(&self) -> Result<(), ReadError> {
        self.refresh().await?;
        self.is_new.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Results of a call; `None` if the web server fails.
    pub(super) async fn answer(&self, procedure: Procedure, args: &[u8]) -> Results {
        let answered = match procedure {
            Procedure::Null => Ok(Vec::new()),
            Procedure::GetFsinfo => self.offer(&GetFsinfoArgs::from_xdr(args).ok()?).await.map(|results| vec![results.into()]),
            Procedure::GetData => self.data(&GetDataArgs::from_xdr(args).ok()?).await,
            Procedure::PutStatement => Ok(vec![PutStatementResult::NotAccepted.to_xdr().into()]),
        };
        answered.inspect_err(|error| tracing::warn!(url = %self.fetcher.url(), "{error}")).ok()
    }

    async fn offer(&self, asked: &GetFsinfoArgs) -> Result<Vec<u8>, ReadError> {
        let connected = self.view.lock().clone();
        let view = match connected {
            Some(view) if self.is_new.swap(false, Ordering::Relaxed) => view,
            _ => self.refresh().await?,
        };
        let Some(head) = view.head().filter(|_| *view.hostid() == asked.hostid) else { return Ok(GetFsinfoResult::NoTree.to_xdr()) };
        let mut companions = Vec::new();
        if asked.companions {
            let handles: Vec<_> = view.companions().iter().take(COMPANIONS_MAX).copied().collect();
            // Companion frames only save round trips.
            let found = self.frames(&view, &handles).await.unwrap_or_default();
            let mut len = 0;
            companions.extend(found.into_iter().flatten().map(|frame| frame.to_vec()).take_while(|frame| {
                len += frame.len();
                len <= COMPANIONS_LEN_MAX
            }));
        }
        let offer = FsinfoOffer { signed_fsinfo: head.to_vec(), statements: view.statements().to_vec(), companions };
        Ok(GetFsinfoResult::Ok(offer).to_xdr())
    }

    async fn data(&self, asked: &GetDataArgs) -> Result<Vec<Bytes>, ReadError> {
        let cached = self.view.lock().clone();
        let view = match cached {
            Some(view) => view,
            None => self.refresh().await?,
        };
        let mut frames = self.frames(&view, &asked.handles).await;
        // A commit removes files that its manifest does not name: a newer manifest may name others.
        let is_outdated = match &frames {
            Ok(frames) => frames.iter().any(Option::is_none),
            Err(error) => matches!(error, ReadError::Fetch(FetchError::NotFound(_))),
        };
        if is_outdated {
            let newer = self.refresh().await?;
            if newer.generation() != view.generation() {
                frames = self.frames(&newer, &asked.handles).await;
            }
        }
        Ok(data_results(frames?.into_iter()))
    }

    /// Reads the manifest. Its URL changes each minute: stubborn caches delay a revision by a
    /// minute at most, and clients share requests.
    async fn refresh(&self) -> Result<Arc<RemoteView>, ReadError> {
        let minute = u64::try_from(self.clock.now()).unwrap_or(0) / 60;
        let fetcher = Arc::clone(&self.fetcher);
        // Goes on if the caller gives up, so that a silent proxy counts as failed.
        let fetch = async move { fetcher.get(RemoteView::MANIFEST, Some(minute), None, MANIFEST_LEN_MAX).await };
        let bytes = spawned(tokio::spawn(fetch)).await?;
        let view = Arc::new(RemoteView::parse(&bytes)?);
        *self.view.lock() = Some(Arc::clone(&view));
        Ok(view)
    }

    /// Frames in the order of `handles`; `None`: not in the database.
    async fn frames(&self, view: &RemoteView, handles: &[BlockHandle]) -> Result<Vec<Option<Bytes>>, ReadError> {
        let places: Result<Vec<_>, ReadError> = self
            .locate(view, handles)
            .await?
            .iter()
            .map(|record| Ok(record.as_ref().map(|record| view.frame(record)).transpose()?))
            .collect();
        let places: Vec<Option<RemoteFrame>> = places?;
        let wanted: Vec<_> = places.iter().flatten().map(|frame| (&frame.file, frame.range.clone())).collect();
        let mut read = self.slices.read_many(&wanted).await.into_iter();
        let mut frames = Vec::with_capacity(handles.len());
        for place in &places {
            frames.push(if place.is_some() { read.next().transpose()? } else { None });
        }
        Ok(frames)
    }

    /// Index records in the order of `handles`; `None`: not in the database.
    async fn locate(&self, view: &RemoteView, handles: &[BlockHandle]) -> Result<Vec<Option<Record>>, ReadError> {
        let mut found = vec![None; handles.len()];
        for segment in view.segments().into_iter().take(SEGMENTS_MAX) {
            let missing: Vec<usize> = (0..handles.len()).filter(|at| found[*at].is_none()).collect();
            if missing.is_empty() {
                break;
            }
            let guesses: Vec<_> = missing.iter().map(|at| (&segment, RemoteView::first_guess(&segment, &handles[*at]))).collect();
            let read = self.slices.read_many(&guesses).await;
            let searches = missing.iter().zip(guesses).zip(read).map(|((at, (_, range)), bytes)| {
                let (segment, handle) = (&segment, &handles[*at]);
                async move { self.search(segment, handle, range, bytes?).await }
            });
            for (at, record) in missing.iter().zip(join_all(searches).await) {
                found[*at] = record?;
            }
        }
        Ok(found)
    }

    async fn search(
        &self,
        segment: &RemoteFile,
        handle: &BlockHandle,
        mut range: std::ops::Range<u64>,
        mut bytes: Bytes,
    ) -> Result<Option<Record>, ReadError> {
        for _ in 0..SEARCHES_MAX {
            match RemoteView::search(segment, &range, &bytes, handle)? {
                RemoteSearch::Found(record) => return Ok(Some(record)),
                RemoteSearch::Missing => return Ok(None),
                RemoteSearch::Read(next) => {
                    bytes = self.slices.read(segment, &next).await?;
                    range = next;
                }
            }
        }
        // Reached only if the handles are not uniform, which no honest writer makes.
        Ok(None)
    }
}

/// A record of the index.
type Record = [u8; 44];

/// Ten segments index a billion frames.
const SEGMENTS_MAX: usize = 64;
const SEARCHES_MAX: usize = 8;
