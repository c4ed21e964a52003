//! A truncated path keeps its start and end so that it names no other file; other texts keep their
//! start.

use std::borrow::Cow;

use memchr::memmem;

use super::{PATH_LEN_MAX, Record, TEXT_LEN_MAX};

/// To 4 KiB: whole names from start and end, and `/.../` for unknown names between.
pub fn truncate_path(path: &[u8]) -> Cow<'_, [u8]> {
    shorten_path(path, PATH_LEN_MAX)
}

/// The end is more specific: at most a quarter comes from the start.
pub(crate) fn shorten_path(path: &[u8], len_max: usize) -> Cow<'_, [u8]> {
    if path.len() <= len_max {
        return path.into();
    }
    let head = &path[..memmem::find(path, GAP).map_or(len_max / 4, |at| at.min(len_max / 4))];
    let is_whole = path[head.len()..].starts_with(b"/");
    let head = if is_whole {
        head
    } else {
        &head[..head.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
    };
    let tail = &path[path.len() - (len_max - head.len() - GAP.len())..];
    let tail = match tail.iter().position(|byte| *byte == b'/') {
        Some(at) => &tail[at + 1..],
        None => &tail[tail.iter().take_while(|byte| is_within_character(**byte)).count()..],
    };
    let tail = memmem::rfind(tail, GAP).map_or(tail, |at| &tail[at + GAP.len()..]);
    [head, GAP, tail].concat().into()
}

const GAP: &[u8] = b"/.../";

#[derive(Clone, Copy)]
pub(super) enum Limit {
    Path,
    /// UTF-8, of [`TEXT_LEN_MAX`].
    Text,
    Bytes(usize),
}

impl Limit {
    fn len(self) -> usize {
        match self {
            Self::Path => PATH_LEN_MAX,
            Self::Text => TEXT_LEN_MAX,
            Self::Bytes(len) => len,
        }
    }

    fn shorten(self, text: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Path => truncate_path(text),
            Self::Text => utf8_prefix(text, TEXT_LEN_MAX).into(),
            Self::Bytes(len) => text[..text.len().min(len)].into(),
        }
    }
}

pub(super) fn is_too_long(record: &Record<'_>) -> bool {
    record.texts().any(|(_, text, limit)| text.len() > limit.len())
}

#[cold]
pub(super) fn with_truncated_texts(record: &Record<'_>, with: impl FnOnce(&Record<'_>)) {
    let cut = record.texts().filter(|(_, text, limit)| text.len() > limit.len());
    let cut: Vec<&str> = cut.map(|(name, ..)| name).collect();
    let note = format!("too long and cut: {}", cut.join(", "));
    let detail = match record.detail {
        [] => note.into_bytes(),
        detail => {
            [utf8_prefix(detail, TEXT_LEN_MAX - 2 - note.len()), b"; ", note.as_bytes()].concat()
        }
    };
    let texts: Vec<Cow<'_, [u8]>> =
        record.texts().map(|(_, text, limit)| limit.shorten(text)).collect();
    let mut short = record.clone();
    short.texts_mut().zip(&texts).for_each(|(text, shortened)| *text = shortened);
    with(&Record { detail: &detail, ..short });
}

pub(crate) fn utf8_prefix(text: &[u8], len_max: usize) -> &[u8] {
    let mut len = text.len().min(len_max);
    while len > 0 && len < text.len() && is_within_character(text[len]) {
        len -= 1;
    }
    &text[..len]
}

fn is_within_character(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_path_keeps_whole_names_at_both_ends() {
        let deep = |last: &str| {
            [
                b"/srv".to_vec(),
                format!("/{}", "d".repeat(250)).repeat(20).into_bytes(),
                format!("/{last}").into_bytes(),
            ]
            .concat()
        };
        let (one, two) = (deep("victim-one"), deep("victim-two"));
        let short = truncate_path(&one);
        assert!(short.len() <= PATH_LEN_MAX && short.len() > PATH_LEN_MAX - 256, "{}", short.len());
        assert!(
            short.starts_with(b"/srv/dd")
                && short.ends_with(b"d/victim-one")
                && short != truncate_path(&two)
        );
        let (head, tail) = short.split_at(memmem::find(&short, GAP).unwrap());
        assert!(
            one.starts_with(head)
                && one[head.len()] == b'/'
                && one.ends_with(&tail[GAP.len() - 1..])
        );
        for at in [4, 2000, 4900] {
            let gapped = [&one[..at], &b"/..."[..], &one[255..]].concat();
            let short = truncate_path(&gapped);
            assert!(short.len() <= PATH_LEN_MAX && short.ends_with(b"d/victim-one"));
            assert_eq!(memmem::find_iter(&short, GAP).count(), 1, "{at}");
        }
        let near = [&one[..4900], b"/.../x/victim-one"].concat();
        let short = truncate_path(&near);
        assert!(
            short.ends_with(b"/.../x/victim-one") && memmem::find_iter(&short, GAP).count() == 1
        );
        let short = truncate_path(&[b'/'; 1]).into_owned();
        assert_eq!(short, b"/");
        assert_eq!(truncate_path(&[b'x'; 9000]).len(), PATH_LEN_MAX);
        assert!(truncate_path(&[b'/'; 9000]).len() <= PATH_LEN_MAX);
    }
}
