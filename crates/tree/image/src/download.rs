//! Downloads from a registry (OCI Distribution 1.1). A registry may be anybody's, so each body is
//! read up to a limit.

use std::cell::RefCell;

use data_encoding::BASE64;
use http_auth::parser::ChallengeParser;
use oci_client::Reference;
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;

use crate::merge::SHOWN_LEN_MAX;

type Result<T> = std::result::Result<T, OciDistributionError>;

pub(crate) struct Downloads {
    client: Client,
    repository: String,
    scope: String,
    auth: RegistryAuth,
    /// What the registry has demanded.
    authorization: RefCell<Option<HeaderValue>>,
}

impl Downloads {
    pub(crate) fn new(
        client: Client,
        scheme: &str,
        reference: &Reference,
        auth: RegistryAuth,
    ) -> Self {
        let (host, name) = (reference.resolve_registry(), reference.repository());
        Self {
            client,
            repository: format!("{scheme}://{host}/v2/{name}"),
            scope: format!("repository:{name}:pull"),
            auth,
            authorization: RefCell::default(),
        }
    }

    /// `path` is below the repository: `manifests/TAG` or `blobs/DIGEST`.
    pub(crate) async fn get(&self, path: &str, accept: &str) -> Result<Response> {
        let url = format!("{}/{path}", self.repository);
        let send = || {
            let request = self.client.get(&url).header(ACCEPT, accept);
            match &*self.authorization.borrow() {
                Some(value) => request.header(AUTHORIZATION, value.clone()).send(),
                None => request.send(),
            }
        };
        let mut response = send().await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            // No token yet, or one that has expired.
            let value = self.authorize(&response).await?;
            self.authorization.replace(value);
            response = send().await?;
        }
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::UNAUTHORIZED => Err(OciDistributionError::UnauthorizedError { url }),
            status => {
                let body = read(response, ANSWER_LEN_MAX).await?;
                Err(match serde_json::from_slice(&body) {
                    Ok(envelope) => OciDistributionError::RegistryError { envelope, url },
                    Err(_) => {
                        let message = start_of(&body);
                        OciDistributionError::ServerError { code: status.as_u16(), url, message }
                    }
                })
            }
        }
    }

    /// A token, by the registry's token server, or the password.
    async fn authorize(&self, refused: &Response) -> Result<Option<HeaderValue>> {
        let challenge = refused.headers().get(WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let bearer = ChallengeParser::new(challenge)
            .filter_map(std::result::Result::ok)
            .find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"));
        let secret = match (bearer, &self.auth) {
            (Some(bearer), _) => {
                let parameter = |name: &str| {
                    let mut all = bearer.params.iter();
                    all.find(|(key, _)| key.eq_ignore_ascii_case(name))
                        .map(|(_, value)| value.to_unescaped())
                };
                let realm = parameter("realm").unwrap_or_default();
                format!("Bearer {}", self.token(&realm, parameter("service")).await?)
            }
            (None, RegistryAuth::Basic(user, password)) => {
                format!("Basic {}", BASE64.encode(format!("{user}:{password}").as_bytes()))
            }
            (None, _) => return Ok(None),
        };
        let failed = |_| OciDistributionError::AuthenticationFailure("an unusable token".into());
        let mut value = HeaderValue::try_from(secret).map_err(failed)?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    async fn token(&self, realm: &str, service: Option<String>) -> Result<String> {
        let mut url = token_server(&self.repository, realm)?;
        url.query_pairs_mut().append_pair("scope", &self.scope);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", &service);
        }
        let request = self.client.get(url);
        let response = match &self.auth {
            RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
            _ => request,
        };
        let response = response.send().await?;
        let status = response.status();
        let body = read(response, ANSWER_LEN_MAX).await?;
        if !status.is_success() {
            return Err(OciDistributionError::AuthenticationFailure(start_of(&body)));
        }
        let token: Token = serde_json::from_slice(&body)?;
        let token = token.token.or(token.access_token);
        token.ok_or_else(|| OciDistributionError::RegistryTokenDecodeError("no token".into()))
    }
}

