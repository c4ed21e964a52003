use vouch_daemon::sandbox::SandboxMode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sandbox {
    /// As far as the kernel supports it; a warning if it doesn't.
    BestEffort,
    /// Refuse to run if files can't be restricted.
    Required,
    /// No sandbox.
    Off,
}

impl From<Sandbox> for SandboxMode {
    fn from(chosen: Sandbox) -> Self {
        match chosen {
            Sandbox::BestEffort => SandboxMode::BestEffort,
            Sandbox::Required => SandboxMode::Required,
            Sandbox::Off => SandboxMode::Off,
        }
    }
}
