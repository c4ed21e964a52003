use vouch_vfs::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, for leases and time-outs.
    pub mono_ms: u64,
    pub wall: Time,
}
