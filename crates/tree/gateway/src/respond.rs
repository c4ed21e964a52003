use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    HeaderValue, LOCATION, RETRY_AFTER, VARY,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use vouch_daemon::printable::JsonName;
use vouch_tree::{Blob, Content, Inode};
use vouch_tree_client::{Error, ErrorClass, Position, ResolvedPath, Revision, Tree};
use vouch_xdr::Xdr as _;

use crate::body::{Body, JsonListing, full};
use crate::conditions::{EntityTag, Precondition};
use crate::html;
use crate::json::{self, ErrorAnswer, PageLocation, RevisionRecord};
use crate::limits::ROWS_MAX;
use crate::listing::{DirectoryPage, problem_page, revisions_page};
use crate::problem::Problem;
use crate::revisions::Revisions;
use crate::target::{Format, Page, PathTarget, Query, Selector};

pub(crate) struct Responder {
    pub(crate) tree: Arc<Tree>,
    pub(crate) revisions: Revisions,
    /// Limit for finding a file. Its content has no time limit.
    pub(crate) deadline: Duration,
    /// Pages of the tree may run scripts.
    pub(crate) allows_scripts: bool,
    /// Shows `index.html` for its directory.
    pub(crate) shows_index: bool,
}

pub(crate) struct ResolvedTarget {
    pub(crate) revision: Arc<Revision>,
    pub(crate) path: Vec<u8>,
    pub(crate) inode: Inode,
}

pub(crate) struct TreeRequest<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) is_head: bool,
    pub(crate) target: PathTarget,
    pub(crate) query: Query,
}

impl Responder {
    pub(crate) async fn respond<B>(
        &self,
        request: &Request<B>,
    ) -> (Response<Body>, Option<String>) {
        let late =
            || Problem::new(StatusCode::GATEWAY_TIMEOUT, "no replica of the tree answered in time");
        let answered = tokio::time::timeout(self.deadline, self.answer(request))
            .await
            .unwrap_or_else(|_| Err(late()));
        let (mut response, log) = match answered {
            Ok(response) => (response, None),
            Err(problem) => {
                let depth =
                    request.uri().path().bytes().skip(1).filter(|byte| *byte == b'/').count();
                (problem_response(&problem, request.headers(), depth), problem.log)
            }
        };
        let headers = response.headers_mut();
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
        (response, log)
    }

