//! How a record whose texts are too long is made to fit: a path keeps its beginning and its end, so
//! that it names no other file, and other texts their beginning; the detail says which were cut.

use std::borrow::Cow;

use memchr::memmem;

use super::{PATH_LEN_MAX, Record, TEXT_LEN_MAX};

/// What of a path is kept: of one that is too long whole names from its beginning and its end, and
/// `/.../` between them, as it stands for names that are not known.
pub fn kept_path(path: &[u8]) -> Cow<'_, [u8]> {
    shorter_path(path, PATH_LEN_MAX)
}

/// Likewise in so many bytes, of which a quarter at most is its beginning: the end says more.
pub(crate) fn shorter_path(path: &[u8], len_max: usize) -> Cow<'_, [u8]> {
    if path.len() <= len_max {
        return path.into();
    }
    let head = &path[..memmem::find(path, GAP).map_or(len_max / 4, |at| at.min(len_max / 4))];
    let is_whole = path[head.len()..].starts_with(b"/");
    let head = if is_whole { head } else { &head[..head.iter().rposition(|byte| *byte == b'/').unwrap_or(0)] };
    let tail = &path[path.len() - (len_max - head.len() - GAP.len())..];
    // The last name alone may be longer than that.
    let tail = match tail.iter().position(|byte| *byte == b'/') {
        Some(at) => &tail[at + 1..],
        None => &tail[tail.iter().take_while(|byte| is_within_character(**byte)).count()..],
    };
    let tail = memmem::rfind(tail, GAP).map_or(tail, |at| &tail[at + GAP.len()..]);
    [head, GAP, tail].concat().into()
}

/// What stands for names that are left out.
const GAP: &[u8] = b"/.../";

/// Whether a text is longer than a record keeps.
pub(super) fn is_too_long(record: &Record<'_>) -> bool {
    let Record { principal, client, export, path, path2, file, key, detail, .. } = record;
    [path, path2, export].iter().any(|path| path.len() > PATH_LEN_MAX)
        || [principal, client, file, key, detail].iter().any(|text| text.len() > TEXT_LEN_MAX)
}

/// Calls `with` with the record as far as it is kept.
#[cold]
pub(super) fn with_what_fits(record: &Record<'_>, with: impl FnOnce(&Record<'_>)) {
    let (export, path, path2) = (kept_path(record.export), kept_path(record.path), kept_path(record.path2));
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
    let cut: Vec<&str> = texts.iter().filter(|(_, text, len_max)| text.len() > *len_max).map(|(name, ..)| *name).collect();
    let note = format!("too long and cut: {}", cut.join(", "));
    let detail = match record.detail {
        [] => note.into_bytes(),
        detail => [beginning(detail, TEXT_LEN_MAX - 2 - note.len()), b"; ", note.as_bytes()].concat(),
    };
    let short = |text| beginning(text, TEXT_LEN_MAX);
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

/// At most so many bytes, which end where a character does.
pub(crate) fn beginning(text: &[u8], len_max: usize) -> &[u8] {
    let mut len = text.len().min(len_max);
    while len > 0 && len < text.len() && is_within_character(text[len]) {
        len -= 1;
    }
    &text[..len]
}

/// Whether a byte goes on with a character of UTF-8.
fn is_within_character(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_keeps_whole_names_of_its_beginning_and_its_end() {
        let deep = |last: &str| {
            [b"/srv".to_vec(), format!("/{}", "d".repeat(250)).repeat(20).into_bytes(), format!("/{last}").into_bytes()].concat()
        };
        let (one, two) = (deep("victim-one"), deep("victim-two"));
        let kept = kept_path(&one);
        assert!(kept.len() <= PATH_LEN_MAX && kept.len() > PATH_LEN_MAX - 256, "{}", kept.len());
        assert!(kept.starts_with(b"/srv/dd") && kept.ends_with(b"d/victim-one") && kept != kept_path(&two));
        let (head, tail) = kept.split_at(memmem::find(&kept, GAP).unwrap());
        assert!(one.starts_with(head) && one[head.len()] == b'/' && one.ends_with(&tail[GAP.len() - 1..]));
        // What was left out before is left out along with it: there is one gap.
        for at in [4, 2000, 4900] {
            let gapped = [&one[..at], &b"/..."[..], &one[255..]].concat();
            let kept = kept_path(&gapped);
            assert!(kept.len() <= PATH_LEN_MAX && kept.ends_with(b"d/victim-one"));
            assert_eq!(memmem::find_iter(&kept, GAP).count(), 1, "{at}");
        }
        let near = [&one[..4900], b"/.../x/victim-one"].concat();
        let kept = kept_path(&near);
        assert!(kept.ends_with(b"/.../x/victim-one") && memmem::find_iter(&kept, GAP).count() == 1);
        // No name is so long, but a record may be asked to keep one.
        let kept = kept_path(&[b'/'; 1]).into_owned();
        assert_eq!(kept, b"/");
        assert_eq!(kept_path(&[b'x'; 9000]).len(), PATH_LEN_MAX);
        assert!(kept_path(&[b'/'; 9000]).len() <= PATH_LEN_MAX);
    }
}
