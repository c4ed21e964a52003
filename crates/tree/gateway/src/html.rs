//! Escaping, style, icons, content security policy. Pages have no scripts and load nothing.

use std::fmt::{self, Display, Write as _};
use std::sync::LazyLock;

use hyper::header::HeaderValue;
use sha2::{Digest as _, Sha256};
use vouch_daemon::printable::printable;

/// Escaped for elements and quoted attributes.
pub(crate) struct Text<T>(pub(crate) T);

impl<T: Display> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A name's direction of writing does not affect its surroundings.
pub(crate) struct Name<'a>(pub(crate) &'a [u8]);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<bdi>{}</bdi>", Text(printable(self.0)))
    }
}

/// `main` is HTML already.
pub(crate) fn page(title: &str, main: &str) -> String {
    let mut page = String::with_capacity(main.len() + STYLE.len() + 1024);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n{ICONS}{main}</body>\n</html>\n",
        Text(title)
    );
    page
}

pub(crate) fn icon(id: &str) -> String {
    format!("<svg class=\"icon {id}\" aria-hidden=\"true\"><use href=\"#{id}\"></use></svg>")
}

pub(crate) fn policy() -> HeaderValue {
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
        let hash = data_encoding::BASE64.encode(&Sha256::digest(STYLE.as_bytes()));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        HeaderValue::from_str(&policy).expect("a header value")
    });
    POLICY.clone()
}

pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let places = usize::from(value < 9.95);
    format!("{value:.places$} {}", UNITS[unit])
}

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

const ICONS: &str = concat!(
    "<svg width=\"0\" height=\"0\" class=\"defs\" aria-hidden=\"true\">",
    "<symbol id=\"dir\" viewBox=\"0 0 16 16\"><path d=\"M1.5 3.5a1 1 0 0 1 1-1h3.6l1.6 1.8h5.8a1 1 0 0 1 1 1v7.2a1 1 0 0 1-1 1h-11a1 1 0 0 1-1-1z\"/></symbol>",
    "<symbol id=\"file\" viewBox=\"0 0 16 16\"><path d=\"M3.5 1.5h6l3 3v10h-9z M9.5 1.5v3h3\"/></symbol>",
    "<symbol id=\"link\" viewBox=\"0 0 16 16\"><path d=\"M6.5 9.5l3-3 M7.5 4.5l1.6-1.6a2.8 2.8 0 0 1 4 4L11.5 8.5 M8.5 11.5l-1.6 1.6a2.8 2.8 0 0 1-4-4L4.5 7.5\"/></symbol>",
    "<symbol id=\"other\" viewBox=\"0 0 16 16\"><path d=\"M3 3h10v10h-10z\"/></symbol>",
    "</svg>\n"
);

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_add_markup() {
        let shown = Name("<script>alert('1')</script>&\"\u{202e}x\n".as_bytes()).to_string();
        assert_eq!(
            shown,
            "<bdi>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\\xe2\\x80\\xaex\\x0a</bdi>"
        );
    }

    #[test]
    fn style_is_covered_by_the_policy() {
        assert!(page("t", "").contains(&format!("<style>{STYLE}</style>")));
        assert!(policy().to_str().unwrap().contains("style-src 'sha256-"));
        // A reference to another resource would not load.
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    }

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10_200, "10 KiB"),
            (1_048_000, "1.0 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
