//! The `vouch` command: everything is in the library beside it, so that tests and benchmarks can
//! reach the replica's driver.

fn main() -> std::process::ExitCode {
    vouch::main()
}
