//! `cargo run --release -p vouch-tree-store --example rates -- DIR [MiB]`: rates of putting frames,
//! of the commit and of look-ups. Removes DIR/rates.db.

use std::path::Path;
use std::time::Instant;

use vouch_tree::{FrameKind, HostId};
use vouch_tree_store::conformance::{IV, frame};
use vouch_tree_store::{Database, FrameSink, FrameSource, WriteOptions};

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: rates DIR [MiB]")?;
    let mib: usize = args.next().map_or(Ok(1024), |text| text.parse())?;
    let path = Path::new(&dir).join("rates.db");
    for frame_len in [128 << 10, 1 << 10] {
        let result = measure(
            &path,
            frame_len,
            (mib << 20) / frame_len / if frame_len < 4096 { 8 } else { 1 },
        );
        std::fs::remove_dir_all(&path)?;
        result?;
    }
    Ok(())
}

fn measure(path: &Path, frame_len: usize, count: usize) -> Result<(), AnyError> {
    Database::create(path, HostId::from_bytes([1; 32]), IV)?;
    let frames: Vec<_> =
        (0..count as u64).map(|seed| frame(FrameKind::Leaf, seed, frame_len)).collect();
    let writer = Database::open_write(path, WriteOptions::default())?;
    let put_all =
        |frames: &[(vouch_tree::BlockHandle, Vec<u8>)]| -> Result<(), vouch_tree_store::Error> {
            frames.iter().try_for_each(|(handle, bytes)| writer.put(handle, bytes).map(drop))
        };
    for what in ["new", "shared"] {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> = frames
                .chunks(count.div_ceil(2))
                .map(|half| scope.spawn(|| put_all(half)))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("putting does not panic"))
        })?;
        let s = start.elapsed().as_secs_f64();
        println!(
            "put of {count} {what} frames of {frame_len} B: {:.2} GB/s, {:.0} frames/s",
            (count * frame_len) as f64 / s / 1e9,
            count as f64 / s
        );
    }
    let start = Instant::now();
    writer.checkpoint()?;
    println!("  the commit's syncs after it: {:.2} s", start.elapsed().as_secs_f64());
    let reader = Database::open_read(path)?;
    let start = Instant::now();
    let rounds = 2_000_000_usize.div_ceil(count);
    for _ in 0..rounds {
        for (handle, _) in &frames {
            reader.locate(handle)?.ok_or("a frame is missing")?;
        }
    }
    println!("locate: {:.0} ns", start.elapsed().as_secs_f64() * 1e9 / (rounds * count) as f64);
    let start = Instant::now();
    for (handle, _) in &frames {
        reader.get(handle)?.ok_or("a frame is missing")?;
    }
    println!("get: {:.2} GB/s", (count * frame_len) as f64 / start.elapsed().as_secs_f64() / 1e9);
    Ok(())
}
