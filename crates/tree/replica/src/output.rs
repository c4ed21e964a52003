//! A queue of pieces, mostly runs of bytes in pack files.

use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span<F> {
    pub(super) file: F,
    pub(super) offset: u64,
    pub(super) len: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<F> {
    Own { bytes: Vec<u8>, sent: usize },
    Shared { bytes: Arc<[u8]>, sent: usize },
    File(Span<F>),
}

impl<F> Piece<F> {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Own { bytes, sent } => (bytes.len() - sent) as u64,
            Self::Shared { bytes, sent } => (bytes.len() - sent) as u64,
            Self::File(span) => span.len,
        }
    }
}

/// An empty queue holds no allocation.
#[derive(Debug)]
pub(super) struct Output<F> {
    pieces: VecDeque<Piece<F>>,
    len: u64,
}

impl<F: Clone + PartialEq> Output<F> {
    pub(super) const fn new() -> Self {
        Self { pieces: VecDeque::new(), len: 0 }
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn own_len(&self) -> u64 {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::Own { .. })).map(Piece::len).sum()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn pieces(&self) -> impl ExactSizeIterator<Item = &Piece<F>> {
        self.pieces.iter()
    }

    pub(super) fn push_bytes(&mut self, new: &[u8]) {
        if new.is_empty() {
            return;
        }
        self.len += new.len() as u64;
        match self.pieces.back_mut() {
            Some(Piece::Own { bytes, .. }) => bytes.extend_from_slice(new),
            _ => self.pieces.push_back(Piece::Own { bytes: new.to_vec(), sent: 0 }),
        }
    }

    pub(super) fn push_shared(&mut self, bytes: Arc<[u8]>, from: usize) {
        if from < bytes.len() {
            self.len += (bytes.len() - from) as u64;
            self.pieces.push_back(Piece::Shared { bytes, sent: from });
        }
    }

    pub(super) fn push_span(&mut self, span: Span<F>) {
        if span.len == 0 {
            return;
        }
        self.len += span.len;
        match self.pieces.back_mut() {
            Some(Piece::File(last))
                if last.file == span.file && last.offset + last.len == span.offset =>
            {
                last.len += span.len
            }
            _ => self.pieces.push_back(Piece::File(span)),
        }
    }

    pub(super) fn advance(&mut self, n: u64) {
        debug_assert!(n <= self.len, "no more leaves than was queued");
        self.len -= n;
        let mut left = n;
        while left > 0 {
            let Some(front) = self.pieces.front_mut() else { break };
            let taken = left.min(front.len());
            left -= taken;
            match front {
                Piece::Own { sent, .. } | Piece::Shared { sent, .. } => *sent += taken as usize,
                Piece::File(span) => {
                    span.offset += taken;
                    span.len -= taken;
                }
            }
            if front.len() == 0 {
                self.pieces.pop_front();
            }
        }
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
    }

    #[cfg(test)]
    pub(super) fn held_len(&self) -> usize {
        let own = |piece: &Piece<F>| {
            if let Piece::Own { bytes, .. } = piece { bytes.capacity() } else { 0 }
        };
        self.pieces.capacity() * size_of::<Piece<F>>() + self.pieces.iter().map(own).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(file: char, offset: u64, len: u64) -> Span<char> {
        Span { file, offset, len }
    }

    #[test]
    fn adjacent_runs_of_one_file_are_joined() {
        let mut output = Output::new();
        output.push_span(span('a', 0, 10));
        output.push_span(span('a', 10, 5));
        output.push_span(span('a', 16, 1));
        output.push_span(span('b', 17, 1));
        let lens: Vec<_> = output.pieces().map(Piece::len).collect();
        assert_eq!((lens, output.len()), (vec![15, 1, 1], 17));
    }

    #[test]
    fn bytes_between_runs_keep_them_apart() {
        let mut output = Output::new();
        output.push_span(span('a', 0, 10));
        output.push_bytes(b"x");
        output.push_span(span('a', 10, 10));
        assert_eq!(output.pieces().len(), 3);
    }

    #[test]
    fn empty_queue_holds_no_memory() {
        let mut output = Output::new();
        output.push_bytes(b"head");
        output.push_span(span('a', 0, 10));
        assert!(output.held_len() > 0);
        output.advance(14);
        assert_eq!((output.held_len(), output.is_empty()), (0, true));
    }

    proptest::proptest! {
        #[test]
        fn any_steps_send_the_same_bytes(
            queue in proptest::collection::vec((0u8..3, 0u64..20), 0..20),
            steps in proptest::collection::vec(1u64..30, 0..40),
        ) {
            let file: Vec<u8> = (0..=255).collect();
            let (mut output, mut model) = (Output::new(), Vec::new());
            for (kind, len) in queue {
                let bytes = vec![kind; len as usize];
                match kind {
                    0 => output.push_bytes(&bytes),
                    1 => output.push_shared(bytes.clone().into(), 0),
                    _ => output.push_span(span('f', 0, len)),
                }
                model.extend_from_slice(if kind == 2 { &file[..len as usize] } else { &bytes });
            }
            let mut sent = Vec::new();
            for step in steps.into_iter().chain([u64::MAX]) {
                let n = step.min(output.len());
                let mut left = n as usize;
                for piece in output.pieces() {
                    let bytes = match piece {
                        Piece::Own { bytes, sent } => &bytes[*sent..],
                        Piece::Shared { bytes, sent } => &bytes[*sent..],
                        Piece::File(span) => &file[span.offset as usize..(span.offset + span.len) as usize],
                    };
                    let taken = left.min(bytes.len());
                    sent.extend_from_slice(&bytes[..taken]);
                    left -= taken;
                }
                output.advance(n);
            }
            proptest::prop_assert!(output.is_empty());
            proptest::prop_assert_eq!(sent, model);
        }
    }
}
