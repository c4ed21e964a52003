//! `cargo run -p vouch-tree --example show_name -- '@pub.example.org,HOSTID' [CERTIFICATE]`

use std::error::Error;

use vouch_tree::TreeName;
use vouch_tree::keyfile::read_cert;
use vouch_tree::time_text::Utc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name: TreeName = args.next().ok_or("usage: show_name NAME [CERTIFICATE]")?.parse()?;
    println!("host {}, port {}, HOSTID {}", name.host(), name.port(), name.hostid());
    if let Some(path) = args.next() {
        let cert = read_cert(&std::fs::read(path)?)?;
        let verdict = if cert.is_signed_by(name.hostid()) {
            "belongs to this name"
        } else {
            "is of another tree"
        };
        println!(
            "certificate {} {verdict}, valid from {} to {}",
            cert.serial,
            Utc(cert.not_before),
            Utc(cert.not_after)
        );
    }
    Ok(())
}
