//! A violation as text, and as one HTML page with a lane for each client.

use std::fmt::Write as _;

use crate::checker::Violation;
use crate::history::{Call, Fault, History, Operation, Outcome, volatile_name};

fn call_text(op: &Operation) -> String {
    let outcome = match &op.outcome {
        Outcome::Unknown => "no usable reply".to_owned(),
        Outcome::Done => "ok".into(),
        Outcome::Value(value) => value.to_string(),
        Outcome::Absent => "beyond the end".into(),
        Outcome::NotFound => "no such name".into(),
        Outcome::Exists => "exists".into(),
        Outcome::Denied => "denied".into(),
        Outcome::Names(names) => names.join(" "),
        Outcome::Failed(status) => status.clone(),
    };
    format!("{}: {outcome}", call_words(&op.call))
}

fn call_words(call: &Call) -> String {
    let from_cache = |cached| if cached { " in the cache" } else { "" };
    let bytes = |first: u8, len: u8| format!("bytes {first} to {}", first + len - 1);
    let name = |name| volatile_name(name);
    match *call {
        Call::Write { cell, value, stable } => {
            format!("write {value} to cell {cell}{}", if stable { ", stable" } else { "" })
        }
        Call::Read { cell, cached } => format!("read cell {cell}{}", from_cache(cached)),
        Call::Truncate { cells } => format!("truncate to {cells} cells"),
        Call::Punch { cell } => format!("deallocate cell {cell}"),
        Call::Clone { values } => format!("copy {values:?}"),
        Call::Allocate { cells } => format!("allocate {cells} cells"),
        Call::Size => "size in cells".into(),
        Call::Commit => "commit".into(),
        Call::Loss => "unstable data may vanish".into(),
        Call::Undone { key } => format!("a change of {key} may be undone"),
        Call::Create { name: new } => format!("create {} exclusively", name(new)),
        Call::Mkdir { name: new } => format!("make directory {}", name(new)),
        Call::Link { name: new, file } => format!("link file {file} as {}", name(new)),
        Call::Replace { name: to, file } => format!("rename file {file} over {}", name(to)),
        Call::Rename { from, to } => format!("rename {} to {}", name(from), name(to)),
        Call::Remove { name: old } => format!("remove {}", name(old)),
        Call::Lookup { name: at, cached } => {
            format!("look up {}{}", name(at), from_cache(cached))
        }
        Call::Listed { name: at } => format!("{} in a listing", name(at)),
        Call::List => "list".into(),
        Call::Links { file } => format!("link count of file {file}"),
        Call::Lock { owner, write, first, len, reclaim, waits } => format!(
            "{}{}{} lock of {} by owner {owner}",
            if reclaim { "reclaim " } else { "" },
            if waits { "waiting " } else { "" },
            if write { "write" } else { "read" },
            bytes(first, len)
        ),
        Call::Unlock { owner, first, len } => {
            format!("unlock {} of owner {owner}", bytes(first, len))
        }
        Call::Open { owner, access, deny, reclaim } => format!(
            "{}open by owner {owner} for {}, denying {}",
            if reclaim { "reclaim " } else { "" },
            share_words(access),
            share_words(deny)
        ),
        Call::Close { owner } => format!("close by owner {owner}"),
        Call::Use { access } => {
            format!("{} with the anonymous stateid", share_words(access))
        }
        Call::Drop { owner } => format!("state of owner {owner} ends"),
        Call::Change => "change attribute".into(),
        Call::Set { key, value, how } => format!("set {key} to {value} ({how:?})").to_lowercase(),
        Call::Get { key } => format!("get {key}"),
        Call::Unset { key } => format!("remove {key}"),
        Call::Keys => "list of extended attributes, a bit for each".into(),
    }
}

