//! The two charts of a report: curves over a sweep, and bars by subject.
//!
//! Both take plain figures and return a whole `<svg>`. A subject has one
//! colour class and one marker throughout the page and its name stands at its
//! line or bar, so that no one has to match colours with a legend.

use super::scale::{Linear, Log2, Unit, label_step};
use super::svg::{Anchor, Marker, Svg};
use crate::analysis::spread::Estimate;

/// Width of a chart: about that of a phone, so that text stays readable there and two fit side by
/// side on a desk.
const WIDTH: f64 = 440.0;
/// Height of a curve chart.
const CURVE_HEIGHT: f64 = 320.0;
/// Room for the tick labels on the left.
const LEFT: f64 = 46.0;
/// Room for the unit on top.
const TOP: f64 = 26.0;
/// Room for tick labels and the axis name below.
const BOTTOM: f64 = 42.0;
/// Least distance between two labels at the ends of lines.
const LABEL_DISTANCE: f64 = 15.0;
/// Width of a letter at the label's size, on average. Labels are measured by it.
const LETTER: f64 = 7.4;
/// Height of a bar's row and of the bar in it.
const ROW: f64 = 28.0;
const BAR: f64 = 16.0;

/// How a subject looks on every chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Its name.
    pub name: String,
    /// Its class: a colour in the style sheet.
    pub class: String,
    /// Its marker.
    pub marker: Marker,
}

/// A line of a curve chart.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// Whose it is.
    pub look: &'a Look,
    /// Figure at each place of the axis; `None` leaves a gap.
    pub figures: Vec<Option<Estimate>>,
}

/// The axis below a curve chart.
#[derive(Clone, Debug)]
pub struct Axis<'a> {
    /// Values, ascending, above zero.
    pub places: &'a [u64],
    /// How a value is written.
    pub label: fn(u64) -> String,
    /// What the axis is called.
    pub name: &'a str,
}

