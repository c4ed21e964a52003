//! The clocks, read here and passed on: the engine reads none.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};
use vouch_nfs4_server::Now;
use vouch_vfs::Time;

/// The moment, on both clocks. Two reads of the coarse clocks, which cost no system call; they are
/// a few milliseconds behind at most.
pub(super) fn now() -> Now {
    let wall = clock_gettime(ClockId::RealtimeCoarse);
    Now { mono_ms: mono_ms(), wall: Time { seconds: wall.tv_sec, nanos: u32::try_from(wall.tv_nsec).unwrap_or(0) } }
}

/// The monotonic clock alone.
pub(super) fn mono_ms() -> u64 {
    let mono = clock_gettime(ClockId::MonotonicCoarse);
    // Seconds since boot, so neither is negative.
    mono.tv_sec.unsigned_abs() * 1000 + mono.tv_nsec.unsigned_abs() / 1_000_000
}

/// Time since the system's start, in which it may have slept: tickets end meanwhile, so contexts'
/// ends are on this clock.
pub(super) fn boot_ms() -> u64 {
    let boot = clock_gettime(ClockId::Boottime);
    boot.tv_sec.unsigned_abs() * 1000 + boot.tv_nsec.unsigned_abs() / 1_000_000
}

/// The same, a few milliseconds behind at most, for who asks at every call: this clock has no
/// coarse form, so it is read once in each of the coarse one's ticks.
pub(super) fn boot_ms_nearly() -> u64 {
    thread_local! {
        static READ: Cell<(u64, u64)> = const { Cell::new((u64::MAX, 0)) };
    }
    let tick = mono_ms();
    let (read_at, boot) = READ.get();
    if read_at == tick {
        return boot;
    }
    let boot = boot_ms();
    READ.set((tick, boot));
    boot
}
