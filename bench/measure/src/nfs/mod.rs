//! Sessions, sources of calls, and the subject ([`NfsSubject`]), from user space.

mod block_reads;
mod calls;
mod context_retry;
mod fairness;
mod file_operations;
mod large_file;
mod load;
mod load_run;
mod metadata;
mod session;
mod small_files;
mod subject;
#[cfg(test)]
mod tests;

pub use fairness::{
    Fairness, FairnessOptions, GreedyLoad, QuietLatency, measure as measure_fairness,
};
pub(crate) use load::{CallResult, CallSource, Pace, Tally};
pub(crate) use session::Session;
pub use subject::{NfsOptions, NfsSubject};
pub(crate) use subject::{PREFIX, share_of, stored};

/// The TLS settings and the credential of one client of `target`, for a client of one's own.
pub fn credentials(
    target: &crate::target::NfsTarget,
    sec: crate::target::Sec,
    service: Option<&str>,
    tls: Option<&crate::target::TlsFiles>,
) -> Result<
    (Option<vouch_nfs4_client::TlsClient>, Box<dyn vouch_nfs4_client::Protection>),
    crate::Error,
> {
    session::credentials(&session::SessionOptions {
        target: target.clone(),
        sec,
        service: service.map(str::to_owned),
        tls: tls.cloned(),
        connections: 1,
        slots: 1,
        source: None,
    })
}
