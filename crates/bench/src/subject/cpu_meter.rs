//! CPU around one measurement: the client's, the server's, and what others used of the machine
//! meanwhile.

use crate::cpu::{self, ServerCpu};
use crate::{Error, Sample};

/// Begun before a measurement, ended after it.
#[derive(Debug)]
pub struct CpuMeter<'a> {
    server: Option<&'a ServerCpu>,
    /// Whether the server shares this machine.
    local: bool,
    client_s: f64,
    /// A program that works for the client, as the daemon of a mount does.
    helper: Option<(ServerCpu, f64)>,
    server_s: Option<f64>,
    machine_s: Option<(f64, f64)>,
    /// Somebody works for the client whose CPU can't be read: what is left over is not others'.
    blind: bool,
}

impl<'a> CpuMeter<'a> {
    /// Reads all clocks.
    pub fn begin(server: Option<&'a ServerCpu>, local: bool) -> Result<Self, Error> {
        let server_s = server.map(ServerCpu::seconds).transpose()?;
        Ok(Self {
            server,
            local,
            client_s: cpu::own_s() + cpu::children_s(),
            helper: None,
            server_s,
            machine_s: cpu::machine_s(),
            blind: false,
        })
    }

    /// Counts a program that works for the client as a part of it.
    pub fn with(self, helper: Option<ServerCpu>) -> Result<Self, Error> {
        let helper = helper.map(|helper| helper.seconds().map(|so_far| (helper, so_far))).transpose()?;
        Ok(Self { helper, ..self })
    }

    /// Says that somebody works for the client whose CPU can't be read.
    pub fn blind(self, blind: bool) -> Self {
        Self { blind, ..self }
    }

    /// Reads them again, into a sample.
    pub fn end(self, sample: &mut Sample) -> Result<(), Error> {
        self.end_of(sample, None)
    }

    /// Reads them again, into a sample. The load itself took so much CPU, where that is known
    /// better than by what this program and those that it has started took, which is more: they
    /// start, wait, and report.
    pub fn end_of(self, sample: &mut Sample, load_s: Option<f64>) -> Result<(), Error> {
        let own = cpu::own_s() + cpu::children_s() - self.client_s;
        let helper = match &self.helper {
            Some((helper, before)) => (helper.seconds()? - before).max(0.0),
            None => 0.0,
        };
        let client = own + helper;
        sample.client_cpu_s = Some(load_s.unwrap_or(own) + helper);
        if let (Some(source), Some(before)) = (self.server, self.server_s) {
            sample.server_cpu_s = Some((source.seconds()? - before).max(0.0));
        }
        if let (Some((busy, had)), Some((busy_now, had_now))) = (self.machine_s, cpu::machine_s()) {
            let known = match (self.local, sample.server_cpu_s) {
                _ if self.blind => None,
                (false, _) => Some(client),
                (true, Some(server)) => Some(client + server),
                (true, None) => None,
            };
            let (busy, had) = (busy_now - busy, had_now - had);
            // The kernel counts in hundredths of a second: short measurements say nothing.
            sample.elsewhere = known.filter(|_| had >= SHORTEST_S).map(|known| ((busy - known) / had).clamp(0.0, 1.0));
            sample.crowds = self.local && had >= SHORTEST_S && crowds(client, sample.server_cpu_s, busy / had, sample.elsewhere);
        }
        Ok(())
    }
}

/// Whether the client is what keeps the server from more: they share a machine that has no CPU
/// left, of which it has the larger part and others next to none.
fn crowds(client_s: f64, server_s: Option<f64>, busy: f64, elsewhere: Option<f64>) -> bool {
    busy >= SATURATED && server_s.is_some_and(|server_s| client_s > server_s) && elsewhere.is_some_and(|others| others <= NEXT_TO_NONE)
}

/// A machine that is busy for this part of the time has nothing left.
const SATURATED: f64 = 0.95;
/// Who has no more than this part of a machine keeps nobody from it.
const NEXT_TO_NONE: f64 = 0.10;
/// CPU seconds that the machine must have had for its idle part to be told.
const SHORTEST_S: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_of_a_machine_without_rest_is_the_limit() {
        assert!(crowds(3.0, Some(1.0), 0.99, Some(0.02)));
        assert!(!crowds(1.0, Some(3.0), 0.99, Some(0.02)));
        assert!(!crowds(3.0, Some(1.0), 0.6, Some(0.02)));
        // Where others had a part it may be that they were.
        assert!(!crowds(3.0, Some(1.0), 0.99, Some(0.5)));
        assert!(!crowds(3.0, Some(1.0), 0.99, None) && !crowds(3.0, None, 0.99, None));
    }

    #[test]
    fn what_a_program_takes_to_start_is_not_the_loads_but_is_known() {
        let end = |blind| {
            let meter = CpuMeter::begin(None, false).expect("our own clocks").blind(blind);
            let (start, mut state) = (cpu::thread_s(), 1);
            // Long enough for the machine to be told of.
            while cpu::thread_s() - start < 0.4 {
                state = crate::content::mix(state);
            }
            assert!(state != 0);
            let mut sample = Sample::default();
            meter.end_of(&mut sample, Some(0.125)).expect("our own clocks");
            sample
        };
        let sample = end(false);
        assert_eq!(sample.client_cpu_s, Some(0.125));
        assert!(sample.elsewhere.is_some());
        assert_eq!(end(true).elsewhere, None);
    }
}
