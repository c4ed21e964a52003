//! `cargo run -p vouch-audit --example verify_trail -- DIRECTORY [PUBLIC_KEY_IN_HEX]`

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use vouch_audit::text;
use vouch_audit::trail::{Trust, records, verify};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let directory =
        PathBuf::from(args.next().ok_or("usage: verify_trail DIRECTORY [PUBLIC_KEY_IN_HEX]")?);
    let public = args.next().map(|digits| parse_key(&digits.to_string_lossy())).transpose()?;

    let mut lines = String::new();
    let read = records(&directory, 1, |record| text::write(record, &mut lines));
    print!("{lines}");
    if let Err(error) = read {
        eprintln!("{error}");
    }

    let report = verify(&directory, &Trust { public, ..Trust::default() }, |_, _| {})?;
    report.notes.iter().for_each(|note| println!("note: {}", printable(note)));
    report.faults.iter().for_each(|fault| println!("fault: {}", printable(&fault.to_string())));
    println!(
        "{} records in {} segments, {} faults",
        report.records,
        report.segments,
        report.faults.len()
    );
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn parse_key(digits: &str) -> Result<[u8; 32], Box<dyn Error>> {
    if digits.len() != 64 || !digits.is_ascii() {
        return Err("the public key must have 64 hexadecimal digits".into());
    }
    let mut key = [0; 32];
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16)?;
    }
    Ok(key)
}
