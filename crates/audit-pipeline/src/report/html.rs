use indicatif::BinaryBytes;

use super::{Bar, Count, Report, Row};

const WIDTH: u64 = 960;
const HEIGHT: u64 = 160;
const STYLE: &str = ":root{color-scheme:light dark;--ok:#2563eb;--bad:#dc2626;--ink:#1f2937;--paper:#fff;--line:#d1d5db}\
@media(prefers-color-scheme:dark){:root{--ok:#60a5fa;--bad:#f87171;--ink:#e5e7eb;--paper:#111827;--line:#374151}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:960px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}svg{width:100%;height:auto;border-bottom:1px solid var(--line)}\
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.2rem .6rem;border-bottom:1px solid var(--line)}\
th:last-child,td:last-child{text-align:left;width:60%;overflow-wrap:anywhere}.ok{fill:var(--ok)}.bad{fill:var(--bad)}.failed{color:var(--bad)}";

pub(super) fn page(report: &Report) -> String {
    let Count { records, failures, .. } = report.total;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Audit report</title><style>{STYLE}</style></head><body>\n<h1>Audit report</h1>\n\
         <p>{records} records, <span class=\"failed\">{failures} failures</span>, {} lost; {} to {}</p>\n",
        report.lost,
        escape(&report.from),
        escape(&report.until)
    );
    page.push_str(&timeline(&report.timeline));
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

fn timeline(bars: &[Bar]) -> String {
    let highest = bars.iter().map(|bar| bar.count.records).max().unwrap_or(0).max(1);
    let step = WIDTH / (bars.len().max(1) as u64).min(WIDTH);
    let mut svg =
        format!("<svg viewBox=\"0 0 {} {HEIGHT}\" role=\"img\" aria-label=\"records over time\">\n", step * bars.len().max(1) as u64);
    for (at, Bar { from, count }) in bars.iter().enumerate() {
        let tall = |records: u64| (u128::from(records) * u128::from(HEIGHT)).div_ceil(u128::from(highest)) as u64;
        let (all, bad) = (tall(count.records), tall(count.failures));
        let x = at as u64 * step;
        let wide = step.saturating_sub(1).max(1);
        svg.push_str(&format!("<g><title>{}: {} records, {} failures</title>", escape(from), count.records, count.failures));
        for (class, tall) in [("ok", all), ("bad", bad)] {
            if tall > 0 {
                svg.push_str(&format!("<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{wide}\" height=\"{tall}\"/>", HEIGHT - tall));
            }
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
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
    #[test]
    fn names_are_escaped() {
        assert_eq!(super::escape("/srv/<script>\"&"), "/srv/&lt;script&gt;&quot;&amp;");
    }
}
