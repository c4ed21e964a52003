use std::fmt::Write as _;

use jiff::tz::TimeZone;
use vouch_tree::time_text::{RelativeTime, Utc};
use vouch_tree::{Content, FileType, Timestamp, TreeName};
use vouch_tree_client::{Entry, Revision};

use crate::html::{self, Name, Text, grouped, icon, size};
use crate::json::type_word;
use crate::problem::Problem;
use crate::target::{PathTarget, Selector, encode};

pub(crate) struct DirectoryPage<'a> {
    pub(crate) tree: &'a TreeName,
    pub(crate) revision: &'a Revision,
    pub(crate) target: &'a PathTarget,
    pub(crate) entries: Vec<Entry>,
    pub(crate) first: u64,
    pub(crate) total: u64,
    pub(crate) is_opaque: bool,
    pub(crate) now_s: u64,
}

impl DirectoryPage<'_> {
    pub(crate) fn render(mut self) -> String {
        let is_whole = self.entries.len() as u64 == self.total;
        if is_whole {
            // A part keeps the order of the tree, which the next part continues.
            self.entries.sort_by_key(|entry| !entry.inode.is_directory());
        }
        let path = self.target.path();
        let title = format!(
            "/{} - {} - verified tree",
            vouch_daemon::printable::printable(&path),
            self.tree.host()
        );
        let mut main = String::from("<header>\n<h1>");
        self.crumbs(&mut main);
        main.push_str("</h1>\n");
        self.facts(&mut main, is_whole);
        main.push_str("</header>\n<main>\n");
        self.table(&mut main);
        if !is_whole && !self.is_opaque {
            self.other_parts(&mut main);
        }
        main.push_str("</main>\n");
        self.footer(&mut main);
        html::page(&title, &main)
    }

    fn crumbs(&self, out: &mut String) {
        let names = &self.target.names;
        let host = Text(self.tree.host());
        if names.is_empty() {
            let _ = write!(out, "{host}");
            return;
        }
        let _ = write!(out, "<a href=\"{}\">{host}</a>", self.target.directory(0));
        for (at, name) in names.iter().enumerate() {
            out.push_str("<span class=\"sep\">/</span>");
            if at + 1 == names.len() {
                let _ = write!(out, "{}", Name(name));
            } else {
                let _ =
                    write!(out, "<a href=\"{}\">{}</a>", self.target.directory(at + 1), Name(name));
            }
        }
    }

    fn facts(&self, out: &mut String, is_whole: bool) {
        let _ = write!(out, "<p class=\"facts\"><span class=\"ok\">✓ verified</span> · ");
        let _ = write!(
            out,
            "{} {}",
            grouped(self.total),
            if self.total == 1 { "entry" } else { "entries" }
        );
        if !is_whole && !self.entries.is_empty() {
            let _ = write!(
                out,
                ", here {} to {}",
                grouped(self.first + 1),
                grouped(self.first + self.entries.len() as u64)
            );
        }
        let start = self.revision.fsinfo.start;
        let _ = writeln!(
            out,
            " · revision {}{}, signed <time datetime=\"{}\">{}</time></p>",
            self.revision.number(),
            tag_text(&self.revision.fsinfo.tag),
            Utc(start),
            RelativeTime { at: start, now: self.now_s }
        );
        if matches!(self.target.selector, Selector::Number(_) | Selector::Tag(_)) {
            let newest = self
                .target
                .directory_in(&Selector::Newest { explicit: false }, self.target.names.len());
            let _ = writeln!(
                out,
                "<p class=\"note\">This is a fixed revision. <a href=\"{newest}\">Show the newest</a></p>"
            );
        }
    }

    fn table(&self, out: &mut String) {
        if self.is_opaque {
            out.push_str(
                "<p class=\"empty\">The publisher hides the names in this directory. Files are available by their full names.</p>\n",
            );
            return;
        }
        if self.entries.is_empty() {
            out.push_str("<p class=\"empty\">This directory has no entries.</p>\n");
            return;
        }
        out.push_str(
            "<table>\n<thead><tr><th class=\"name\" scope=\"col\">Name</th><th class=\"size\" scope=\"col\">Size</th>\
             <th class=\"time\" scope=\"col\">Modified<span> (UTC)</span></th></tr></thead>\n<tbody>\n",
        );
        for entry in &self.entries {
            self.row(out, entry);
        }
        out.push_str("</tbody>\n</table>\n");
    }

    fn row(&self, out: &mut String, entry: &Entry) {
        let (name, inode) = (entry.name.as_bytes(), &entry.inode);
        let kind = match inode.file_type() {
            FileType::Directory => "dir",
            FileType::Regular => "file",
            FileType::Symlink => "link",
            _ => "other",
        };
        let _ = write!(out, "<tr><td class=\"name\">{}", icon(kind));
        match &inode.content {
            Content::Fifo | Content::Socket | Content::CharDevice(_) | Content::BlockDevice(_) => {
                let _ = write!(
                    out,
                    "{} <span class=\"target\">({})</span>",
                    Name(name),
                    type_word(inode.file_type())
                );
            }
            _ => {
                let url = self.target.entry(name, inode.is_directory());
                let slash = if inode.is_directory() { "/" } else { "" };
                let _ = write!(out, "<a href=\"{url}\">{}{slash}</a>", Name(name));
            }
        }
        if let Content::Symlink(target) = &inode.content {
            let _ = write!(out, " <span class=\"target\">→ {}</span>", Name(target));
        }
        out.push_str("</td><td class=\"size\">");
        match &inode.content {
            Content::Regular { blob, .. } => {
                let _ = write!(
                    out,
                    "<span title=\"{} bytes\">{}</span>",
                    grouped(blob.size),
                    size(blob.size)
                );
            }
            Content::Directory { entries, opaque: false, .. } => {
                let _ = write!(
                    out,
                    "{} {}",
                    grouped(*entries),
                    if *entries == 1 { "entry" } else { "entries" }
                );
            }
            _ => out.push('–'),
        }
        let _ = writeln!(out, "</td><td class=\"time\">{}</td></tr>", time_cell(inode.mtime));
    }

    fn other_parts(&self, out: &mut String) {
        out.push_str("<p class=\"pages\">");
        if self.first > 0 {
            out.push_str("<a href=\"./\">First entries</a>");
        }
        if let Some(last) = self.entries.last()
            && self.first + (self.entries.len() as u64) < self.total
        {
            let _ = write!(
                out,
                "<a href=\"./?after={}\" rel=\"next\">Next entries</a>",
                encode(last.name.as_bytes())
            );
        }
        out.push_str("</p>\n");
    }

    fn footer(&self, out: &mut String) {
        let _ = write!(
            out,
            "<footer>\n<p class=\"more\"><a href=\"{}@revisions\">All revisions</a><a href=\"?format=json\">This directory as JSON</a></p>\n\
             <p>This gateway has verified the directory against the key in the tree's name: <code>{}</code></p>\n</footer>\n",
            self.target.up(),
            Text(self.tree)
        );
    }
}

