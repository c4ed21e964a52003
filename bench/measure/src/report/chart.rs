//! Inline SVG. The page's CSS colours the classes. Shapes and dashes also distinguish series.

use std::fmt::Write as _;

use super::format::number;

/// The subject's position selects the style.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) look: usize,
    pub(super) points: Vec<Point>,
}

pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) says: String,
}

pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) log_x: bool,
    pub(super) log_y: bool,
    pub(super) tell_x: fn(f64) -> String,
}

pub(super) fn lines(axes: &Axes<'_>, series: &[Line]) -> String {
    let all = || series.iter().flat_map(|line| &line.points);
    let x = Scale::of(all().map(|point| point.x), axes.log_x, (LEFT, WIDTH - RIGHT));
    let y = Scale::of(
        all().flat_map(|point| [point.low, point.y, point.high]),
        axes.log_y,
        (HEIGHT - BOTTOM, TOP),
    );
    let shown: Vec<&Line> = series.iter().filter(|line| !line.points.is_empty()).collect();
    let legend = legend(&shown);
    let rows = legend.last().map_or(0, |(_, row)| row + 1);
    let mut svg = svg_open(axes.title, HEIGHT + rows as f64 * LABEL_HEIGHT);
    draw_axes(&mut svg, axes, &x, &y);
    for line in &shown {
        let path: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x.at(point.x), y.at(point.y)))
            .collect();
        let _ = write!(
            svg,
            "<polyline class=\"line s{}\" points=\"{}\"/>",
            line.look % STYLES,
            path.join(" ")
        );
        for point in &line.points {
            let (cx, cy) = (x.at(point.x), y.at(point.y));
            if point.high > point.low {
                let class = format!("uncertainty s{}", line.look % STYLES);
                stroke(&mut svg, &class, [cx, cx], [y.at(point.low), y.at(point.high)]);
            }
            let _ = write!(
                svg,
                "<g class=\"dot s{}\"><title>{}</title>{}</g>",
                line.look % STYLES,
                escape(&point.says),
                shape(line.look, cx, cy)
            );
        }
    }
    for (line, (x, row)) in shown.iter().zip(legend) {
        let (x, y) = (x + 6.0, HEIGHT + row as f64 * LABEL_HEIGHT + 6.0);
        let (style, shape) = (line.look % STYLES, shape(line.look, x, y));
        let _ = write!(svg, "<g class=\"dot s{style}\">{shape}</g>");
        text(&mut svg, "label", (x + 10.0, y + 4.0), &line.label);
    }
    svg.push_str("</svg>");
    svg
}

/// Place and row of each label, from left to right below the plot.
fn legend(lines: &[&Line]) -> Vec<(f64, usize)> {
    let (mut x, mut row) = (LEFT, 0);
    let place = |line: &&Line| {
        let len = line.label.chars().count() as f64 * CHAR_WIDTH + 32.0;
        if x > LEFT && x + len > WIDTH {
            (x, row) = (LEFT, row + 1);
        }
        x += len;
        (x - len, row)
    };
    lines.iter().map(place).collect()
}

fn draw_axes(svg: &mut String, axes: &Axes<'_>, x: &Scale, y: &Scale) {
    let foot = HEIGHT - BOTTOM;
    for tick in y.ticks() {
        let at = y.at(tick);
        stroke(svg, "grid", [LEFT, WIDTH - RIGHT], [at, at]);
        text(svg, "tick end", (LEFT - 8.0, at + 4.0), &short(tick));
    }
    for tick in x.ticks() {
        let at = x.at(tick);
        stroke(svg, "mark", [at, at], [foot, foot + 5.0]);
        text(svg, "tick mid", (at, foot + 19.0), &(axes.tell_x)(tick));
    }
    stroke(svg, "axis", [LEFT, WIDTH - RIGHT], [foot, foot]);
    text(svg, "name mid", ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0), axes.x);
    text(svg, "name", (LEFT, TOP - 12.0), axes.y);
}

