//! keepalived beside each head, with the example of the package.

use super::heads::NAMES;
use super::network::{ADDRESS, Network};
use crate::prelude::*;

/// Ends in order, which removes the address.
pub(super) struct Keepalived(Child);

impl Keepalived {
    pub(super) fn start(site: &TestSite, network: &Network, head: usize) -> Keepalived {
        let example = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../packaging/failover/keepalived.conf");
        let example = fs::read_to_string(example).expect("an example");
        let state = format!("--state {} --head {}", site.path("shared").display(), NAMES[head]);
        let changes = [
            ("/usr/bin/vouch", env!("CARGO_BIN_EXE_vouch")),
            ("--state /shared/vouch/export", &state),
            ("192.0.2.10/24", &format!("{ADDRESS}/24")),
            // The test restarts heads itself.
            ("    notify_fault \"/bin/systemctl restart --no-block vouch-export\"\n", ""),
        ];
        let text = changes.iter().fold(example, |text, (from, to)| {
            assert!(text.contains(from), "the example has no {from:?}");
            text.replace(from, to)
        });
        let file = |kind: &str| site.path(format!("keepalived-{}-{kind}", NAMES[head]));
        fs::write(file("conf"), text).expect("a file");
        let log = fs::File::create(file("log")).expect("a file");
        let mut command = Command::new("ip");
        command.args(words(&format!(
            "netns exec {} keepalived --dont-fork --log-console --log-detail",
            network.heads[head]
        )));
        command
            .arg("--use-file")
            .arg(file("conf"))
            .arg("--pid")
            .arg(file("pid"))
            .arg("--vrrp_pid")
            .arg(file("vrrp"));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        Keepalived(command.spawn().expect("ip(8)"))
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        signal("TERM", self.0.id());
        let _ = self.0.wait();
    }
}
