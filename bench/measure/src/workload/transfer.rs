//! After LANL's study of Kerberos NFS: rate by file size, and time for many small and some large
//! files.

use crate::Case;
use crate::byte_units::size;
use crate::case::{Content, Copy};
use crate::runner::PlannedCase;

#[derive(Debug, Clone)]
pub struct Transfer {
    pub sizes: Vec<u64>,
    pub contents: Vec<Content>,
    pub small: (u64, u64),
    pub large: (u64, u64),
    pub streams: u32,
    pub depth: u32,
}

impl Transfer {
    pub fn full() -> Self {
        let sizes = vec![
            100_000,
            1_000_000,
            10_000_000,
            100_000_000,
            500_000_000,
            1_000_000_000,
            2_000_000_000,
        ];
        let (small, large) = ((10_000, 5_000), (20, 500_000_000));
        Self {
            sizes,
            contents: vec![Content::Zeros, Content::Random],
            small,
            large,
            streams: 1,
            depth: 16,
        }
    }

    pub fn quick() -> Self {
        let sizes = vec![100_000, 1_000_000, 10_000_000, 50_000_000];
        Self {
            sizes,
            contents: vec![Content::Random],
            small: (500, 5_000),
            large: (3, 30_000_000),
            ..Self::full()
        }
    }
}

pub fn transfer(options: &Transfer) -> Vec<PlannedCase> {
    let mut plan = Vec::new();
    let copy = |files, len, content| Copy {
        files,
        len,
        content,
        streams: options.streams,
        depth: options.depth,
    };
    let both =
        |plan: &mut Vec<PlannedCase>, panel: &str, name: &str, x: Option<f64>, copy: Copy| {
            for (direction, case) in
                [("to the subject", Case::Put(copy)), ("from the subject", Case::Get(copy))]
            {
                let planned =
                    PlannedCase::new("transfer", format!("{panel}, {direction}"), name, case);
                plan.push(PlannedCase { x, ..planned });
            }
        };
    for &content in &options.contents {
        let what = if content == Content::Zeros { "zeros" } else { "random data" };
        for &len in &options.sizes {
            both(
                &mut plan,
                &format!("Rate by file size, {what}"),
                &size(len),
                Some(len as f64),
                copy(1, len, content),
            );
        }
    }
    let (files, len) = options.small;
    both(
        &mut plan,
        "Time for many small files",
        &format!("{files} × {}", size(len)),
        None,
        copy(files, len, Content::Random),
    );
    let (files, len) = options.large;
    both(
        &mut plan,
        "Time for large files",
        &format!("{files} × {}", size(len)),
        None,
        copy(files, len, Content::Random),
    );
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_put_is_followed_by_its_get() {
        let plan = transfer(&Transfer::full());
        assert_eq!(plan.len(), 2 * (2 * 7 + 2));
        for pair in plan.chunks(2) {
            let [
                PlannedCase { case: Case::Put(put), .. },
                PlannedCase { case: Case::Get(get), .. },
            ] = pair
            else {
                panic!("{pair:?}")
            };
            assert_eq!(put, get);
        }
        assert!(plan.iter().any(|planned| planned.name == "10000 × 5 kB"));
        assert!(plan.iter().any(|planned| planned.name == "20 × 500 MB"));
        assert!(plan.iter().any(|planned| planned.name == "2 GB"));
    }
}