    async fn answer<B>(&self, request: &Request<B>) -> Result<Response<Body>, Problem> {
        let is_head = match *request.method() {
            Method::GET => false,
            Method::HEAD => true,
            _ => {
                return Err(Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "the tree is read-only: use GET or HEAD",
                ));
            }
        };
        let query = Query::parse(request.uri().query())?;
        match Page::parse(request.uri().path())? {
            Page::Revisions => self.list_revisions(request.headers(), &query).await,
            Page::Path(target) => {
                let wanted = TreeRequest { headers: request.headers(), is_head, target, query };
                let found = self.find(&wanted.target).await?;
                match &found.inode.content {
                    Content::Directory { .. } => match self.index_file(&wanted, &found).await? {
                        Some((found, blob)) => {
                            let mut response = self.file(&wanted, &found, &blob).await?;
                            response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
                            Ok(response)
                        }
                        None => self.directory(&wanted, &found).await,
                    },
                    Content::Regular { blob, .. } if !wanted.target.has_slash => {
                        self.file(&wanted, &found, blob).await
                    }
                    Content::Regular { .. } => {
                        Err(Problem::not_found("the path ends with / but is not a directory"))
                    }
                    _ => Err(Problem::not_found("a device, pipe or socket has no content")),
                }
            }
        }
    }

    async fn revision(&self, selector: &Selector) -> Result<Arc<Revision>, Problem> {
        let found = match selector {
            Selector::Newest { .. } => {
                return self.newest().await.map_err(|error| Problem::of(&error));
            }
            Selector::Number(number) => self.revisions.by_number(&self.tree, *number).await,
            Selector::Tag(tag) => self.revisions.by_tag(&self.tree, tag).await,
        };
        let missing = || {
            Problem::not_found(
                "no replica has this revision; /@revisions lists those that there are",
            )
        };
        found.map_err(|error| Problem::of(&error))?.ok_or_else(missing)
    }

    async fn newest(&self) -> Result<Arc<Revision>, Error> {
        if self.tree.revision().is_err() {
            // An operation of the tree refreshes an expired revision.
            self.tree.resolve_path(self.tree.newest().root(), b"").await?;
        }
        self.tree.revision()
    }

    async fn find(&self, target: &PathTarget) -> Result<ResolvedTarget, Problem> {
        let path = target.path();
        let mut is_repeated = false;
        loop {
            let revision = self.revision(&target.selector).await?;
            match self.tree.resolve_path(revision.root(), &path).await {
                Ok(ResolvedPath::Inside { path, inode }) => {
                    return Ok(ResolvedTarget { revision, path, inode });
                }
                Ok(ResolvedPath::Outside { .. }) => {
                    return Err(Problem::not_found(
                        "a symbolic link in the path leads out of the tree",
                    ));
                }
                // The replicas have dropped this revision for a newer one.
                Err(Error::Missing { .. })
                    if !is_repeated && matches!(target.selector, Selector::Newest { .. }) =>
                {
                    is_repeated = true;
                    let _ = self.tree.refresh().await;
                }
                Err(error) => return Err(Problem::of(&error)),
            }
        }
    }

    /// Requests for JSON or with a query get the listing.
    async fn index_file(
        &self,
        request: &TreeRequest<'_>,
        directory: &ResolvedTarget,
    ) -> Result<Option<(ResolvedTarget, Blob)>, Problem> {
        let TreeRequest { headers, target, query, .. } = request;
        if !self.shows_index
            || !target.has_slash
            || !target.is_canonical
            || *query != Query::default()
            || wants_json(headers, query)
        {
            return Ok(None);
        }
        let revision = directory.revision.clone();
        let slash = if directory.path.is_empty() { &b""[..] } else { b"/" };
        let path = [&directory.path, slash, b"index.html"].concat();
        match self.tree.resolve_path(revision.root(), &path).await {
            Ok(ResolvedPath::Inside { path, inode }) => Ok(match &inode.content {
                Content::Regular { blob, .. } => {
                    Some((ResolvedTarget { revision, path, inode: inode.clone() }, blob.clone()))
                }
                _ => None,
            }),
            Ok(ResolvedPath::Outside { .. }) => Ok(None),
            Err(error) if error.class() == ErrorClass::NotFound => Ok(None),
            Err(error) => Err(Problem::of(&error)),
        }
    }

    async fn directory(
        &self,
        request: &TreeRequest<'_>,
        found: &ResolvedTarget,
    ) -> Result<Response<Body>, Problem> {
        let target = &request.target;
        if !target.has_slash || !target.is_canonical {
            return Ok(redirect(&target.directory(target.names.len())));
        }
        let is_json = wants_json(request.headers, &request.query);
        let form: &[u8] = if is_json { b"json" } else { b"html" };
        let after = request.query.after.as_deref();
        // The page shows revision and path: the tag covers them.
        let tag = EntityTag::of(
            "vouch gateway 2026 directory",
            &[
                env!("CARGO_PKG_VERSION").as_bytes(),
                form,
                &found.inode.to_xdr(),
                found.revision.handle.as_bytes(),
                target.selector.prefix().as_bytes(),
                &target.path(),
                after.unwrap_or_default(),
            ],
        );
        let mut response = match Precondition::evaluate(request.headers, &tag, None) {
            Precondition::Failed => return Err(precondition_failed()),
            Precondition::NotModified => status_only(StatusCode::NOT_MODIFIED),
            Precondition::Proceed if is_json => self.json_directory(found, after).await?,
            Precondition::Proceed => self.html_directory(target, found, after).await?,
        };
        self.add_common(&mut response, &found.revision, &target.selector, &tag);
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        Ok(response)
    }

    async fn json_directory(
        &self,
        found: &ResolvedTarget,
        after: Option<&[u8]>,
    ) -> Result<Response<Body>, Problem> {
        let position = after.map_or(Position::Start, Position::After);
        let is_opaque = matches!(found.inode.content, Content::Directory { opaque: true, .. });
        let place = json::text(&self.place(found));
        let head = format!(
            "{},\"type\":\"directory\",\"entries\":[",
            place.strip_suffix('}').unwrap_or(&place)
        );
        if is_opaque {
            return Ok(with_type(full(head + "],\"names_hidden\":true}\n"), "application/json"));
        }
        let first =
            self.tree.list(&found.inode, position).await.map_err(|error| Problem::of(&error))?;
        let listing =
            JsonListing { tree: self.tree.clone(), directory: found.inode.clone(), head, first };
        Ok(with_type(listing.into_body(), "application/json"))
    }

    async fn html_directory(
        &self,
        target: &PathTarget,
        found: &ResolvedTarget,
        after: Option<&[u8]>,
    ) -> Result<Response<Body>, Problem> {
        let (mut entries, mut first) = (Vec::new(), None);
        let is_opaque = matches!(found.inode.content, Content::Directory { opaque: true, .. });
        let mut position = after.map_or(Position::Start, Position::After);
        while !is_opaque && entries.len() < ROWS_MAX {
            let page = self
                .tree
                .list(&found.inode, position)
                .await
                .map_err(|error| Problem::of(&error))?;
            first.get_or_insert(page.number);
            entries.extend(
                (0..page.entries().len().min(ROWS_MAX - entries.len()))
                    .filter_map(|index| page.entry(index)),
            );
            if page.last || page.entries().is_empty() {
                break;
            }
            position = page.next();
        }
        let page = DirectoryPage {
            tree: self.tree.name(),
            revision: &found.revision,
            target,
            entries,
            first: first.unwrap_or(0),
            total: found.inode.size(),
            is_opaque,
            now_s: now_s(),
        };
        Ok(with_type(full(page.render()), "text/html; charset=utf-8"))
    }

    async fn list_revisions(
        &self,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Response<Body>, Problem> {
        // An expired tree is an error, as for files.
        self.newest().await.map_err(|error| Problem::of(&error))?;
        let mut revisions = self
            .revisions
            .newest(&self.tree, ROWS_MAX + 1)
            .await
            .map_err(|error| Problem::of(&error))?;
        let is_whole = revisions.len() <= ROWS_MAX;
        revisions.truncate(ROWS_MAX);
        let mut response = if wants_json(headers, query) {
            let records: Vec<_> =
                revisions.iter().map(|revision| RevisionRecord::new(revision)).collect();
            let tree = json::text(&self.tree.name().to_string());
            with_type(
                full(format!("{{\"tree\":{tree},\"revisions\":{}}}\n", json::text(&records))),
                "application/json",
            )
        } else {
            with_type(
                full(revisions_page(self.tree.name(), &revisions, is_whole, now_s())),
                "text/html; charset=utf-8",
            )
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(VARY, HeaderValue::from_static("accept"));
        headers.insert(CONTENT_SECURITY_POLICY, html::policy());
        Ok(response)
    }

    pub(crate) fn place<'a>(&self, found: &'a ResolvedTarget) -> PageLocation<'a> {
        PageLocation {
            tree: self.tree.name().to_string(),
            revision: found.revision.number(),
            tag: &found.revision.fsinfo.tag,
            path: JsonName::new(&found.path),
        }
    }

    pub(crate) fn add_common(
        &self,
        response: &mut Response<Body>,
        revision: &Revision,
        selector: &Selector,
        tag: &EntityTag,
    ) {
        let headers = response.headers_mut();
        headers.insert(ETAG, tag.header());
        headers.insert(
            CACHE_CONTROL,
            HeaderValue::from_static(if selector.is_fixed() { FIXED_CACHING } else { "no-cache" }),
        );
        headers.insert(HeaderName::from_static("vouch-revision"), revision.number().into());
        headers.entry(CONTENT_SECURITY_POLICY).or_insert_with(html::policy);
    }
}

