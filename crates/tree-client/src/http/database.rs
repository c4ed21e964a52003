//! Answers calls of the replica protocol from the files of a database behind a web server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use parking_lot::Mutex;
use vouch_tree::protocol::{
    COMPANIONS_LEN_MAX, COMPANIONS_MAX, FsinfoOffer, GetDataArgs, GetFsinfoArgs, GetFsinfoResult, Procedure, PutStatementResult,
};
use vouch_tree::{BlockHandle, FRAME_LEN_MAX};
use vouch_tree_store::{RemoteFile, RemoteFrame, RemoteSearch, RemoteView};
use vouch_xdr::Xdr;

use super::MANIFEST_LEN_MAX;
use super::fetch::{FetchError, Fetcher, Wanted};
use super::slices::Slices;
use crate::clock::Clock;
use crate::connector::{LocalReplica, TakeFrame};

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
            // They only save round trips.
            let frames = self.frames(&view, &handles).await.unwrap_or_default();
            let mut len = 0;
            let mut take = |frame: Option<Bytes>| {
                let frame = frame.unwrap_or_default();
                len += frame.len();
                if len <= COMPANIONS_LEN_MAX && !frame.is_empty() {
                    companions.push(frame.to_vec());
                }
            };
            let _ = self.pass(frames, &mut 0, &mut take).await;
        }
        let offer = FsinfoOffer { signed_fsinfo: head.to_vec(), statements: view.statements().to_vec(), companions };
        Ok(GetFsinfoResult::Ok(offer).to_xdr())
    }

    /// Passes frames to `take` in the order of their handles; `None` for those that the database
    /// lacks.
    async fn deliver(&self, handles: &[BlockHandle], take: &mut TakeFrame<'_>) -> Result<(), ReadError> {
        let cached = self.view.lock().clone();
        let mut view = match cached {
            Some(view) => view,
            None => self.refresh().await?,
        };
        let (mut delivered, mut is_newest) = (0, false);
        loop {
            let frames = self.frames(&view, &handles[delivered..]).await;
            // A commit removes what its manifest no longer names: then a newer manifest names the rest.
            let outcome = match frames {
                Ok(frames) if is_newest || frames.iter().all(Option::is_some) => self.pass(frames, &mut delivered, take).await,
                Ok(_) => Err(ReadError::Fetch(FetchError::NotFound("index".into()))),
                Err(error) => Err(error),
            };
            match outcome {
                Err(ReadError::Fetch(FetchError::NotFound(_))) if !is_newest => {
                    view = self.refresh().await?;
                    is_newest = true;
                }
                outcome => return outcome,
            }
        }
    }

    async fn pass(&self, frames: Vec<Option<RemoteFrame>>, delivered: &mut usize, take: &mut TakeFrame<'_>) -> Result<(), ReadError> {
        let wanted: Vec<_> = frames.iter().flatten().map(|frame| (&frame.file, frame.range.clone())).collect();
        let slices = self.slices.start(&wanted);
        for frame in &frames {
            take(match frame {
                Some(frame) => Some(self.slices.bytes(&slices, &frame.file, &frame.range).await?),
                None => None,
            });
            *delivered += 1;
            // Hashing and decompression take up to 100 µs per frame: let other tasks run in between.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Reads the manifest. Its URL changes each minute: stubborn caches delay a revision by a
    /// minute at most, and clients share requests.
    async fn refresh(&self) -> Result<Arc<RemoteView>, ReadError> {
        let minute = u64::try_from(self.clock.now()).unwrap_or(0) / 60;
        let fetcher = Arc::clone(&self.fetcher);
        // Goes on if the caller gives up, so that a proxy that answers nothing counts as failed.
        let fetch = async move {
            let wanted = Wanted { path: RemoteView::MANIFEST, query: Some(minute), range: None, len_max: MANIFEST_LEN_MAX };
            fetcher.get(wanted).await
        };
        let ended = |error: tokio::task::JoinError| Err(FetchError::Other("request".into(), error.to_string().into()));
        let bytes = tokio::spawn(fetch).await.unwrap_or_else(ended)?;
        let view = Arc::new(RemoteView::parse(&bytes)?);
        *self.view.lock() = Some(Arc::clone(&view));
        Ok(view)
    }

    /// Places of frames in the order of their handles; `None` for those that the database lacks.
    async fn frames(&self, view: &RemoteView, handles: &[BlockHandle]) -> Result<Vec<Option<RemoteFrame>>, ReadError> {
        let place = |record: &Option<Record>| {
            let frame = record.as_ref().map(|record| view.frame(record)).transpose()?;
            match frame {
                Some(frame) if frame.range.end - frame.range.start > FRAME_LEN_MAX as u64 => {
                    Err(ReadError::Fetch(FetchError::Other(frame.file.path, "a record names a frame that is too long".into())))
                }
                frame => Ok(frame),
            }
        };
        self.locate(view, handles).await?.iter().map(place).collect()
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

impl LocalReplica for HttpDatabase {
    fn call<'a>(&'a self, procedure: Procedure, args: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        async move {
            match procedure {
                Procedure::Null | Procedure::GetData => Ok(Vec::new()),
                Procedure::GetFsinfo => {
                    let asked = GetFsinfoArgs::from_xdr(args).map_err(|error| error.to_string())?;
                    self.offer(&asked).await.map_err(|error| error.to_string())
                }
                Procedure::PutStatement => Ok(PutStatementResult::NotAccepted.to_xdr()),
            }
        }
        .boxed()
    }

    fn data<'a>(&'a self, args: &'a GetDataArgs, take: &'a mut TakeFrame<'_>) -> BoxFuture<'a, Result<(), String>> {
        async move { self.deliver(&args.handles, take).await.map_err(|error| error.to_string()) }.boxed()
    }

    fn received(&self) -> u64 {
        self.fetcher.received()
    }

    fn forget(&self) {
        self.slices.forget_all();
    }
}

/// A record of the index.
type Record = [u8; 44];

/// Ten segments index a billion frames.
const SEGMENTS_MAX: usize = 64;
const SEARCHES_MAX: usize = 8;
