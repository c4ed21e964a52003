#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Enforcement {
    #[default]
    None,
    Project {
        number: u32,
        limit: u64,
    },
    Counted {
        limit: u64,
    },
}
