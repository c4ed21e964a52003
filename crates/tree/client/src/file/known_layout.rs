//! The distance at which reads repeat in one file of a tree: the other files of a table have it too.
//! Does no I/O.

/// Files that may begin with a layout before a prediction is read in one of them.
const GUESSES_MAX: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) distance: u64,
    /// Of one read.
    pub(crate) len: u64,
}

/// The newest layout of a tree. Wrong guesses end its use, until another file confirms it.
#[derive(Debug, Default)]
pub(crate) struct KnownLayout {
    layout: Option<Layout>,
    guesses: u32,
}

impl KnownLayout {
    /// `layout`: of a file in which predictions were read.
    pub(crate) fn learn(&mut self, layout: Layout) {
        *self = Self { layout: Some(layout), guesses: 0 };
    }

    /// For a file that begins with it.
    pub(crate) fn guess(&mut self, read_len: u64) -> Option<Layout> {
        let layout = self.layout_of(read_len).filter(|_| self.guesses < GUESSES_MAX)?;
        self.guesses += 1;
        Some(layout)
    }

    /// If a read of this length fits it.
    pub(crate) fn layout_of(&self, read_len: u64) -> Option<Layout> {
        self.layout.filter(|layout| layout.len / 2 <= read_len && read_len / 2 <= layout.len)
    }
}
