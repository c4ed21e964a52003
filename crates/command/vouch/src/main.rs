//! The code is in the library, for tests and benchmarks.

#![allow(unsafe_code, reason = "`hypot` replaces a symbol of the C library")]

fn main() -> std::process::ExitCode {
    vouch::main()
}

/// For QuickJS. That of a new glibc has a version which Enterprise Linux 9 lacks.
#[unsafe(no_mangle)]
pub extern "C" fn hypot(x: f64, y: f64) -> f64 {
    libm::hypot(x, y)
}
