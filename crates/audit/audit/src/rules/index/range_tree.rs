//! A segment tree over half-open ranges: a range is stored at O(log n) nodes.

#[derive(Debug)]
pub(super) struct RangeTree<T> {
    bounds: Vec<T>,
    /// Node 1 is the root; node `n` has the children `2n` and `2n + 1`. The second half are leaves,
    /// one per bound.
    nodes: Vec<Vec<u32>>,
}

impl<T: Copy + Ord> RangeTree<T> {
    pub(super) fn new(spans: &[(T, Option<T>, u32)]) -> Self {
        let mut bounds: Vec<T> =
            spans.iter().flat_map(|(from, end, _)| [Some(*from), *end]).flatten().collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut nodes = vec![Vec::new(); 2 * bounds.len()];
        for (from, end, number) in spans {
            let leaf = |bound: &T| bounds.partition_point(|known| known < bound) + bounds.len();
            let (mut low, mut high) = (leaf(from), end.as_ref().map_or(nodes.len(), leaf));
            while low < high {
                if low % 2 == 1 {
                    nodes[low].push(*number);
                    low += 1;
                }
                if high % 2 == 1 {
                    high -= 1;
                    nodes[high].push(*number);
                }
                (low, high) = (low / 2, high / 2);
            }
        }
        RangeTree { bounds, nodes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    pub(super) fn holding(&self, value: T, mut each: impl FnMut(&[u32])) {
        let before = self.bounds.partition_point(|bound| *bound <= value);
        let mut node = before.checked_sub(1).map_or(0, |leaf| leaf + self.bounds.len());
        while node > 0 {
            each(&self.nodes[node]);
            node /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn finds_exactly_the_ranges_that_hold_a_value(
            spans in proptest::collection::vec((0i64..20, proptest::option::of(0i64..22)), 0..30), value in -1i64..23
        ) {
            let numbered: Vec<_> = spans.iter().zip(0u32..).map(|((from, end), number)| (*from, *end, number)).collect();
            let mut found = Vec::new();
            RangeTree::new(&numbered).holding(value, |numbers| {
                assert!(numbers.is_sorted());
                found.extend_from_slice(numbers);
            });
            found.sort_unstable();
            let holds = |(from, end, _): &&(i64, Option<i64>, u32)| *from <= value && end.is_none_or(|end| value < end);
            let wanted: Vec<u32> = numbered.iter().filter(holds).map(|(.., number)| *number).collect();
            proptest::prop_assert_eq!(found, wanted);
        }
    }
}
