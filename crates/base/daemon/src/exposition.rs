use std::fmt::{Display, Write as _};

use crate::recent_errors;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    pub fn of_daemon() -> Self {
        let mut page = Self::default();
        page.family("vouch_build_info", Metric::Gauge, "The running version.");
        page.sample("vouch_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        crate::metrics! { page;
            Counter "process_cpu_seconds_total" "CPU time of this process, user and system."
                = format_args!("{}.{:06}", cpu.tv_sec, cpu.tv_nsec / 1000);
            Gauge "process_start_time_seconds" "Start of this process, in seconds since 1970."
                = crate::status::started();
        }
        let log = recent_errors::recent();
        let messages =
            ("vouch_log_messages_total", Metric::Counter, "Warnings and errors in the log.");
        page.by(messages, "level", [("error", log.errors_total), ("warning", log.warnings_total)]);
        page
    }

    pub fn family(&mut self, name: &str, kind: Metric, help: &str) {
        let kind = match kind {
            Metric::Counter => "counter",
            Metric::Gauge => "gauge",
            Metric::Histogram => "histogram",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            let _ = write!(
                self.0,
                "{}{label}=\"{}\"",
                if number == 0 { '{' } else { ',' },
                escaped(text)
            );
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A family of name, kind and help, with one label.
    pub fn by(
        &mut self,
        (name, kind, help): (&str, Metric, &str),
        label: &str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, impl Display)>,
    ) {
        self.family(name, kind, help);
        for (text, value) in samples {
            self.sample(name, &[(label, text.as_ref())], value);
        }
    }

    pub fn single(&mut self, name: &str, kind: Metric, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

/// Adds metrics without labels: kind, name, help and value of each.
#[macro_export]
macro_rules! metrics {
    ($page:expr; $($kind:ident $name:literal $help:literal = $value:expr;)*) => { $(
        $page.single($name, $crate::exposition::Metric::$kind, $help, $value);
    )* };
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Exposition::default();
        page.family("a_total", Metric::Counter, "Help.");
        page.sample("a_total", &[("x", "a\"b\\c\nd"), ("y", "")], 1);
        page.single("b", Metric::Gauge, "Help.", 0.5);
        let expected = "# HELP a_total Help.\n# TYPE a_total counter\na_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1\n# HELP b Help.\n# TYPE b gauge\nb 0.5\n";
        assert_eq!(page.into_text(), expected);
    }
}
