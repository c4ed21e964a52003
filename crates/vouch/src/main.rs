//! The `vouch` command. Its code is in the library, so that tests and benchmarks can use it.

fn main() -> std::process::ExitCode {
    vouch::main()
}