fn stroke(svg: &mut String, class: &str, x: [f64; 2], y: [f64; 2]) {
    let ([x1, x2], [y1, y2]) = (x, y);
    let _ = write!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), text: &str) {
    let text = escape(text);
    let _ = write!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

pub(super) struct Bar {
    pub(super) label: String,
    pub(super) look: usize,
    pub(super) parts: Vec<f64>,
    pub(super) uncertainty: Option<(f64, f64)>,
    pub(super) tells: String,
}

pub(super) fn bars(title: &str, unit: &str, groups: &[(String, Vec<Bar>)]) -> String {
    let count: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let named = groups.len() > 1;
    let height = TOP
        + count as f64 * BAR
        + groups.len() as f64 * (GAP + if named { BAR } else { 0.0 })
        + 34.0;
    let label_len = groups
        .iter()
        .flat_map(|(_, bars)| bars)
        .map(|bar| bar.label.chars().count())
        .max()
        .unwrap_or(0);
    let left = (label_len as f64 * CHAR_WIDTH + 16.0).clamp(BAR_LEFT, BAR_LEFT_MAX);
    let x = Scale::of(
        groups.iter().flat_map(|(_, bars)| bars).map(Bar::longest).chain([0.0]),
        false,
        (left, WIDTH - BAR_RIGHT),
    );
    let mut svg = svg_open(title, height);
    let (top, foot) = (TOP - 14.0, height - 30.0);
    for tick in x.ticks() {
        let at = x.at(tick);
        stroke(&mut svg, "grid", [at, at], [top, foot]);
        text(&mut svg, "tick mid", (at, foot + 16.0), &short(tick));
    }
    text(&mut svg, "name", (left, TOP - 22.0), unit);
    let mut y = TOP - 8.0;
    for (name, bars) in groups {
        if named {
            text(&mut svg, "group", (8.0, y + BAR - 7.0), name);
            y += BAR;
        }
        for bar in bars {
            draw_bar(&mut svg, bar, &x, left, y);
            y += BAR;
        }
        y += GAP;
    }
    svg.push_str("</svg>");
    svg
}

fn draw_bar(svg: &mut String, bar: &Bar, x: &Scale, left: f64, y: f64) {
    let mut at = 0.0;
    let label = shortened(&bar.label, ((left - 16.0) / CHAR_WIDTH) as usize);
    text(svg, "label end", (left - 8.0, y + 15.0), &label);
    for (part, len) in bar.parts.iter().enumerate() {
        let (from, to) = (x.at(at), x.at(at + len));
        let _ = write!(
            svg,
            "<rect class=\"bar s{} part{part}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{} {}</title></rect>",
            bar.look % STYLES,
            y + 3.0,
            (to - from).max(0.0),
            BAR - 6.0,
            escape(&bar.label),
            escape(&bar.tells)
        );
        at += len;
    }
    if let Some((low, high)) = bar.uncertainty.filter(|(low, high)| high > low) {
        let middle = y + BAR / 2.0;
        stroke(svg, "uncertainty ink", [x.at(low.max(0.0)), x.at(high)], [middle, middle]);
    }
    text(svg, "label", (x.at(bar.longest()) + 7.0, y + 15.0), &bar.tells);
}

impl Bar {
    fn longest(&self) -> f64 {
        self.parts.iter().sum::<f64>().max(self.uncertainty.map_or(0.0, |(_, high)| high))
    }
}

/// The whole text is the title of the bar.
fn shortened(text: &str, len_max: usize) -> String {
    if text.chars().count() <= len_max {
        return text.to_owned();
    }
    let start: String = text.chars().take(len_max.saturating_sub(1)).collect();
    format!("{}…", start.trim_end())
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, log: bool, (from, to): (f64, f64)) -> Self {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!log || *value > 0.0)).collect();
        let (mut low, mut high) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| {
                (low.min(value), high.max(value))
            });
        if values.is_empty() {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if log {
            (low, high) = (low / 1.15, high * 1.15);
        } else {
            low = low.min(0.0);
            high = if high <= low { low + 1.0 } else { high + (high - low) * 0.04 };
        }
        Self { log, low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + (self.to - self.from) * part.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10();
            let steps: &[f64] = if decades < 1.5 {
                &[1.0, 2.0, 3.0, 5.0]
            } else if decades < 3.0 {
                &[1.0, 3.0]
            } else {
                &[1.0]
            };
            let first = self.low.log10().floor() as i32;
            let all = (first..=first + decades.ceil() as i32 + 1)
                .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            return all.filter(|tick| *tick >= self.low && *tick <= self.high).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|times| times * unit)
            .find(|step| *step >= rough)
            .unwrap_or(10.0 * unit);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|count| count as f64 * step).take_while(|tick| *tick <= self.high).collect()
    }
}

