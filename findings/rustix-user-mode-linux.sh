#!/bin/bash
# Guess: a Rust program that uses rustix runs on every Linux kernel for x86_64, because rustix makes a system
# call where the vDSO has no function for it.
# Seen: rustix 1.1.6 with the feature `thread` asserts that the vDSO of a 64-bit kernel has
# __vdso_getcpu. That of User-Mode Linux 7.2 has only clock_gettime, gettimeofday and time, so the first
# clock_gettime of a program with the features `thread` and `time` panics. Later calls work. The same
# program runs on this machine's kernel; sched_getcpu(3) of glibc works on both.
# rustix 1.1.6, user-mode-linux 7.2.7 of Debian sid, 2026-11-30. Needs root, mmdebstrap, Cargo with the target
# of this machine, gcc. Exit 0: as seen.
set -eu
work=$(mktemp -d /var/tmp/rustix-uml.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -m1 'debian$' || awk '$1 == "deb" && $2 ~ /debian$/ {print $2; exit}' /etc/apt/sources.list)
mmdebstrap --quiet --variant=minbase --mode=root --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    --include=user-mode-linux,busybox-static sid "$root" "deb $mirror sid main"
mkdir -p "$work/probe/src"
cat >"$work/probe/Cargo.toml" <<'T'
[package]
name = "probe"
version = "0.0.0"
edition = "2021"
[dependencies]
rustix = { version = "=1.1.6", features = ["thread", "time"] }
T
cat >"$work/probe/src/main.rs" <<'R'
extern "C" { fn sched_getcpu() -> i32; }
fn main() {
    std::panic::set_hook(Box::new(|info| println!("panic: {}", info.payload().downcast_ref::<&str>().unwrap_or(&"?"))));
    println!("sched_getcpu(3): {}", if unsafe { sched_getcpu() } >= 0 { "works" } else { "fails" });
    let ended = std::panic::catch_unwind(|| rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec > 0);
    println!("clock_gettime: {}", if ended.is_ok() { "works" } else { "panics" });
    let ended = std::panic::catch_unwind(rustix::thread::sched_getcpu);
    println!("sched_getcpu: {}", if ended.is_ok() { "works" } else { "panics" });
}
R
(cd "$work/probe" && cargo build --quiet --target-dir target)
install -m 755 "$work/probe/target/debug/probe" "$root/probe"
cat >"$root/guest-init" <<'I'
#!/bin/busybox sh
echo SEEN-BEGIN; /probe 2>&1; echo SEEN-END
/bin/busybox poweroff -f
I
chmod +x "$root/guest-init"
linux() { unshare --mount --propagation private sh -c 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /usr/bin/linux.uml "$@"' "$root" "$@"; }
echo "here:"
"$work/probe/target/debug/probe" | tee "$work/here"
echo "User-Mode Linux $(linux --version):"
linux mem=256M root=/dev/root rootfstype=hostfs rootflags=/ rw init=/guest-init con=null con0=null,fd:1 quiet </dev/null 2>&1 |
    tr -d '\r' | sed -n '/SEEN-BEGIN/,/SEEN-END/p' | sed '/SEEN-/d' | tee "$work/guest"
[ "$(linux --version)" = 7.2.7 ]
[ "$(cat "$work/here")" = "sched_getcpu(3): works
clock_gettime: works
sched_getcpu: works" ]
[ "$(cat "$work/guest")" = "sched_getcpu(3): works
panic: assertion failed: !ptr.is_null()
clock_gettime: panics
sched_getcpu: works" ]
echo "as seen on 2026-11-30"
