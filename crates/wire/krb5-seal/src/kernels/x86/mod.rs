/// Calls a macro with 0 to 19: the numbers must be literals, because they become constants.
macro_rules! twenty_times {
    ($step:ident) => {
        twenty_times!(@ $step 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19)
    };
    (@ $step:ident $($number:literal)*) => { $($step!($number);)* };
}

/// Calls a macro with 0 to 39.
macro_rules! forty_times {
    ($step:ident) => {
        twenty_times!($step);
        twenty_times!(@ $step 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
    };
}

pub(super) mod aesni;
pub(super) mod avx2;
pub(super) mod avx512;
mod sha512;
pub(super) mod sha512_cbc;
pub(super) mod shani;
pub(super) mod stitched;
pub(super) mod stitched512;
pub(super) mod vaes256;
pub(super) mod vaes512;
mod vectors256;
mod vectors512;
