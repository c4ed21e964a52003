mod constant_time;
mod kernels;
mod tokens;
mod vectors;
mod wiped;

use data_encoding::HEXLOWER_PERMISSIVE;

fn hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.chars().filter(|digit| !digit.is_whitespace()).collect();
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).expect("hexadecimal")
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e3779b97f4a7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d049bb133111eb);
        word ^ (word >> 31)
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}
