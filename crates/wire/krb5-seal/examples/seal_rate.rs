//! `cargo run --release --example seal_rate -- [BYTES]`.

use std::time::{Duration, Instant};

use vouch_krb5_seal::{ContextKeys, Enctype, Kernels, Role, SealJob, seal_many};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let body_len = std::env::args().nth(1).map_or(Ok(4096), |text| text.parse::<usize>())?;
    println!("{}", Kernels::best().describe());
    for enctype in Enctype::ALL {
        let keys =
            ContextKeys::new(enctype, &[7; 32][..enctype.key_len()], Role::Initiator, false)?;
        let token_len = keys.header_len() + body_len + keys.trailer_len();
        let mut tokens = vec![vec![0; token_len]; 16];
        let (mut count, start) = (0, Instant::now());
        while start.elapsed() < Duration::from_millis(500) {
            let mut jobs: Vec<SealJob<'_>> =
                tokens.iter_mut().map(|token| SealJob::new(&keys, count, [0; 16], token)).collect();
            seal_many(&mut jobs);
            for job in &jobs {
                job.result?;
            }
            count += jobs.len() as u64;
        }
        let rate = count as f64 * body_len as f64 / start.elapsed().as_secs_f64();
        println!("{:28} {:6.2} GB/s in messages of {body_len} bytes", enctype.name(), rate / 1e9);
    }
    Ok(())
}
