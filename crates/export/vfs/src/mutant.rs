//! Seeded faults of the server. `script/mutants` shows that the consistency checker finds each of
//! them. They exist only with the feature `mutants`, which no release can have.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` is for debug builds of script/mutants, never for releases");

/// The fault `name` is chosen by the environment variable `VOUCH_MUTANT`.
#[cfg(feature = "mutants")]
pub fn mutant(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("VOUCH_MUTANT").ok()).as_deref() == Some(name)
}

#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn mutant(_name: &str) -> bool {
    false
}
