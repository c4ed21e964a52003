use crate::cpu::{self, ServerCpu};
use crate::{Error, Sample};

#[derive(Debug)]
pub(crate) struct CpuMeter<'a> {
    server: Option<&'a ServerCpu>,
    local: bool,
    client_s: f64,
    helper: Option<(ServerCpu, f64)>,
    server_s: Option<f64>,
    machine_s: Option<(f64, f64)>,
    /// Some CPU time of the client cannot be read. Then the share of other processes is unknown.
    client_unknown: bool,
}

impl<'a> CpuMeter<'a> {
    pub(crate) fn start(server: Option<&'a ServerCpu>, local: bool) -> Result<Self, Error> {
        let server_s = server.map(ServerCpu::seconds).transpose()?;
        Ok(Self {
            server,
            local,
            client_s: cpu::own_s() + cpu::children_s(),
            helper: None,
            server_s,
            machine_s: cpu::machine_s(),
            client_unknown: false,
        })
    }

    pub(crate) fn with_helper(self, helper: Option<ServerCpu>) -> Result<Self, Error> {
        let helper =
            helper.map(|helper| helper.seconds().map(|so_far| (helper, so_far))).transpose()?;
        Ok(Self { helper, ..self })
    }

    pub(crate) fn with_unknown_client_cpu(self, client_unknown: bool) -> Self {
        Self { client_unknown, ..self }
    }

    pub(crate) fn end(self, sample: &mut Sample) -> Result<(), Error> {
        self.end_with_load(sample, None)
    }

    pub(crate) fn end_with_load(
        self,
        sample: &mut Sample,
        load_s: Option<f64>,
    ) -> Result<(), Error> {
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
                _ if self.client_unknown => None,
                (false, _) => Some(client),
                (true, Some(server)) => Some(client + server),
                (true, None) => None,
            };
            let (busy, had) = (busy_now - busy, had_now - had);
            // The kernel counts in hundredths of a second: too coarse for short measurements.
            sample.elsewhere = known
                .filter(|_| had >= SHORTEST_S)
                .map(|known| ((busy - known) / had).clamp(0.0, 1.0));
            sample.crowds = self.local
                && had >= SHORTEST_S
                && crowds(client, sample.server_cpu_s, busy / had, sample.elsewhere);
        }
        Ok(())
    }
}

/// True if no CPU time is left on a shared machine, and the client uses most of it.
fn crowds(client_s: f64, server_s: Option<f64>, busy: f64, elsewhere: Option<f64>) -> bool {
    busy >= SATURATED
        && server_s.is_some_and(|server_s| client_s > server_s)
        && elsewhere.is_some_and(|others| others <= NEXT_TO_NONE)
}

const SATURATED: f64 = 0.95;
const NEXT_TO_NONE: f64 = 0.10;
const SHORTEST_S: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_with_most_of_saturated_machine_is_limit() {
        assert!(crowds(3.0, Some(1.0), 0.99, Some(0.02)));
        assert!(!crowds(1.0, Some(3.0), 0.99, Some(0.02)));
        assert!(!crowds(3.0, Some(1.0), 0.6, Some(0.02)));
        assert!(!crowds(3.0, Some(1.0), 0.99, Some(0.5)));
        assert!(!crowds(3.0, Some(1.0), 0.99, None) && !crowds(3.0, None, 0.99, None));
    }

    #[test]
    fn start_of_program_is_not_load() {
        let end = |client_unknown| {
            let meter = CpuMeter::start(None, false)
                .expect("own clocks are readable")
                .with_unknown_client_cpu(client_unknown);
            let (start, mut state) = (cpu::thread_s(), 1);
            while cpu::thread_s() - start < 0.4 {
                state = crate::content::mix(state);
            }
            assert!(state != 0);
            let mut sample = Sample::default();
            meter.end_with_load(&mut sample, Some(0.125)).expect("own clocks are readable");
            sample
        };
        let sample = end(false);
        assert_eq!(sample.client_cpu_s, Some(0.125));
        assert!(sample.elsewhere.is_some());
        assert_eq!(end(true).elsewhere, None);
    }
}