/// The requested path has `depth` directories, which lie above the page's link to the tree.
pub(crate) fn problem_response(
    problem: &Problem,
    headers: &HeaderMap,
    depth: usize,
) -> Response<Body> {
    let mut response = if wants_json(headers, &Query::default()) {
        let answer = ErrorAnswer { status: problem.status.as_u16(), error: &problem.reason };
        with_type(full(json::text(&answer) + "\n"), "application/json")
    } else if accepts(headers, "text/html") {
        with_type(full(problem_page(problem, depth)), "text/html; charset=utf-8")
    } else {
        with_type(full(format!("{}\n", problem.reason)), "text/plain; charset=utf-8")
    };
    *response.status_mut() = problem.status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, html::policy());
    if problem.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if problem.is_temporary() {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
    }
    response
}

pub(crate) fn precondition_failed() -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, "the file has other content than If-Match names")
}

pub(crate) fn status_only(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = status;
    response
}

pub(crate) fn with_type(body: Body, kind: &str) -> Response<Body> {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_str(kind)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn redirect(url: &str) -> Response<Body> {
    let mut response = status_only(StatusCode::FOUND);
    let url = HeaderValue::from_str(url).expect("an encoded URL is ASCII without controls");
    response.headers_mut().insert(LOCATION, url);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The query decides, else the Accept header.
fn wants_json(headers: &HeaderMap, query: &Query) -> bool {
    match query.format {
        Some(format) => format == Format::Json,
        None => accepts(headers, "application/json") && !accepts(headers, "text/html"),
    }
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let ranges = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    ranges
        .map(|range| range.split(';').next().unwrap_or_default().trim())
        .any(|range| range.eq_ignore_ascii_case(kind))
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A numbered revision does not change, but its key may be revoked.
const FIXED_CACHING: &str = "public, max-age=3600";
