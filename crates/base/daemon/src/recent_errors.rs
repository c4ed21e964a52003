//! A layer of the log keeps warnings and errors of the last hour for the status.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Counts are independent of the log level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedErrors {
    pub errors_last_hour: u64,
    pub warnings_last_hour: u64,
    pub errors_total: u64,
    pub warnings_total: u64,
    /// Messages of the last hour, oldest first; at most 100.
    pub newest: Vec<LoggedError>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedError {
    pub at: u64,
    pub is_error: bool,
    pub message: String,
}

pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    RecorderLayer.with_filter(LevelFilter::WARN)
}

pub fn recent() -> LoggedErrors {
    RECORDER.lock().report(now_s())
}

struct RecorderLayer;

impl<S: Subscriber> Layer<S> for RecorderLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // The FUSE library warns about mounts that we have unmounted ourselves.
        if event.metadata().target().starts_with("fuser::session") {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let message = format!("{}{}", text.message, text.fields);
        RECORDER.lock().add(now_s(), *event.metadata().level() == Level::ERROR, &message);
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[derive(Default)]
struct Recorder {
    newest: VecDeque<LoggedError>,
    /// For each minute: its number since 1970, errors, warnings.
    minutes: VecDeque<(u64, u64, u64)>,
    errors: u64,
    warnings: u64,
}

impl Recorder {
    fn add(&mut self, now_s: u64, is_error: bool, message: &str) {
        let minute = now_s / 60;
        if self.minutes.back().is_none_or(|(last, ..)| *last != minute) {
            self.minutes.push_back((minute, 0, 0));
            if self.minutes.len() > MINUTES {
                self.minutes.pop_front();
            }
        }
        if let Some((_, errors, warnings)) = self.minutes.back_mut() {
            *(if is_error { errors } else { warnings }) += 1;
        }
        *(if is_error { &mut self.errors } else { &mut self.warnings }) += 1;
        if self.newest.len() >= NEWEST_MAX {
            self.newest.pop_front();
        }
        let message = message.chars().take(MESSAGE_LEN_MAX).collect();
        self.newest.push_back(LoggedError { at: now_s, is_error, message });
    }

    fn report(&self, now_s: u64) -> LoggedErrors {
        let oldest_minute = (now_s / 60).saturating_sub(MINUTES as u64 - 1);
        let recent = self.minutes.iter().filter(|(minute, ..)| *minute >= oldest_minute);
        let (errors, warnings) = recent
            .fold((0, 0), |(errors, warnings), minute| (errors + minute.1, warnings + minute.2));
        LoggedErrors {
            errors_last_hour: errors,
            warnings_last_hour: warnings,
            errors_total: self.errors,
            warnings_total: self.warnings,
            newest: self
                .newest
                .iter()
                .filter(|entry| entry.at / 60 >= oldest_minute)
                .cloned()
                .collect(),
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

static RECORDER: LazyLock<Mutex<Recorder>> = LazyLock::new(Mutex::default);

const MINUTES: usize = 60;
const NEWEST_MAX: usize = 100;
const MESSAGE_LEN_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_end_after_an_hour() {
        let mut recorder = Recorder::default();
        recorder.add(0, true, "old");
        recorder.add(3000, false, "warned");
        recorder.add(3540, true, "failed");
        let report = recorder.report(3599);
        assert_eq!(
            (report.errors_last_hour, report.warnings_last_hour, report.newest.len()),
            (2, 1, 3)
        );
        let report = recorder.report(3600);
        assert_eq!(
            (report.errors_last_hour, report.warnings_last_hour, report.errors_total),
            (1, 1, 2)
        );
        assert_eq!(
            report.newest.iter().map(|entry| &*entry.message).collect::<Vec<_>>(),
            ["warned", "failed"]
        );
        assert_eq!(recorder.report(100_000).newest, []);
    }

    #[test]
    fn memory_is_bounded() {
        let mut recorder = Recorder::default();
        for second in 0..10 * 3600 {
            recorder.add(second, second % 2 == 0, &"x".repeat(2 * MESSAGE_LEN_MAX));
        }
        assert_eq!((recorder.newest.len(), recorder.minutes.len()), (NEWEST_MAX, MINUTES));
        assert_eq!(recorder.newest[0].message.len(), MESSAGE_LEN_MAX);
    }

    #[test]
    fn layer_records_warnings_with_their_fields() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let subscriber = tracing_subscriber::registry().with(layer());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("not recorded");
            tracing::warn!(tree = "t", "refresh failed");
        });
        let newest = recent().newest;
        assert!(
            newest
                .iter()
                .any(|entry| entry.message == "refresh failed tree=\"t\"" && !entry.is_error),
            "{newest:?}"
        );
        assert!(!newest.iter().any(|entry| entry.message.contains("not recorded")));
    }
}
