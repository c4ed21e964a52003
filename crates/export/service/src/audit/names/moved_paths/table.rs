use std::collections::BTreeMap;
use std::ops::Bound;

use vouch_audit::rules::Rules;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub(super) by_path: BTreeMap<Path, Vec<Path>>,
    pub(super) are_more: bool,
}

pub(crate) type Path = Box<[u8]>;

impl Table {
    pub(super) fn any(&self) -> bool {
        self.are_more || !self.by_path.is_empty()
    }

    pub(super) fn former(&self, path: &[u8], mut each: impl FnMut(&[u8])) {
        let mut end = path.len();
        while end > 0 {
            for former in self.by_path.get(&path[..end]).into_iter().flatten() {
                each(&[former, &path[end..]].concat());
            }
            end = path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        }
    }

    pub(super) fn matching_paths(&self, rules: &Rules, path: &[u8]) -> Vec<Box<[u8]>> {
        let mut names = vec![Box::from(path)];
        self.former(path, |former| names.push(former.into()));
        names.retain(|name| rules.watches_within(name));
        names
    }

    pub(super) fn is_meant_below(&self, rules: &Rules, path: &[u8]) -> bool {
        let mut is_meant =
            rules.watches_below(path) || self.within(path).any(|(rest, _)| !rest.is_empty());
        self.former(path, |former| is_meant |= rules.watches_below(former));
        is_meant
    }

    pub(super) fn within<'a>(
        &'a self,
        path: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Vec<Path>)> {
        let from = self.by_path.range::<[u8], _>((Bound::Included(path), Bound::Unbounded));
        let begin_so = from.map_while(move |(at, former)| Some((at.strip_prefix(path)?, former)));
        begin_so.filter(|(rest, _)| rest.is_empty() || rest.starts_with(b"/"))
    }

    pub(super) fn has_at(&self, path: &[u8]) -> bool {
        self.within(path).next().is_some()
    }

    pub(super) fn at(&self, path: &[u8]) -> Vec<(Path, Vec<Path>)> {
        self.within(path).map(|(below, former)| (below.into(), former.clone())).collect()
    }

    pub(super) fn take_at(&mut self, path: &[u8]) -> Vec<(Path, Vec<Path>)> {
        let taken = self.at(path);
        taken.iter().for_each(|(below, _)| drop(self.by_path.remove(&*[path, below].concat())));
        taken
    }

    pub(super) fn add(&mut self, path: Box<[u8]>, former: Box<[u8]>) {
        if *path == *former {
            return;
        }
        let is_full = self.by_path.values().map(Vec::len).sum::<usize>() >= MOVED_MAX;
        let all = self.by_path.entry(path).or_default();
        if all.contains(&former) {
            return;
        }
        match is_full {
            true => self.are_more = true,
            false => all.push(former),
        }
        self.by_path.retain(|_, former| !former.is_empty());
    }

    pub(crate) fn text(&self) -> String {
        let hex = |path: &[u8]| data_encoding::HEXLOWER.encode(path);
        let each = self
            .by_path
            .iter()
            .flat_map(|(path, former)| former.iter().map(move |former| (path, former)));
        let mut lines: Vec<String> =
            each.map(|(path, former)| format!("{} {}\n", hex(path), hex(former))).collect();
        if self.are_more {
            lines.push(format!("{MORE}\n"));
        }
        format!("{}{END}{}\n", lines.concat(), lines.len())
    }

    pub(crate) fn parse(text: &str) -> Table {
        let mut known = Table::default();
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        let end =
            lines.pop().and_then(|line| line.strip_prefix(END)?.strip_suffix('\n')?.parse().ok());
        known.are_more = end != Some(lines.len());
        for line in lines {
            let path = |text: &str| {
                data_encoding::HEXLOWER.decode(text.as_bytes()).ok().map(Vec::into_boxed_slice)
            };
            let pair = line.strip_suffix('\n').and_then(|line| line.split_once(' '));
            match pair.and_then(|(at, former)| Some((path(at)?, path(former)?))) {
                Some((at, former)) => known.add(at, former),
                None => known.are_more = true,
            }
        }
        known
    }
}

/// Users who may rename a parent of a watched directory could create any number.
pub(super) const MOVED_MAX: usize = 512;
const MORE: &str = "more";
/// Starts the last line, which has the number of earlier lines.
const END: &str = "end ";
