//! Slurm's lists of nodes: `node[1-3,07-09],login1` (scontrol(1), "hostlist").

use crate::limits::NODE_COUNT_MAX;
use crate::names::NodeName;

/// Why a list of nodes is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    #[error("the list of nodes {0:?} is malformed: write node[1-3,07-09],login1")]
    Malformed(String),
    #[error("the list of nodes {0:?} names more than {NODE_COUNT_MAX} nodes")]
    Long(String),
    #[error(transparent)]
    Name(#[from] crate::names::NameError),
}

/// The nodes of a list, in its order.
///
/// # Errors
/// If the list is malformed or names too many nodes.
pub fn expand(list: &str) -> Result<Vec<NodeName>, HostlistError> {
    let shown = || list.chars().take(80).collect::<String>();
    let mut nodes = Vec::new();
    for pattern in split_outside_brackets(list).ok_or_else(|| HostlistError::Malformed(shown()))? {
        let mut names = vec![String::new()];
        let mut rest = pattern;
        while let Some((before, behind)) = rest.split_once('[') {
            let malformed = || HostlistError::Malformed(shown());
            let (ranges, behind) = behind.split_once(']').ok_or_else(malformed)?;
            let numbers = numbers(ranges).ok_or_else(malformed)?;
            if names.len().saturating_mul(numbers.len()) > NODE_COUNT_MAX {
                return Err(HostlistError::Long(shown()));
            }
            names = names
                .iter()
                .flat_map(|name| {
                    numbers.iter().map(move |number| format!("{name}{before}{number}"))
                })
                .collect();
            rest = behind;
        }
        if nodes.len() + names.len() > NODE_COUNT_MAX {
            return Err(HostlistError::Long(shown()));
        }
        for name in names {
            nodes.push(NodeName::parse(&(name + rest))?);
        }
    }
    Ok(nodes)
}

fn split_outside_brackets(list: &str) -> Option<Vec<&str>> {
    let (mut is_inside, mut start, mut parts) = (false, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '[' if is_inside => return None,
            '[' => is_inside = true,
            ']' if !is_inside => return None,
            ']' => is_inside = false,
            ',' if !is_inside => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    (!is_inside).then_some(parts)
}

/// `1-3,07`: each number with its leading zeros. None if malformed or beyond the limit.
fn numbers(ranges: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| {
            !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if from > to || to - from >= NODE_COUNT_MAX || numbers.len() + (to - from) >= NODE_COUNT_MAX
        {
            return None;
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(list: &str) -> Vec<String> {
        expand(list)
            .unwrap_or_else(|error| panic!("{error}"))
            .into_iter()
            .map(String::from)
            .collect()
    }

    #[test]
    fn ranges_keep_leading_zeros() {
        assert_eq!(names("node1"), ["node1"]);
        assert_eq!(
            names("node[1-3,07-08],login1"),
            ["node1", "node2", "node3", "node07", "node08", "login1"]
        );
        assert_eq!(names("r[1-2]n[8-9].a"), ["r1n8.a", "r1n9.a", "r2n8.a", "r2n9.a"]);
    }

    #[test]
    fn malformed_and_huge_lists_are_refused() {
        for bad in ["", "n[", "n]", "n[1-]", "n[3-1]", "n[a]", "n[1[2]]", "a,,b", "n[1-2", "a/b"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
        for huge in ["n[1-99999]", "n[0-99]m[0-99]o[0-99]", "n[0-9999],x", "n[1-999999999]"] {
            assert!(expand(huge).is_err(), "{huge}");
        }
        assert_eq!(expand("n[0-9999]").unwrap().len(), 10_000);
    }

    proptest! {
        #[test]
        fn any_text_is_expanded_or_refused(list in "[a-c0-9,\\[\\]-]{0,40}") {
            if let Ok(nodes) = expand(&list) {
                prop_assert!(nodes.len() <= NODE_COUNT_MAX);
            }
        }
    }
}