/// Newest first. `is_whole`: no replica keeps older ones.
pub(crate) fn revisions_page(
    tree: &TreeName,
    revisions: &[std::sync::Arc<Revision>],
    is_whole: bool,
    now_s: u64,
) -> String {
    let mut main = format!(
        "<header>\n<h1><a href=\"./\">{}</a><span class=\"sep\">/</span>Revisions</h1>\n",
        Text(tree.host())
    );
    let newest = revisions.first().map_or(0, |revision| revision.number());
    let which = if is_whole { "all that the replicas keep" } else { "the newest" };
    let _ = write!(
        main,
        "<p class=\"facts\"><span class=\"ok\">✓ verified</span> · {} {}, {which}</p>\n</header>\n<main>\n<table>\n<thead><tr><th class=\"name\" scope=\"col\">Revision</th>\
         <th class=\"size\" scope=\"col\">Files</th><th class=\"size\" scope=\"col\">Size</th><th class=\"time\" scope=\"col\">Signed<span> (UTC)</span></th></tr></thead>\n<tbody>\n",
        revisions.len(),
        if revisions.len() == 1 { "revision" } else { "revisions" }
    );
    for revision in revisions {
        let (number, fsinfo) = (revision.number(), &revision.fsinfo);
        let _ = write!(
            main,
            "<tr><td class=\"name\">{}<a href=\"./@{number}/\">{number}</a>",
            icon("dir")
        );
        if number == newest {
            main.push_str(" <span class=\"target\">newest</span>");
        }
        if !fsinfo.tag.is_empty() {
            let _ = write!(
                main,
                " <span class=\"target\">tag</span> <a href=\"./{}\">{}</a>",
                Selector::Tag(fsinfo.tag.clone()).prefix(),
                Name(fsinfo.tag.as_bytes())
            );
        }
        let signed = i64::try_from(fsinfo.start).unwrap_or(i64::MAX);
        let _ = writeln!(
            main,
            "</td><td class=\"size\">{}</td><td class=\"size\">{}</td><td class=\"time\" title=\"{}\">{}</td></tr>",
            grouped(fsinfo.counts.files),
            size(fsinfo.counts.bytes),
            RelativeTime { at: fsinfo.start, now: now_s },
            time_cell(Timestamp { s: signed, ns: 0 })
        );
    }
    main.push_str(
        "</tbody>\n</table>\n</main>\n<footer>\n<p class=\"more\"><a href=\"?format=json\">This list as JSON</a></p>\n</footer>\n",
    );
    html::page(&format!("Revisions - {} - verified tree", tree.host()), &main)
}

/// `depth` as in `problem_response`. The link is relative, so that a reverse proxy may add a path of
/// its own.
pub(crate) fn problem_page(problem: &Problem, depth: usize) -> String {
    let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth.min(DEPTH_MAX)) };
    let main = format!(
        "<header>\n<h1>{}</h1>\n</header>\n<main>\n<p>{}.</p>\n<p class=\"facts\">Status {}</p>\n<p><a href=\"{root}\">Top of the tree</a> · <a href=\"{root}@revisions\">Revisions</a></p>\n</main>\n",
        Text(problem.title()),
        Text(capitalized(&problem.reason)),
        problem.status.as_u16()
    );
    html::page(problem.title(), &main)
}

/// Directories of a path whose error page links to the tree; beyond it the link leads nowhere.
const DEPTH_MAX: usize = 1024;

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn tag_text(tag: &str) -> String {
    if tag.is_empty() { String::new() } else { format!(" (tag {})", Name(tag.as_bytes())) }
}

fn time_cell(time: Timestamp) -> String {
    match jiff::Timestamp::from_second(time.s) {
        Ok(instant) => {
            let zoned = instant.to_zoned(TimeZone::UTC);
            format!(
                "<time datetime=\"{instant}\">{}<span> {}</span></time>",
                zoned.strftime("%Y-%m-%d"),
                zoned.strftime("%H:%M")
            )
        }
        Err(_) => format!("@{}", time.s),
    }
}
