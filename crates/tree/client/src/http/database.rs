//! Answers calls of the replica protocol from the files of a database behind a web server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use parking_lot::Mutex;
use vouch_tree::protocol::{
    COMPANIONS_LEN_MAX, COMPANIONS_MAX, FsinfoOffer, GetDataArgs, GetFsinfoArgs, GetFsinfoResult,
    Procedure, PutStatementResult,
};
use vouch_tree::{BlockHandle, FRAME_LEN_MAX};
use vouch_tree_store::{RemoteFile, RemoteFrame, RemoteSearch, RemoteView};
use vouch_xdr::Xdr;

use super::fetch::{FetchError, Fetcher};
use super::slices::Slices;
use crate::connector::{LocalReplica, TakeFrame, TransportError};

pub(super) struct HttpDatabase {
    fetcher: Arc<Fetcher>,
    slices: Slices,
    view: Mutex<Option<Arc<RemoteView>>>,
    is_new: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Store(#[from] vouch_tree_store::Error),
}

impl ReadError {
    pub(super) fn is_wrong_object(&self) -> bool {
        matches!(
            self,
            Self::Fetch(FetchError::WrongObject(..) | FetchError::NotFound(..)) | Self::Store(_)
        )
    }
}

impl HttpDatabase {
    pub(super) fn new(fetcher: Fetcher) -> Self {
        let fetcher = Arc::new(fetcher);
        Self {
            slices: Slices::new(Arc::clone(&fetcher)),
            fetcher,
            view: Mutex::default(),
            is_new: AtomicBool::new(false),
        }
    }

