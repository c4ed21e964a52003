//! Resolves an event's names to paths. Resolves `..` lexically.

use super::Line;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DescriptorUse(pub(super) [bool; 2]);

impl DescriptorUse {
    pub(super) fn of(line: &Line<'_>) -> DescriptorUse {
        let is_open = |name: &str| {
            let digits = line.field(name).and_then(|digits| std::str::from_utf8(digits).ok());
            digits
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .is_some_and(|number| number as u32 != AT_FDCWD)
        };
        match arguments(line) {
            Arguments::Known(None) => DescriptorUse::default(),
            Arguments::Known(Some([first, second])) => {
                DescriptorUse([is_open(first), is_open(second)])
            }
            // In an unknown call, a value this low is a descriptor, not a pointer.
            Arguments::Unknown => {
                let low = line.field("a0").is_some_and(|digits| digits.len() <= LOW_DIGITS_MAX);
                DescriptorUse([low; 2])
            }
        }
    }
}

const AT_FDCWD: u32 = -100_i32 as u32;
const LOW_DIGITS_MAX: usize = 5;

enum Arguments {
    Known(Option<[&'static str; 2]>),
    Unknown,
}

fn arguments(line: &Line<'_>) -> Arguments {
    let call = line.field("SYSCALL").or_else(|| line.field("syscall")).unwrap_or_default();
    let Ok(call) = std::str::from_utf8(call) else { return Arguments::Unknown };
    let row = match call.parse::<u16>() {
        Err(_) => CALLS.iter().find(|(name, ..)| *name == call),
        // Numbers of x86-64, and the generic ones of aarch64, riscv64 and loongarch64
        // (linux/audit.h).
        Ok(number) => match line.field("arch") {
            Some(b"c000003e") => CALLS.iter().find(|(_, x86_64, ..)| *x86_64 == number),
            Some(b"c00000b7" | b"c00000f3" | b"c0000102") => {
                CALLS.iter().find(|(_, _, generic, _)| *generic == number)
            }
            _ => return Arguments::Unknown,
        },
    };
    Arguments::Known(row.map(|(.., arguments)| *arguments))
}

const ONE: [&str; 2] = ["a0", "a0"];
const TWO: [&str; 2] = ["a0", "a2"];
const LINK: [&str; 2] = ["a1", "a1"];
const NONE: u16 = u16::MAX;

/// x86-64 number, generic number, and the arguments that hold descriptors.
const CALLS: [(&str, u16, u16, [&str; 2]); 26] = [
    ("openat", 257, 56, ONE),
    ("openat2", 437, 437, ONE),
    ("mkdirat", 258, 34, ONE),
    ("mknodat", 259, 33, ONE),
    ("fchownat", 260, 54, ONE),
    ("futimesat", 261, NONE, ONE),
    ("newfstatat", 262, 79, ONE),
    ("fstatat64", NONE, NONE, ONE),
    ("unlinkat", 263, 35, ONE),
    ("renameat", 264, 38, TWO),
    ("renameat2", 316, 276, TWO),
    ("linkat", 265, 37, TWO),
    ("symlinkat", 266, 36, LINK),
    ("readlinkat", 267, 78, ONE),
    ("fchmodat", 268, 53, ONE),
    ("fchmodat2", 452, 452, ONE),
    ("faccessat", 269, 48, ONE),
    ("faccessat2", 439, 439, ONE),
    ("utimensat", 280, 88, ONE),
    ("name_to_handle_at", 303, 264, ONE),
    ("execveat", 322, 281, ONE),
    ("statx", 332, 291, ONE),
    ("setxattrat", 463, 463, ONE),
    ("getxattrat", 464, 464, ONE),
    ("listxattrat", 465, 465, ONE),
    ("removexattrat", 466, 466, ONE),
];

/// The number of a call on x86-64.
pub(crate) fn call_number(name: &str) -> Option<u16> {
    CALLS
        .iter()
        .find(|(known, ..)| *known == name)
        .map(|(_, number, ..)| *number)
        .filter(|number| *number != NONE)
}

/// Empty if nothing is known. If `cwd` is empty, a relative name starts with `/.../`.
pub(super) fn resolve(cwd: &[u8], name: &[u8]) -> Vec<u8> {
    let is_known = name.starts_with(b"/") || !cwd.is_empty();
    let from: &[u8] = if name.starts_with(b"/") { b"" } else { cwd };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in from.split(|byte| *byte == b'/').chain(name.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    match (is_known, &parts[..]) {
        (true, []) => b"/".to_vec(),
        (false, []) => Vec::new(),
        (true, parts) => [&b"/"[..], &parts.join(&b'/')].concat(),
        (false, parts) => [&b"/.../"[..], &parts.join(&b'/')].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_names_against_their_directory() {
        for (cwd, name, path) in [
            ("/", "etc/shadow", "/etc/shadow"),
            ("/srv/x", "../data/plan", "/srv/data/plan"),
            ("/srv/x", "./a//b/", "/srv/x/a/b"),
            ("/srv", "/etc/./../etc/passwd", "/etc/passwd"),
            ("/srv", "../../../etc", "/etc"),
            ("/srv", ".", "/srv"),
            ("/", "..", "/"),
            ("", "plan", "/.../plan"),
            ("", "../d/plan", "/.../d/plan"),
            ("", ".", ""),
        ] {
            assert_eq!(resolve(cwd.as_bytes(), name.as_bytes()), path.as_bytes(), "{cwd} {name}");
        }
    }
}