fn svg_open(title: &str, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
        escape(title)
    )
}

pub(super) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        n if n >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        n if n >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = number(value);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn shape(look: usize, x: f64, y: f64) -> String {
    match look % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7.4\" height=\"7.4\"/>",
            x - 3.7,
            y - 3.7
        ),
        2 => format!("<path d=\"M{:.1} {:.1}l5 8.6h-10z\"/>", x, y - 5.2),
        _ => format!("<path d=\"M{:.1} {:.1}l5 5-5 5-5-5z\"/>", x, y - 5.0),
    }
}

pub(super) const STYLES: usize = 8;
/// Narrow enough for a telephone: text stays readable when the drawing is scaled to its width.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
const LABEL_HEIGHT: f64 = 18.0;
const BAR: f64 = 22.0;
const GAP: f64 = 8.0;
const BAR_LEFT: f64 = 110.0;
const BAR_LEFT_MAX: f64 = 224.0;

const CHAR_WIDTH: f64 = 6.8;
const BAR_RIGHT: f64 = 120.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_within_range() {
        let scale = Scale::of([0.0, 37_000.0].into_iter(), false, (0.0, 100.0));
        assert_eq!(scale.ticks(), [0.0, 10_000.0, 20_000.0, 30_000.0]);
        let scale = Scale::of([90.0, 40_000.0].into_iter(), true, (0.0, 100.0));
        assert!(scale.ticks().iter().all(|tick| *tick >= scale.low && *tick <= scale.high));
        assert!(scale.ticks().contains(&1000.0));
        assert!(!Scale::of(std::iter::empty(), true, (0.0, 1.0)).ticks().is_empty());
    }

    #[test]
    fn drawing_stays_inside_and_text_is_escaped() {
        let point =
            |x: f64, y: f64| Point { x, y, low: y * 0.9, high: y * 1.1, says: "<b>".into() };
        let line = Line {
            label: "a&b".into(),
            look: 0,
            points: vec![point(1.0, 5.0), point(100.0, 50.0)],
        };
        let axes = Axes { title: "t", x: "x", y: "y", log_x: true, log_y: true, tell_x: number };
        let svg = lines(&axes, &[line]);
        assert!(
            svg.contains("a&amp;b")
                && svg.contains("&lt;b&gt;")
                && !svg.contains("<b>")
                && !svg.contains("NaN"),
            "{svg}"
        );
    }

    #[test]
    fn labels_of_bars_stay_inside() {
        let shown = |label: &str| {
            let bar = Bar {
                label: label.into(),
                look: 0,
                parts: vec![1.0],
                uncertainty: None,
                tells: "1 s".into(),
            };
            let svg = bars("t", "s", &[(String::new(), vec![bar])]);
            let (_, text) = svg.split_once("<text class=\"label end\" x=\"").expect("a label");
            let (place, text) = text.split_once('"').expect("its place");
            let text = text.split(['>', '<']).nth(1).expect("its text").to_owned();
            let len = text.chars().count() as f64 * CHAR_WIDTH;
            assert!(len <= place.parse::<f64>().expect("a number"), "{svg}");
            assert!(svg.contains(&format!("<title>{label} ")), "{svg}");
            text
        };
        assert_eq!(shown("RustCrypto (detects the CPU)"), "RustCrypto (detects the CPU)");
        assert!(shown(&"long label ".repeat(9)).ends_with('…'));
    }
}
