use indicatif::BinaryBytes;

use super::{About, Bar, Count, Report, Row};
use crate::record_text;

const WIDTH: u64 = 960;
const HEIGHT: u64 = 160;
const STYLE: &str = ":root{color-scheme:light dark;--ok:#2563eb;--bad:#dc2626;--good:#15803d;--ink:#1f2937;--soft:#4b5563;--paper:#fff;--line:#d1d5db}\
@media(prefers-color-scheme:dark){:root{--ok:#60a5fa;--bad:#f87171;--good:#4ade80;--ink:#e5e7eb;--soft:#9ca3af;--paper:#111827;--line:#374151}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:960px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\
.chart{display:grid;grid-template-columns:max-content 1fr;gap:0 .5rem;margin:.5rem 0}\
svg{display:block;width:100%;height:160px;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}\
.y,.x{display:flex;justify-content:space-between;color:var(--soft);font-size:.8rem}.y{flex-direction:column;align-items:end}.x{grid-column:2;gap:1rem;flex-wrap:wrap}\
.legend span{margin-right:1.5rem}.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}\
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.2rem .6rem;border-bottom:1px solid var(--line)}\
th:last-child,td:last-child{text-align:left;width:60%;overflow-wrap:anywhere}\
.ok{fill:var(--ok);background:var(--ok)}.bad{fill:var(--bad);background:var(--bad)}.failed{color:var(--bad)}.sound{color:var(--good)}\
@media(max-width:600px){tr{display:grid;grid-template-columns:repeat(4,1fr);border-bottom:1px solid var(--line)}\
th,td{border:0;padding:.1rem .2rem}th:last-child,td:last-child{grid-column:1/-1;order:-1;width:auto}dl{grid-template-columns:1fr}dt{margin-top:.3rem}}";

pub(super) fn page(report: &Report, about: &About) -> String {
    let Count { records, failures, .. } = report.total;
    let made = record_text::time(about.made_ns);
    let class = if about.is_sound { "sound" } else { "failed" };
    let failed = if failures > 0 { " class=\"failed\"" } else { "" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Audit report of {0}, {made}</title><style>{STYLE}</style></head><body>\n<h1>Audit report</h1>\n\
         <dl><dt>Made on</dt><dd>{0}, {made}</dd><dt>Trail</dt><dd>{1}, id {2}</dd>\
         <dt>Verification</dt><dd class=\"{class}\">{3}</dd><dt>Records</dt><dd>{4} to {5}</dd></dl>\n\
         <p>{records} records, <span{failed}>{failures} failures</span>, {6} lost</p>\n",
        escape(&about.host),
        escape(&about.directory),
        escape(&about.trail),
        escape(&about.verification),
        escape(&report.from),
        escape(&report.until),
        report.lost,
    );
    if !report.timeline.is_empty() {
        page.push_str(&timeline(report));
    }
    for table in report.tables.iter().filter(|table| !table.rows.is_empty()) {
        page.push_str(&format!(
            "<h2>By {} ({} of {})</h2>\n<table><tr><th>records</th><th>failures</th><th>read</th><th>written</th><th>{}</th></tr>\n",
            table.by,
            table.rows.len(),
            table.distinct,
            table.by
        ));
        for Row { name, count } in &table.rows {
            let Count { records, failures, bytes_read, bytes_written } = count;
            let class = if *failures > 0 { " class=\"failed\"" } else { "" };
            page.push_str(&format!(
                "<tr><td>{records}</td><td{class}>{failures}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                BinaryBytes(*bytes_read),
                BinaryBytes(*bytes_written),
                escape(name)
            ));
        }
        page.push_str("</table>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn timeline(report: &Report) -> String {
    let bars = &report.timeline;
    let highest = bars.iter().map(|bar| bar.count.records).max().unwrap_or(0).max(1);
    let step = WIDTH / (bars.len().max(1) as u64).min(WIDTH);
    // Labels are text of the page, which stays legible at any width.
    let mut svg = format!(
        "<h2>Records over time</h2>\n<p class=\"legend\"><span><i class=\"ok\"></i>all records</span>\
         <span><i class=\"bad\"></i>failures</span></p>\n<div class=\"chart\"><div class=\"y\"><span>{highest}</span><span>0</span></div>\n\
         <svg viewBox=\"0 0 {} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"records over time\">\n",
        step * bars.len().max(1) as u64
    );
    for (at, Bar { from, count }) in bars.iter().enumerate() {
        let tall = |records: u64| {
            (u128::from(records) * u128::from(HEIGHT)).div_ceil(u128::from(highest)) as u64
        };
        let (all, bad) = (tall(count.records), tall(count.failures));
        let x = at as u64 * step;
        let wide = step.saturating_sub(1).max(1);
        svg.push_str(&format!(
            "<g><title>{}: {} records, {} failures</title>",
            escape(from),
            count.records,
            count.failures
        ));
        for (class, tall) in [("ok", all), ("bad", bad)] {
            if tall > 0 {
                svg.push_str(&format!("<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{wide}\" height=\"{tall}\"/>", HEIGHT - tall));
            }
        }
        svg.push_str("</g>\n");
    }
    svg.push_str(&format!(
        "</svg>\n<div class=\"x\"><span>{}</span><span>{}</span></div></div>\n",
        escape(&report.from),
        escape(&report.until)
    ));
    svg
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_names_host_trail_verification_date_axes_and_legend() {
        let count = Count { records: 7, failures: 2, ..Count::default() };
        let report = Report {
            from: "FROM".into(),
            until: "UNTIL".into(),
            total: count,
            lost: 0,
            tables: Vec::new(),
            timeline: vec![Bar { from: "FROM".into(), count }],
        };
        let about = About {
            host: "nfs<1>".into(),
            directory: "/srv/trail".into(),
            trail: "0a1b".into(),
            made_ns: 1_700_000_000_000_000_000,
            is_sound: false,
            verification: "3 faults".into(),
        };
        let page = page(&report, &about);
        for part in [
            "nfs&lt;1&gt;, 2023-11-14T22:13:20",
            "/srv/trail, id 0a1b",
            "<dd class=\"failed\">3 faults</dd>",
            "<div class=\"y\"><span>7</span><span>0</span></div>",
            "<div class=\"x\"><span>FROM</span><span>UNTIL</span></div>",
            "</i>failures</span>",
            "@media(max-width:600px)",
            "prefers-color-scheme:dark",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(super::escape("/srv/<script>\"&"), "/srv/&lt;script&gt;&quot;&amp;");
    }
}