/// Of a registry with TLS only with TLS: it gets the password.
fn token_server(repository: &str, realm: &str) -> Result<Url> {
    let url = Url::parse(realm)
        .map_err(|error| OciDistributionError::UrlParseError(format!("{realm}: {error}")))?;
    if repository.starts_with("https:") && url.scheme() != "https" {
        let why = format!("the registry names a token server without TLS, {url}");
        return Err(OciDistributionError::AuthenticationFailure(why));
    }
    Ok(url)
}

fn start_of(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(SHOWN_LEN_MAX)]).into_owned()
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// A body of `len_max` bytes at most.
pub(crate) async fn read(mut response: Response, len_max: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if bytes.len() + piece.len() > len_max {
            let why = format!("{} is longer than {len_max} bytes", response.url());
            return Err(OciDistributionError::SpecViolationError(why));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Of a token server, and with errors.
const ANSWER_LEN_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::token_server;
    use crate::registry::{Registry, RegistryOptions};

    #[test]
    fn password_stays_within_tls() {
        let (secure, plain) = ("https://registry.example/v2/app", "http://registry.example/v2/app");
        assert!(token_server(secure, "https://auth.example/token").is_ok());
        assert!(token_server(plain, "http://auth.example/token").is_ok());
        token_server(secure, "http://auth.example/token").unwrap_err();
    }

    /// Answers each request by the last part of its path. A body without an end is cut off when the
    /// client leaves.
    fn serve(answer: impl Fn(&str, bool) -> (String, &'static str) + Send + 'static) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream: TcpStream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
                let target = request.split(' ').nth(1).unwrap();
                let path = target.split('?').next().unwrap().rsplit('/').next().unwrap();
                let (head, body) =
                    answer(path, request.contains("authorization: bearer t0ken\r\n"));
                let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n{body}");
                let _ = stream.write_all(head.as_bytes());
                while body.is_empty() && stream.write_all(&[b' '; 65536]).is_ok() {}
            }
        });
        port
    }

    fn manifest(port: u16, tag: &str) -> Result<Vec<u8>, crate::Error> {
        let options = RegistryOptions { plain_http: true, auth_file: None };
        Registry::new(&format!("127.0.0.1:{port}/app:{tag}"), &options)?.manifest(None)
    }

    #[test]
    fn bodies_without_end_are_refused_at_their_limits() {
        let challenge = "401 no\r\nWWW-Authenticate: Bearer realm=\"http://127.0.0.1:1/";
        let at = std::sync::Arc::new(std::sync::OnceLock::<u16>::new());
        let known = at.clone();
        let port = serve(move |path, has_token| match (path, has_token) {
            ("endless-token", _) => {
                let to = format!(":{}/forever", known.get().unwrap());
                (format!("{}\"", challenge.replace(":1/", &to)), "x")
            }
            ("good", false) => {
                let to = format!(":{}/token", known.get().unwrap());
                (format!("{}\",service=\"s\"", challenge.replace(":1/", &to)), "x")
            }
            ("good", true) => ("200 OK".into(), "a manifest"),
            ("token", _) => ("200 OK".into(), "{\"token\":\"t0ken\"}"),
            ("endless-error", _) => ("500 no".into(), ""),
            ("absent", _) => ("404 no".into(), "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\"}]}"),
            _ => ("200 OK".into(), ""),
        });
        at.set(port).unwrap();
        for endless in ["endless-manifest", "endless-token", "endless-error"] {
            let error = manifest(port, endless).expect_err(endless).to_string();
            assert!(error.contains("is longer than"), "{endless}: {error}");
        }
        assert_eq!(manifest(port, "good").unwrap(), b"a manifest");
        assert!(manifest(port, "absent").expect_err("404").is_missing());
    }
}
