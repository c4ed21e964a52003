mod constant_time;
mod kernels;
mod tokens;
mod vectors;
mod wiped;

use data_encoding::HEXLOWER_PERMISSIVE;
use vouch_testkit::noise as bytes;

fn hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.chars().filter(|digit| !digit.is_whitespace()).collect();
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).expect("hexadecimal")
}
