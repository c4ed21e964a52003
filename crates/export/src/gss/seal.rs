//! Replies that are ready at the same time, of any connection, session and key, are sealed
//! together: the lanes of the CPU's vectors are other messages. A lone one goes at once.

use vouch_rpcsec_gss::{Wrap, wrap_many};

use super::random;
use crate::transport::output::Outgoing;

/// Seals those of the replies that wait for it. One that can't be sealed is emptied and says so: it
/// must not leave in any form.
pub(crate) fn seal_all<'a>(replies: impl IntoIterator<Item = &'a mut Outgoing>) {
    let mut waiting: Vec<_> = replies.into_iter().filter_map(Outgoing::unsealed).collect();
    if waiting.is_empty() {
        return;
    }
    let mut wraps: Vec<Wrap<'_>> = waiting.iter_mut().map(|unsealed| Wrap::new(unsealed.bytes, unsealed.envelope)).collect();
    wrap_many(&mut wraps, &mut |bytes| random::fill(bytes));
    let done: Vec<bool> = wraps.into_iter().map(|wrap| wrap.done).collect();
    for (unsealed, done) in waiting.into_iter().zip(done) {
        unsealed.finish(done);
    }
}
