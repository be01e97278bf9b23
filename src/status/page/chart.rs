//! Bars and a line over a job's checkpoints, as SVG.

use std::collections::BTreeMap;

use maud::{Markup, html};

/// One checkpoint in a chart.
pub(super) struct Point {
    pub(super) name: String,
    /// The bar's parts from below, each with its class.
    pub(super) bar: Vec<(&'static str, f64)>,
    /// The line's height, where there is a line.
    pub(super) line: Option<f64>,
    /// What is said of it when it is pointed at.
    pub(super) says: String,
}

impl Point {
    fn height(&self) -> f64 {
        self.bar.iter().map(|(_, part)| part).sum()
    }

    /// The parts with where each ends above.
    fn stacked(&self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        let mut top = 0.0;
        self.bar.iter().map(move |(class, part)| {
            top += part;
            (*class, *part, top)
        })
    }
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 180.0;
/// Room below for the first and the last name, and above for the scale.
const MARGIN: f64 = 18.0;

/// A chart with a title that says what the bars and the line are. Its scale begins at 0; `top` says its upper end in words.
pub(super) fn chart(title: &str, points: &[Point], top: impl Fn(f64) -> String) -> Markup {
    let highest = points.iter().flat_map(|p| [p.height(), p.line.unwrap_or(0.0)]).fold(0.0, f64::max);
    let scale = if highest > 0.0 { HEIGHT / highest } else { 0.0 };
    let step = WIDTH / points.len().max(1) as f64;
    let y = |value: f64| MARGIN + HEIGHT - value * scale;
    let middle = |i: usize| (i as f64 + 0.5) * step;
    let line: Vec<String> =
        points.iter().enumerate().filter_map(|(i, p)| Some(format!("{:.1},{:.1}", middle(i), y(p.line?)))).collect();
    // One path for each class: a browser takes long over thousands of rectangles.
    let mut bars: BTreeMap<&str, String> = BTreeMap::new();
    for (i, p) in points.iter().enumerate() {
        for (class, part, top) in p.stacked() {
            let (x, width, height) = (middle(i) - step * 0.4, step * 0.8, part * scale);
            let bar = format!("M{x:.1} {:.1}h{width:.1}v{height:.1}h-{width:.1}z", y(top));
            bars.entry(class).or_default().push_str(&bar);
        }
    }
    let bottom = HEIGHT + MARGIN;
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", bottom + MARGIN)) role="img" aria-label=(title) {
            line.rule x1="0" y1=(bottom) x2=(WIDTH) y2=(bottom) {}
            line.rule x1="0" y1=(MARGIN) x2=(WIDTH) y2=(MARGIN) {}
            text x="0" y="12" { (top(highest)) }
            @for (class, path) in &bars { path class=(class) d=(path) {} }
            // What is pointed at: the whole height, since a bar may be low.
            @for (i, p) in points.iter().enumerate() {
                rect.over x=(format!("{:.1}", middle(i) - step * 0.5)) y=(MARGIN) width=(format!("{step:.1}")) height=(HEIGHT) {
                    title { (p.says) }
                }
            }
            @if !line.is_empty() {
                polyline.held points=(line.join(" ")) {}
            }
            @if let (Some(first), Some(last)) = (points.first(), points.last()) {
                text x="0" y=(bottom + 13.0) { (first.name) }
                @if points.len() > 1 {
                    text x=(WIDTH) y=(bottom + 13.0) text-anchor="end" { (last.name) }
                }
            }
        }
    }
}
