//! Each vector lane processes another message.

use vouch_rpcsec_gss::{Wrap, wrap_many};

use super::random;
use crate::transport::output::Outgoing;

/// A reply that cannot be sealed is emptied and must not be sent.
pub(crate) fn seal_all<'a>(replies: impl IntoIterator<Item = &'a mut Outgoing>) {
    let mut waiting: Vec<_> = replies.into_iter().filter_map(Outgoing::unsealed).collect();
    if waiting.is_empty() {
        return;
    }
    let mut wraps: Vec<Wrap<'_>> =
        waiting.iter_mut().map(|unsealed| Wrap::new(unsealed.bytes, unsealed.envelope)).collect();
    wrap_many(&mut wraps, &mut |bytes| random::fill(bytes));
    let done: Vec<bool> = wraps.into_iter().map(|wrap| wrap.done).collect();
    for (unsealed, done) in waiting.into_iter().zip(done) {
        unsealed.finish(done);
    }
}
