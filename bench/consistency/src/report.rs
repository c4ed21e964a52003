//! A violation as text, and as one HTML page with a lane for each client.

use std::fmt::Write as _;

use crate::checker::Violation;
use crate::history::{History, Operation, Outcome};

fn call_text(op: &Operation) -> String {
    let call = serde_json::to_value(&op.call).unwrap_or_default();
    let mut text = call["op"].as_str().unwrap_or("call").to_owned();
    for (key, value) in call.as_object().into_iter().flatten().filter(|(key, _)| *key != "op") {
        let _ = write!(text, " {key}={value}");
    }
    let outcome = match &op.outcome {
        Outcome::Unknown => "no usable reply".to_owned(),
        Outcome::Done => "ok".into(),
        Outcome::Value(value) => format!("ok: {value}"),
        Outcome::Absent => "ok: beyond the end".into(),
        Outcome::NotFound => "no such name".into(),
        Outcome::Exists => "the name exists".into(),
        Outcome::Denied => "denied".into(),
        Outcome::Names(names) => names.join(" "),
        Outcome::Failed(status) => status.clone(),
    };
    format!("{text} -> {outcome}")
}

pub fn text(history: &History, violation: &Violation) -> String {
    let mut out = format!(
        "{}, NFSv4.{}, sec={}, seed {}\nobject {}: {}\n{}\n",
        history.server,
        history.minor,
        history.sec,
        history.seed,
        violation.object,
        violation.rule,
        violation.explanation
    );
    for op in &violation.operations {
        let mark = if op.id == violation.marked { "=>" } else { "  " };
        let end = op.end.map_or("       -".into(), |end| format!("{:8.3}", end as f64 / 1e6));
        let start = op.start as f64 / 1e6;
        let lane = lane_name(op.client);
        let _ = writeln!(out, "{mark} {start:8.3} to {end} ms  {lane}: {}", call_text(op));
    }
    out
}

fn lane_name(client: u16) -> String {
    if client == u16::MAX { "server".into() } else { format!("client {client}") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub fn html(history: &History, violation: &Violation) -> String {
    let ops = &violation.operations;
    let first = ops.iter().filter(|op| op.start > 0).map(|op| op.start).min().unwrap_or(0);
    let last = ops.iter().map(|op| op.end.unwrap_or(op.start)).max().unwrap_or(1).max(first + 1);
    let x =
        |time: u64| LEFT + (time.clamp(first, last) - first) as f64 / (last - first) as f64 * WIDTH;
    let mut lanes: Vec<u16> = ops.iter().map(|op| op.client).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let mut svg = String::new();
    for fault in history.faults.iter().filter(|f| f.end >= first && f.start <= last) {
        let (from, to) = (x(fault.start), x(fault.end).max(x(fault.start) + 1.0));
        let _ = write!(
            svg,
            "<rect class=fault x={from:.1} y=0 width={:.1} height=100%><title>{}</title></rect>",
            to - from,
            escape(&fault.kind)
        );
    }
    let mut y = 10;
    for lane in lanes {
        let _ = write!(svg, "<text x=0 y={} class=lane>{}</text>", y + 14, lane_name(lane));
        for op in ops.iter().filter(|op| op.client == lane) {
            let class = if op.id == violation.marked { "marked" } else { "call" };
            let (from, to) = (x(op.start), op.end.map_or(LEFT + WIDTH, x));
            let text = escape(&call_text(op));
            let _ = write!(
                svg,
                "<rect class={class} x={from:.1} y={y} width={:.1} height=18 />\
                 <text x={LEFT} y={}>{} {text}</text>",
                (to - from).max(2.0),
                y + 32,
                op.id
            );
            y += 42;
        }
        y += 8;
    }
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Consistency violation</title>\
         <style>body{{font:14px sans-serif;margin:2em}}svg{{width:100%;min-width:1000px}}\
         .call{{fill:#7aa6d8}}.marked{{fill:#d03030}}.fault{{fill:#f5dc9a}}\
         .lane{{font-weight:bold}}text{{font-size:12px}}</style>\
         <h1>{}</h1><p>{}, NFSv4.{}, sec={}, seed {}, object {}</p><p>{}</p>\
         <p>Blue: calls. Red: the call that contradicts the others. Yellow: faults. A bar that \
         reaches the right edge has no reply.</p><svg height={y}>{svg}</svg></html>\n",
        escape(&violation.rule),
        escape(&history.server),
        history.minor,
        escape(&history.sec),
        history.seed,
        escape(&violation.object),
        escape(&violation.explanation)
    )
}

const LEFT: f64 = 90.0;
const WIDTH: f64 = 880.0;