/// Lines over a logarithmic axis. `tip` words a figure for its tooltip.
pub fn curves(
    lines: &[Line<'_>],
    axis: &Axis<'_>,
    unit: Unit,
    tip: impl Fn(f64) -> String,
    label: &str,
) -> String {
    let longest = lines.iter().map(|line| line.look.name.chars().count()).max().unwrap_or(0);
    // Long names may not eat the chart: beyond this they are cut.
    let right = (longest as f64 * LETTER + 26.0).clamp(40.0, 150.0);
    let (plot_width, plot_height) = (WIDTH - LEFT - right, CURVE_HEIGHT - TOP - BOTTOM);
    let most = lines
        .iter()
        .flat_map(|line| line.figures.iter().flatten())
        .map(|figure| figure.interval.map_or(figure.value, |(_, high)| high))
        .fold(0.0, f64::max);
    let vertical = Linear::new(most, 5);
    let horizontal = Log2::new(
        axis.places.first().copied().unwrap_or(1),
        axis.places.last().copied().unwrap_or(1),
    );
    let x = |place: u64| LEFT + horizontal.share(place) * plot_width;
    let y = |value: f64| TOP + (1.0 - vertical.share(value)) * plot_height;

    let mut svg = Svg::new(WIDTH, CURVE_HEIGHT);
    svg.text((0.0, 13.0), Anchor::Start, "axis-name", unit.name);
    for tick in &vertical.ticks {
        svg.line((LEFT, y(*tick)), (LEFT + plot_width, y(*tick)), "grid");
        svg.text((LEFT - 7.0, y(*tick) + 4.0), Anchor::End, "tick", &unit.label(*tick));
    }
    let step = label_step(axis.places.len(), 52.0, plot_width);
    for (index, place) in axis.places.iter().enumerate() {
        svg.line((x(*place), y(0.0)), (x(*place), y(0.0) + 4.0), "axis");
        if index % step == 0 {
            let at = (x(*place), y(0.0) + 18.0);
            svg.text(at, Anchor::Middle, "tick", &(axis.label)(*place));
        }
    }
    svg.line((LEFT, y(0.0)), (LEFT + plot_width, y(0.0)), "axis");
    let middle = (LEFT + plot_width / 2.0, CURVE_HEIGHT - 6.0);
    svg.text(middle, Anchor::Middle, "axis-name", axis.name);

    // Lines first, markers over all of them, so that none is hidden by a later line.
    for line in lines {
        for piece in pieces(line, axis.places) {
            let points: Vec<(f64, f64)> =
                piece.iter().map(|(place, figure)| (x(*place), y(figure.value))).collect();
            svg.polyline(&points, &format!("curve {}", line.look.class));
        }
    }
    for line in lines {
        for (place, figure) in axis.places.iter().zip(&line.figures) {
            let Some(figure) = figure else { continue };
            if let Some((low, high)) = figure.interval {
                let class = format!("whisker {}", line.look.class);
                svg.line((x(*place), y(low)), (x(*place), y(high)), &class);
            }
            let words =
                format!("{}, {}: {}", line.look.name, (axis.label)(*place), tip(figure.value));
            let class = format!("mark {}", line.look.class);
            svg.marker(line.look.marker, (x(*place), y(figure.value)), &class, Some(&words));
        }
    }
    end_labels(&mut svg, lines, axis.places, LEFT + plot_width, &x, &y);
    svg.finish(label)
}

/// Runs of neighbouring figures: a line does not cross a gap.
fn pieces(line: &Line<'_>, places: &[u64]) -> Vec<Vec<(u64, Estimate)>> {
    let mut pieces = vec![Vec::new()];
    for (place, figure) in places.iter().zip(&line.figures) {
        match figure {
            Some(figure) => {
                if let Some(piece) = pieces.last_mut() {
                    piece.push((*place, *figure));
                }
            }
            None => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

/// The names at the ends of the lines, moved apart where they would touch.
fn end_labels(
    svg: &mut Svg,
    lines: &[Line<'_>],
    places: &[u64],
    edge: f64,
    x: &impl Fn(u64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let mut ends: Vec<(f64, f64, &Look)> = lines
        .iter()
        .filter_map(|line| {
            let last = line.figures.iter().rposition(Option::is_some)?;
            let figure = line.figures[last]?;
            Some((x(*places.get(last)?), y(figure.value), line.look))
        })
        .collect();
    ends.sort_by(|left, right| left.1.total_cmp(&right.1));
    let wanted: Vec<f64> = ends.iter().map(|(_, height, _)| *height).collect();
    let placed = spread_out(&wanted, LABEL_DISTANCE, TOP, CURVE_HEIGHT - BOTTOM);
    for ((end_x, end_y, look), height) in ends.iter().zip(placed) {
        let class = format!("leader {}", look.class);
        svg.line((end_x + 6.0, *end_y), (edge + 12.0, height), &class);
        svg.marker(look.marker, (edge + 17.0, height), &format!("mark {}", look.class), None);
        svg.text((edge + 25.0, height + 4.0), Anchor::Start, "name", &shortened(&look.name, 18));
    }
}

/// Heights at least `distance` apart, as near to the wanted ones (ascending) as a pass down and a
/// pass up can bring them.
fn spread_out(wanted: &[f64], distance: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut placed = wanted.to_vec();
    let mut least = top;
    for height in &mut placed {
        *height = height.max(least);
        least = *height + distance;
    }
    let mut most = bottom;
    for height in placed.iter_mut().rev() {
        *height = height.min(most);
        most = *height - distance;
    }
    placed
}

fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

/// A row of a bar chart.
#[derive(Clone, Debug)]
pub struct Bar<'a> {
    /// Whose it is.
    pub look: &'a Look,
    /// Its figure; `None` leaves the row empty.
    pub figure: Option<Estimate>,
    /// What is written behind it.
    pub words: String,
    /// Whether it leads, alone or with others.
    pub best: bool,
}

/// Horizontal bars from zero with the intervals of their figures.
pub fn bars(bars: &[Bar<'_>], label: &str) -> String {
    let longest = bars.iter().map(|bar| shortened(&bar.look.name, 18).chars().count()).max();
    let left = longest.unwrap_or(0) as f64 * LETTER + 26.0;
    let words = bars.iter().map(|bar| bar.words.chars().count()).max().unwrap_or(0);
    let right = words as f64 * LETTER + 26.0;
    let room = (WIDTH - left - right).max(60.0);
    let most = bars
        .iter()
        .filter_map(|bar| bar.figure)
        .map(|figure| figure.interval.map_or(figure.value, |(_, high)| high))
        .fold(f64::MIN_POSITIVE, f64::max);
    let height = bars.len() as f64 * ROW + 6.0;
    let mut svg = Svg::new(WIDTH, height);
    for (index, bar) in bars.iter().enumerate() {
        let middle = 3.0 + (index as f64 + 0.5) * ROW;
        let class = &bar.look.class;
        svg.marker(bar.look.marker, (8.0, middle), &format!("mark {class}"), None);
        let name = shortened(&bar.look.name, 18);
        svg.text((18.0, middle + 4.5), Anchor::Start, "name", &name);
        let words_class = if bar.best { "figure best" } else { "figure" };
        let Some(figure) = bar.figure else {
            svg.text((left, middle + 4.5), Anchor::Start, "figure missing", &bar.words);
            continue;
        };
        let length = figure.value / most * room;
        let corner = (left, middle - BAR / 2.0);
        let tip = format!("{}: {}", bar.look.name, bar.words);
        svg.bar(corner, (length, BAR), &format!("bar {class}"), &tip);
        let mut end = length;
        if let Some((low, high)) = figure.interval {
            let (low, high) = (low / most * room, high / most * room);
            svg.line((left + low, middle), (left + high, middle), "interval");
            for cap in [low, high] {
                let (from, to) = ((left + cap, middle - 4.0), (left + cap, middle + 4.0));
                svg.line(from, to, "interval");
            }
            end = high;
        }
        let words = if bar.best { format!("{} ★", bar.words) } else { bar.words.clone() };
        svg.text((left + end + 8.0, middle + 4.5), Anchor::Start, words_class, &words);
    }
    svg.line((left, 0.0), (left, height), "axis");
    svg.finish(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_move_apart_and_stay_inside() {
        assert_eq!(spread_out(&[10.0, 50.0], 15.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread_out(&[40.0, 41.0, 42.0], 15.0, 0.0, 100.0), [40.0, 55.0, 70.0]);
        assert_eq!(spread_out(&[95.0, 96.0, 97.0], 15.0, 0.0, 100.0), [70.0, 85.0, 100.0]);
        assert_eq!(spread_out(&[], 15.0, 0.0, 100.0), Vec::<f64>::new());
    }

    #[test]
    fn a_gap_breaks_the_line() {
        let look = Look { name: "a".into(), class: "s0".into(), marker: Marker::Circle };
        let figure = |value| Some(Estimate { value, interval: None });
        let figures =
            vec![figure(1.0), figure(2.0), None, figure(4.0), None, figure(6.0), figure(7.0)];
        let line = Line { look: &look, figures };
        let pieces = pieces(&line, &[1, 2, 4, 8, 16, 32, 64]);
        let places: Vec<Vec<u64>> =
            pieces.iter().map(|piece| piece.iter().map(|(place, _)| *place).collect()).collect();
        assert_eq!(places, [vec![1, 2], vec![32, 64]]);
    }
}
