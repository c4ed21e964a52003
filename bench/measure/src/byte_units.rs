pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        n if n >= 1 << 10 && n % (1 << 10) == 0 && n % 1000 != 0 && u32::try_from(n).is_ok() => {
            block(n as u32)
        }
        n if n >= 1_000_000_000 && n % 1_000_000_000 == 0 => format!("{} GB", n / 1_000_000_000),
        n if n >= 1_000_000 && n % 1_000_000 == 0 => format!("{} MB", n / 1_000_000),
        n if n >= 1_000 && n % 1_000 == 0 => format!("{} kB", n / 1_000),
        n => format!("{n} B"),
    }
}

pub(crate) fn block(bytes: u32) -> String {
    match bytes {
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}
