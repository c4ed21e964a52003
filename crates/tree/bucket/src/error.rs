use std::error::Error as _;

use object_store::Error;
use vouch_tree_store::{BucketError, BucketErrorKind};

/// `at`: `s3://BUCKET/KEY`.
pub(crate) fn describe(at: &str, endpoint: &str, error: &Error) -> BucketError {
    let said = reason(error);
    let (kind, text) = match error {
        _ if said.contains("NoSuchBucket") => (
            BucketErrorKind::Invalid,
            format!(
                "{at}: {endpoint} has no such bucket; create the bucket, or correct its name or AWS_ENDPOINT_URL"
            ),
        ),
        Error::NotFound { .. } => {
            (BucketErrorKind::Missing, format!("{at}: there is no such object"))
        }
        Error::AlreadyExists { .. } | Error::Precondition { .. } => (
            BucketErrorKind::Busy,
            format!("{at}: another writer was first; run the command again"),
        ),
        _ if is_not_implemented(error) => (
            BucketErrorKind::Invalid,
            format!(
                "{at}: {endpoint} does not know this request: {said}; use a server that knows what docs/object-storage.md names"
            ),
        ),
        _ if is_refused(error, &said) => (
            BucketErrorKind::Denied,
            format!(
                "{at}: {endpoint} refuses the request: {said}; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, \
                 AWS_REGION, and that the bucket's policy grants GetObject, PutObject, DeleteObject and ListBucket"
            ),
        ),
        _ if said.contains("instance metadata")
            || said.contains("169.254.169.254")
            || said.contains("no credentials") =>
        {
            (
                BucketErrorKind::Denied,
                format!(
                    "{at}: no credentials: {said}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                ),
            )
        }
        _ => (
            BucketErrorKind::Unreachable,
            format!(
                "{at}: {endpoint} does not serve the request: {said}; check AWS_ENDPOINT_URL and the network, then run the command again"
            ),
        ),
    };
    BucketError { kind, text }
}

pub(crate) fn is_not_implemented(error: &Error) -> bool {
    matches!(error, Error::NotImplemented { .. } | Error::NotSupported { .. }) || {
        let said = all_reasons(error);
        [
            "501 Not Implemented",
            "405 Method Not Allowed",
            "<Code>NotImplemented<",
            "<Code>MethodNotAllowed<",
        ]
        .iter()
        .any(|text| said.contains(text))
    }
}

/// Servers answer a wrong region as a malformed request.
fn is_refused(error: &Error, said: &str) -> bool {
    matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
        || said.starts_with("AuthorizationHeaderMalformed")
}

fn all_reasons(error: &Error) -> String {
    let mut all = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let text = inner.to_string();
        if !all.contains(&text) {
            all = format!("{all}: {text}");
        }
        source = inner.source();
    }
    all
}

/// The innermost reason in one line: code and message of the server.
fn reason(error: &Error) -> String {
    let all = all_reasons(error);
    if let (Some(code), Some(message)) = (element(&all, "Code"), element(&all, "Message")) {
        return format!("{code}: {}", message.replace("&#34;", "\"").replace("&quot;", "\""));
    }
    let line: String = all.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(REASON_LEN_MAX).collect()
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once("</")?;
    let is_plain = inner.len() <= REASON_LEN_MAX && !inner.chars().any(char::is_control);
    is_plain.then_some(inner)
}

const REASON_LEN_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_answer_becomes_one_line_with_a_cure() {
        let body = "<?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The signature differs</Message><AWSAccessKeyId>AK</AWSAccessKeyId></Error>";
        let error = Error::PermissionDenied { path: "p/manifest".into(), source: body.into() };
        let described = describe("s3://b/p/manifest", "https://s3.example", &error);
        assert_eq!(described.kind, BucketErrorKind::Denied);
        assert!(
            described.text.starts_with(
                "s3://b/p/manifest: https://s3.example refuses the request: SignatureDoesNotMatch: The signature differs; check"
            )
        );
        assert!(!described.text.contains('\n') && !described.text.contains("AWSAccessKeyId>"));
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region &#34;x&#34; is wrong</Message></Error>";
        let described = describe(
            "s3://b/p",
            "https://s3.example",
            &Error::Generic { store: "S3", source: body.into() },
        );
        assert_eq!(described.kind, BucketErrorKind::Denied);
        assert!(
            described.text.contains("the region \"x\" is wrong")
                && described.text.contains("AWS_REGION"),
            "{}",
            described.text
        );
        let body = "Server returned non-2xx status code: 501 Not Implemented: ";
        let described = describe(
            "s3://b/p",
            "https://s3.example",
            &Error::Generic { store: "S3", source: body.into() },
        );
        assert!(
            described.kind == BucketErrorKind::Invalid
                && described.text.contains("does not know this request"),
            "{}",
            described.text
        );
        let error =
            Error::NotFound { path: "p".into(), source: "<Code>NoSuchBucket</Code>".into() };
        assert_eq!(
            describe("s3://b/p", "https://s3.example", &error).kind,
            BucketErrorKind::Invalid
        );
    }
}
