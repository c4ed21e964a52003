//! CPU around one measurement: the client's, the server's, and what others used of the machine meanwhile.

use crate::cpu::{self, ServerCpu};
use crate::{Error, Sample};

/// Begun before a measurement, ended after it.
#[derive(Debug)]
pub struct Meter<'a> {
    server: Option<&'a ServerCpu>,
    /// Whether the server shares this machine.
    local: bool,
    client_s: f64,
    /// A program that works for the client, as the daemon of a mount does.
    helper: Option<(ServerCpu, f64)>,
    server_s: Option<f64>,
    machine_s: Option<(f64, f64)>,
}

impl<'a> Meter<'a> {
    /// Reads all clocks.
    pub fn begin(server: Option<&'a ServerCpu>, local: bool) -> Result<Self, Error> {
        let server_s = server.map(ServerCpu::seconds).transpose()?;
        Ok(Self { server, local, client_s: cpu::own_s() + cpu::children_s(), helper: None, server_s, machine_s: cpu::machine_s() })
    }

    /// Counts a program that works for the client as a part of it.
    pub fn with(self, helper: Option<ServerCpu>) -> Result<Self, Error> {
        let helper = helper.map(|helper| helper.seconds().map(|so_far| (helper, so_far))).transpose()?;
        Ok(Self { helper, ..self })
    }

    /// Reads them again, into a sample.
    pub fn end(self, sample: &mut Sample) -> Result<(), Error> {
        let mut client = cpu::own_s() + cpu::children_s() - self.client_s;
        if let Some((helper, before)) = &self.helper {
            client += (helper.seconds()? - before).max(0.0);
        }
        sample.client_cpu_s = Some(client);
        if let (Some(source), Some(before)) = (self.server, self.server_s) {
            sample.server_cpu_s = Some((source.seconds()? - before).max(0.0));
        }
        if let (Some((busy, had)), Some((busy_now, had_now))) = (self.machine_s, cpu::machine_s()) {
            let known = match (self.local, sample.server_cpu_s) {
                (false, _) => Some(client),
                (true, Some(server)) => Some(client + server),
                (true, None) => None,
            };
            let (busy, had) = (busy_now - busy, had_now - had);
            // The kernel counts in hundredths of a second: short measurements say nothing.
            sample.elsewhere = known.filter(|_| had >= SHORTEST_S).map(|known| ((busy - known) / had).clamp(0.0, 1.0));
        }
        Ok(())
    }
}

/// CPU seconds that the machine must have had for its idle part to be told.
const SHORTEST_S: f64 = 0.3;
