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

pub(super) fn is_too_long(record: &Record<'_>) -> bool {
    let Record { principal, client, export, path, path2, file, key, detail, .. } = record;
    [path, path2, export].iter().any(|path| path.len() > PATH_LEN_MAX)
        || [principal, client, file, key, detail].iter().any(|text| text.len() > TEXT_LEN_MAX)
}

#[cold]
pub(super) fn with_truncated_texts(record: &Record<'_>, with: impl FnOnce(&Record<'_>)) {
    let (export, path, path2) =
        (truncate_path(record.export), truncate_path(record.path), truncate_path(record.path2));
    let texts = [
        ("principal", record.principal, TEXT_LEN_MAX),
        ("client", record.client, TEXT_LEN_MAX),
        ("export", record.export, PATH_LEN_MAX),
        ("path", record.path, PATH_LEN_MAX),
        ("new path", record.path2, PATH_LEN_MAX),
        ("file id", record.file, TEXT_LEN_MAX),
        ("key", record.key, TEXT_LEN_MAX),
        ("detail", record.detail, TEXT_LEN_MAX),
    ];
    let cut: Vec<&str> = texts
        .iter()
        .filter(|(_, text, len_max)| text.len() > *len_max)
        .map(|(name, ..)| *name)
        .collect();
    let note = format!("too long and cut: {}", cut.join(", "));
    let detail = match record.detail {
        [] => note.into_bytes(),
        detail => {
            [utf8_prefix(detail, TEXT_LEN_MAX - 2 - note.len()), b"; ", note.as_bytes()].concat()
        }
    };
    let short = |text| utf8_prefix(text, TEXT_LEN_MAX);
    with(&Record {
        principal: short(record.principal),
        client: short(record.client),
        export: &export,
        path: &path,
        path2: &path2,
        file: &record.file[..record.file.len().min(TEXT_LEN_MAX)],
        key: short(record.key),
        detail: &detail,
        ..record.clone()
    });
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