const fn share_words(bits: u8) -> &'static str {
    ["nothing", "read", "write", "read and write"][(bits & 3) as usize]
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
    let axis = Axis { first, last };
    let (bars, y) = bars(violation, &axis);
    let svg = background(&history.faults, &axis, y);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>Consistency violation</title>\
         <style>:root{{color-scheme:light dark}}body{{font:14px sans-serif;margin:2em}}\
         svg{{width:100%;min-width:40em}}figure{{margin:0;overflow-x:auto}}\
         .call{{fill:#6f9fd6}}.marked{{fill:#d03030}}.fault{{fill:#e0b030;opacity:.4}}\
         .tick{{stroke:currentcolor;opacity:.2}}.lane{{font-weight:bold}}\
         text{{font-size:12px;fill:currentcolor}}</style>\
         <h1>{}</h1><p>{}, NFSv4.{}, sec={}, seed {}, object {}</p><p>{}</p>\
         <p>Each bar is a call, from its first sending to its reply. Red: the call that contradicts the \
         others. Yellow: faults. A bar that reaches the right edge has no reply.</p>\
         <figure><svg viewBox='0 0 1000 {}'>{svg}{bars}</svg></figure></html>\n",
        escape(&violation.rule),
        escape(&history.server),
        history.minor,
        escape(&history.sec),
        history.seed,
        escape(&violation.object),
        escape(&violation.explanation),
        y + 20
    )
}

/// The calls of each client, and their height.
fn bars(violation: &Violation, axis: &Axis) -> (String, u32) {
    let ops = &violation.operations;
    let mut lanes: Vec<u16> = ops.iter().map(|op| op.client).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let (mut bars, mut y) = (String::new(), ROW);
    for lane in lanes {
        let _ = write!(bars, "<text x=0 y={} class=lane>{}</text>", y + 14, lane_name(lane));
        for op in ops.iter().filter(|op| op.client == lane) {
            let class = if op.id == violation.marked { "marked" } else { "call" };
            let (from, to) = (axis.x(op.start), op.end.map_or(RIGHT, |end| axis.x(end)));
            let text = format!("{} {}", op.id, escape(&call_text(op)));
            let width = (to - from).max(2.0);
            let (at, anchor) =
                if from > (LEFT + RIGHT) / 2.0 { (from + width, "end") } else { (from, "start") };
            let _ = write!(
                bars,
                "<rect class={class} x={from:.1} y={y} width={width:.1} height=18 />\
                 <text x={at:.1} y={} text-anchor={anchor}>{text}</text>",
                y + 32,
            );
            y += 42;
        }
        y += 8;
    }
    (bars, y)
}

/// Faults and times behind the calls.
fn background(faults: &[Fault], axis: &Axis, height: u32) -> String {
    let mut svg = String::new();
    let Axis { first, last } = *axis;
    for fault in faults.iter().filter(|f| f.end >= first && f.start <= last) {
        let (from, to) = (axis.x(fault.start), axis.x(fault.end).max(axis.x(fault.start) + 1.0));
        let _ = write!(
            svg,
            "<rect class=fault x={from:.1} y=0 width={:.1} height={height} />\
             <text x={from:.1} y={}>{}</text>",
            to - from,
            height + 14,
            escape(&fault.kind)
        );
    }
    for tick in 0..=TICKS {
        let time = first + (last - first) * tick / TICKS;
        let x = axis.x(time);
        let anchor = if tick == TICKS { "end" } else { "start" };
        let _ = write!(
            svg,
            "<path class=tick d='M{x:.1} 0V{height}'/>\
             <text x={x:.1} y=12 text-anchor={anchor}>{:.3} ms</text>",
            time as f64 / 1e6
        );
    }
    svg
}

struct Axis {
    first: u64,
    last: u64,
}

impl Axis {
    fn x(&self, time: u64) -> f64 {
        let passed = time.clamp(self.first, self.last) - self.first;
        LEFT + passed as f64 / (self.last - self.first) as f64 * (RIGHT - LEFT)
    }
}

const LEFT: f64 = 90.0;
const RIGHT: f64 = 990.0;
const ROW: u32 = 24;
const TICKS: u64 = 4;
