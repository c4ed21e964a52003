//! Shows that run time depends on no secret: valgrind's memcheck reports each jump and each address
//! that depends on undefined bytes, and secrets are marked as undefined.

use std::process::Command;

/// Runs the calling test again, in valgrind, and fails if that does. True in valgrind, where the
/// test does its work.
pub fn is_in_memcheck(test: &str) -> bool {
    if request(RUNNING_ON_VALGRIND, std::ptr::null(), 0) != 0 {
        return true;
    }
    crate::require_program("valgrind");
    let program = std::env::current_exe().expect("the test's program");
    let output = Command::new("valgrind")
        .args(["--error-exitcode=99", "--track-origins=yes", "--quiet"])
        .arg(program)
        .args(["--exact", test, "--include-ignored", "--test-threads=1", "--nocapture"])
        .output()
        .expect("valgrind starts");
    let text = crate::text_of(&output);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// A secret from here on.
pub fn hide(bytes: &mut [u8]) {
    request(MAKE_MEM_UNDEFINED, bytes.as_ptr(), bytes.len());
}

/// A peer may see it from here on.
pub fn publish(bytes: &mut [u8]) {
    request(MAKE_MEM_DEFINED, bytes.as_ptr(), bytes.len());
}

/// The verdict on a message, which the peer learns from the answer.
pub fn published(verdict: u8) -> bool {
    let mut byte = [verdict];
    publish(std::hint::black_box(&mut byte));
    std::hint::black_box(byte)[0] != 0
}

const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// Requests of memcheck begin with "MC" (memcheck.h).
const MAKE_MEM_UNDEFINED: u64 = 0x4d43_0001;
const MAKE_MEM_DEFINED: u64 = 0x4d43_0002;

/// Does nothing outside of valgrind, and returns 0.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "valgrind's requests are a sequence of instructions (valgrind.h)")]
fn request(what: u64, start: *const u8, len: usize) -> u64 {
    let arguments = [what, start as u64, len as u64, 0, 0, 0];
    let result: u64;
    // SAFETY: the rotations add up to 128 bits and leave the register as it was; so does the
    // exchange of a register with itself. Valgrind reads the arguments and changes only its own
    // notes on the bytes.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inlateout("rdx") 0_u64 => result,
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_: u64, _: *const u8, _: usize) -> u64 {
    0
}