    pub(super) async fn connect(&self) -> Result<(), ReadError> {
        self.refresh().await?;
        self.is_new.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn offer(&self, arguments: &GetFsinfoArgs) -> Result<Vec<u8>, ReadError> {
        let connected = self.view.lock().clone();
        let view = match connected {
            Some(view) if self.is_new.swap(false, Ordering::Relaxed) => view,
            _ => self.refresh().await?,
        };
        let Some(head) = view.head().filter(|_| *view.hostid() == arguments.hostid) else {
            return Ok(GetFsinfoResult::NoTree.to_xdr());
        };
        let mut companions = Vec::new();
        if arguments.companions {
            let handles: Vec<_> = view.companions().iter().take(COMPANIONS_MAX).copied().collect();
            let places = self.places(&view, &handles).await.unwrap_or_default();
            let mut len = 0;
            let mut take = |frame: Option<Bytes>| {
                let frame = frame.unwrap_or_default();
                len += frame.len();
                if len <= COMPANIONS_LEN_MAX && !frame.is_empty() {
                    companions.push(frame.to_vec());
                }
                true
            };
            let _ = self.pass(&view, &handles, places, &mut 0, &mut take).await;
        }
        let offer = FsinfoOffer {
            signed_fsinfo: head.to_vec(),
            statements: view.statements().to_vec(),
            companions,
        };
        Ok(GetFsinfoResult::Ok(offer).to_xdr())
    }

    async fn deliver(
        &self,
        handles: &[BlockHandle],
        take: &mut TakeFrame<'_>,
    ) -> Result<(), ReadError> {
        let cached = self.view.lock().clone();
        let mut view = match cached {
            Some(view) => view,
            None => self.refresh().await?,
        };
        let (mut delivered, mut is_newest) = (0, false);
        loop {
            let left = &handles[delivered..];
            let outcome = match self.places(&view, left).await {
                Ok(places) if is_newest || !places.contains(&FrameLookup::Missing) => {
                    self.pass(&view, left, places, &mut delivered, take).await
                }
                // A commit removes what its manifest no longer names: then a newer manifest names
                // the rest. Otherwise the index may be wrong.
                Ok(places) => {
                    let missing =
                        left.iter().zip(places).filter(|(_, place)| *place == FrameLookup::Missing);
                    missing.for_each(|(handle, _)| self.doubt_index(&view, handle));
                    Err(ReadError::Fetch(FetchError::NotFound(
                        "index".into(),
                        "frames are missing".into(),
                    )))
                }
                Err(error) => Err(error),
            };
            match outcome {
                Err(ReadError::Fetch(FetchError::NotFound(..))) if !is_newest => {
                    view = self.refresh().await?;
                    is_newest = true;
                }
                outcome => return outcome,
            }
        }
    }

    /// Slices that have brought a wrong frame are doubted.
    async fn pass(
        &self,
        view: &RemoteView,
        handles: &[BlockHandle],
        places: Vec<FrameLookup>,
        delivered: &mut usize,
        take: &mut TakeFrame<'_>,
    ) -> Result<(), ReadError> {
        let frames = places.iter().filter_map(FrameLookup::frame);
        let slices = self
            .slices
            .start(&frames.map(|frame| (&frame.file, frame.range.clone())).collect::<Vec<_>>());
        for (handle, place) in handles.iter().zip(&places) {
            let is_right = take(match place {
                FrameLookup::At(frame) => {
                    Some(self.slices.bytes(&slices, &frame.file, &frame.range).await?)
                }
                FrameLookup::Wrong => Some(Bytes::new()),
                FrameLookup::Missing => None,
            });
            if !is_right {
                if let FrameLookup::At(frame) = place {
                    self.slices.doubt(&frame.file, &frame.range);
                }
                self.doubt_index(view, handle);
            }
            *delivered += 1;
            // Hashing and decompression take up to 100 µs per frame: let other tasks run in between.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn doubt_index(&self, view: &RemoteView, handle: &BlockHandle) {
        for segment in view.segments().iter().take(SEGMENTS_MAX) {
            self.slices.doubt(segment, &RemoteView::first_guess(segment, handle));
        }
    }

    /// The manifest's URL changes each minute: stubborn caches delay a revision by a minute at
    /// most.
    async fn refresh(&self) -> Result<Arc<RemoteView>, ReadError> {
        let fetcher = Arc::clone(&self.fetcher);
        let fetch = async move { fetcher.manifest().await };
        let ended = |error: tokio::task::JoinError| {
            Err(FetchError::Other("request".into(), error.to_string().into()))
        };
        let (_, view) = tokio::spawn(fetch).await.unwrap_or_else(ended)?;
        let view = Arc::new(view);
        *self.view.lock() = Some(Arc::clone(&view));
        Ok(view)
    }

    async fn places(
        &self,
        view: &RemoteView,
        handles: &[BlockHandle],
    ) -> Result<Vec<FrameLookup>, ReadError> {
        let place = |found: &Lookup| match found {
            Lookup::Missing => FrameLookup::Missing,
            Lookup::Wrong => FrameLookup::Wrong,
            Lookup::Record(record) => match view.frame(record) {
                Ok(frame) if frame.range.end - frame.range.start <= FRAME_LEN_MAX as u64 => {
                    FrameLookup::At(frame)
                }
                _ => FrameLookup::Wrong,
            },
        };
        Ok(self.locate(view, handles).await?.iter().map(place).collect())
    }

    async fn locate(
        &self,
        view: &RemoteView,
        handles: &[BlockHandle],
    ) -> Result<Vec<Lookup>, ReadError> {
        let mut found = vec![Lookup::Missing; handles.len()];
        for segment in view.segments().into_iter().take(SEGMENTS_MAX) {
            let missing: Vec<usize> =
                (0..handles.len()).filter(|at| found[*at] == Lookup::Missing).collect();
            if missing.is_empty() {
                break;
            }
            let guesses: Vec<_> = missing
                .iter()
                .map(|at| (&segment, RemoteView::first_guess(&segment, &handles[*at])))
                .collect();
            let read = self.slices.read_many(&guesses).await;
            let searches =
                missing.iter().zip(guesses).zip(read).map(|((at, (_, range)), bytes)| {
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
    ) -> Result<Lookup, ReadError> {
        for _ in 0..SEARCHES_MAX {
            match RemoteView::search(segment, &range, &bytes, handle) {
                Ok(RemoteSearch::Found(record)) => return Ok(Lookup::Record(record)),
                Ok(RemoteSearch::Missing) => return Ok(Lookup::Missing),
                Ok(RemoteSearch::Read(next)) => {
                    bytes = self.slices.read(segment, &next).await?;
                    range = next;
                }
                Err(_) => return Ok(Lookup::Wrong),
            }
        }
        // Reached only if the handles are not uniform, which no honest writer makes.
        Ok(Lookup::Missing)
    }
}

impl LocalReplica for HttpDatabase {
    fn call<'a>(
        &'a self,
        procedure: Procedure,
        args: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>> {
        async move {
            match procedure {
                Procedure::Null | Procedure::GetData => Ok(Vec::new()),
                Procedure::GetFsinfo => Ok(self.offer(&GetFsinfoArgs::from_xdr(args)?).await?),
                Procedure::PutStatement => Ok(PutStatementResult::NotAccepted.to_xdr()),
            }
        }
        .boxed()
    }

    fn data<'a>(
        &'a self,
        args: &'a GetDataArgs,
        take: &'a mut TakeFrame<'_>,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        async move { Ok(self.deliver(&args.handles, take).await?) }.boxed()
    }

    fn received(&self) -> u64 {
        self.fetcher.received()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FrameLookup {
    At(RemoteFrame),
    Missing,
    /// Nowhere in the database: the index is wrong.
    Wrong,
}

impl FrameLookup {
    fn frame(&self) -> Option<&RemoteFrame> {
        match self {
            Self::At(frame) => Some(frame),
            Self::Missing | Self::Wrong => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    Record([u8; 44]),
    Missing,
    /// Not an index.
    Wrong,
}

/// Ten segments index a billion frames.
const SEGMENTS_MAX: usize = 64;
const SEARCHES_MAX: usize = 8;
