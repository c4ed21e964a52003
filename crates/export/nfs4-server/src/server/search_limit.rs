//! Rate limit for searches of all state, which a full disk would cause with each call.

#[derive(Default)]
pub(crate) struct LastSearch(Option<(u64, bool)>);

const SEARCH_EVERY_MS: u64 = 1000;

impl LastSearch {
    /// The result of a search that is too recent for another one.
    pub(crate) fn recent(&self, now_ms: u64) -> Option<bool> {
        let (at_ms, has_found) = self.0?;
        (now_ms < at_ms + SEARCH_EVERY_MS).then_some(has_found)
    }

    pub(crate) fn note(&mut self, now_ms: u64, has_found: bool) {
        self.0 = Some((now_ms, has_found));
    }
}
