//! By the name, else by the first bytes. A compressed file is sent as it is, with the type of its
//! compression and no Content-Encoding.

pub(crate) fn by_name(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let (_, extension) = name.rsplit_once('.')?;
    let known = TYPES
        .iter()
        .find(|(ours, _)| ours.eq_ignore_ascii_case(extension))
        .map(|(_, kind)| (*kind).to_owned());
    let kind =
        known.or_else(|| mime_guess2::from_ext(extension).first().map(|kind| kind.to_string()))?;
    // HTML can name its own character set, which the header would override.
    Some(if kind.starts_with("text/") && kind != "text/html" {
        kind + "; charset=utf-8"
    } else {
        kind
    })
}

/// Judges unknown extensions by the first bytes.
pub(crate) fn by_content(start: &[u8]) -> &'static str {
    let is_text = match std::str::from_utf8(start) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    let has_control = start.iter().any(|&b| b < b' ' && !b"\t\n\r\x0c".contains(&b));
    if is_text && !has_control { "text/plain; charset=utf-8" } else { "application/octet-stream" }
}

/// The library lacks these types, or has another format of the same extension.
const TYPES: [(&str, &str); 8] = [
    ("deb", "application/vnd.debian.binary-package"),
    ("gz", "application/gzip"),
    ("tgz", "application/gzip"),
    ("xz", "application/x-xz"),
    ("zst", "application/zstd"),
    ("rpm", "application/x-rpm"),
    ("whl", "application/zip"),
    ("ts", "text/plain"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_decides() {
        for (name, kind) in [
            ("a.html", "text/html"),
            ("a.PNG", "image/png"),
            ("a.tar.gz", "application/gzip"),
            ("p_1.0_amd64.deb", "application/vnd.debian.binary-package"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.pdf", "application/pdf"),
            ("a.wasm", "application/wasm"),
        ] {
            assert_eq!(by_name(name.as_bytes()).as_deref(), Some(kind), "{name}");
        }
        assert_eq!(by_name(b"README"), None);
        assert_eq!(by_name(b"a.unknown-extension"), None);
        assert_eq!(by_name(b"a\xff.html"), None);
    }

    #[test]
    fn files_without_extension_are_text_or_bytes() {
        assert_eq!(by_content(b"Origin: x\n"), "text/plain; charset=utf-8");
        assert_eq!(by_content(b""), "text/plain; charset=utf-8");
        assert_eq!(
            by_content("caf\u{e9}".as_bytes().split_last().unwrap().1),
            "text/plain; charset=utf-8"
        );
        assert_eq!(by_content(b"\x7fELF\x02\x01"), "application/octet-stream");
        assert_eq!(by_content(b"caf\xe9 noir"), "application/octet-stream");
    }
}
