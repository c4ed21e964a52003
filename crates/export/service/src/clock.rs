use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};
use vouch_nfs4_server::Now;
use vouch_vfs::Time;

/// Coarse clocks need no system call and lag by a few milliseconds at most.
pub(super) fn now() -> Now {
    let wall = clock_gettime(ClockId::RealtimeCoarse);
    Now {
        mono_ms: mono_ms(),
        wall: Time { seconds: wall.tv_sec, nanos: u32::try_from(wall.tv_nsec).unwrap_or(0) },
    }
}

pub(super) fn mono_ns() -> u64 {
    let mono = clock_gettime(ClockId::Monotonic);
    mono.tv_sec.unsigned_abs() * 1_000_000_000 + mono.tv_nsec.unsigned_abs()
}

pub(super) fn mono_ms() -> u64 {
    let mono = clock_gettime(ClockId::MonotonicCoarse);
    mono.tv_sec.unsigned_abs() * 1000 + mono.tv_nsec.unsigned_abs() / 1_000_000
}

/// Includes suspension, during which a Kerberos ticket expires too.
pub(super) fn boot_ms() -> u64 {
    let boot = clock_gettime(ClockId::Boottime);
    boot.tv_sec.unsigned_abs() * 1000 + boot.tv_nsec.unsigned_abs() / 1_000_000
}

/// Up to a few milliseconds late.
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
