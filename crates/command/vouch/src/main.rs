//! The code is in the library, for tests and benchmarks.

fn main() -> std::process::ExitCode {
    vouch::main()
}
