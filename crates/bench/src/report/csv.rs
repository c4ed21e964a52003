//! A line a measurement, for spreadsheets.

use crate::record::Run;

/// Every sample of a run (RFC 4180).
pub fn csv(run: &Run) -> String {
    let mut text = String::from(
        "workload,panel,case,x,subject,round,figure,unit,seconds,bytes,operations,errors,client_cpu_s,server_cpu_s,others_part,p50_us,p99_us,p999_us,ratio\r\n",
    );
    for result in &run.results {
        let unit = super::words::axis(result.metric);
        for subject in &result.subjects {
            for (round, sample) in (1..).zip(&subject.samples) {
                let number = |value: Option<f64>| value.map(|value| format!("{value}")).unwrap_or_default();
                let calls = subject.calls.as_ref();
                let cells = [
                    quoted(&result.workload),
                    quoted(&result.panel),
                    quoted(&result.name),
                    number(result.x),
                    quoted(&subject.label),
                    format!("{round}"),
                    format!("{}", super::words::on_axis(result.metric, sample.figure(result.metric))),
                    quoted(unit),
                    format!("{}", sample.seconds),
                    format!("{}", sample.bytes),
                    format!("{}", sample.operations),
                    format!("{}", sample.errors),
                    number(sample.client_cpu_s),
                    number(sample.server_cpu_s),
                    number(sample.elsewhere),
                    number(calls.map(|calls| calls.p50_us)),
                    number(calls.map(|calls| calls.p99_us)),
                    number(calls.map(|calls| calls.p999_us)),
                    number(subject.ratio.map(|ratio| ratio.median)),
                ];
                text.push_str(&cells.join(","));
                text.push_str("\r\n");
            }
        }
    }
    text
}

fn quoted(text: &str) -> String {
    // A cell that begins so would be a formula to a spreadsheet.
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
