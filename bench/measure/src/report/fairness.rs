use super::chart::{Axes, Line, Point, lines};
use super::html::STYLE;
use crate::nfs::{Fairness, QuietLatency};

/// Latency of quiet clients against the calls in flight of greedy ones.
pub fn fairness_svg(servers: &[Fairness]) -> String {
    let axes = Axes {
        title: "Latency of a quiet client beside greedy ones",
        x: "calls in flight of each greedy client (leftmost: none)",
        y: "99th percentile of GETATTR, µs",
        log_x: true,
        log_y: true,
        tell_x: |depth| format!("{depth}"),
    };
    let series: Vec<Line> = servers
        .iter()
        .enumerate()
        .map(|(look, server)| {
            let greed = server.greed.iter().map(|greed| (f64::from(greed.depth), &greed.quiet));
            let points = std::iter::once((IDLE, &server.idle)).chain(greed).map(point);
            Line { label: server.server.clone(), look, points: points.collect() }
        })
        .collect();
    let namespace = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
    let style = format!("</title><style>{STYLE}</style>");
    lines(&axes, &series).replacen("<svg", namespace, 1).replacen("</title>", &style, 1)
}

fn point((x, quiet): (f64, &QuietLatency)) -> Point {
    let y = quiet.getattr_p99;
    Point { x, y, low: y, high: y, says: format!("{y:.0} µs") }
}

/// A logarithmic axis has no zero.
const IDLE: f64 = 0.5;
