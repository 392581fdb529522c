//! One test: its findings, its charts, its tables.

use super::chart::{Axis, Bar, Line, Look, bars, curves};
use super::svg::escape;
use super::{tables, unit};
use crate::analysis::{PointAnalysis, TestAnalysis, words};
use crate::model::{Point, Run, TestRecord};
use crate::units;

/// Fewest depths of a test that make a curve; below that bars say it better.
const CURVE_PLACES_LEAST: usize = 3;

/// The section of one test.
pub fn test(run: &Run, test: &TestAnalysis, looks: &[Look]) -> String {
    let record = &run.tests[test.test];
    let mut html = format!("<section>\n<h2>{}</h2>\n", escape(&record.name));
    html.push_str(&format!("<p class=\"hint\">{}</p>\n", escape(&description(record))));
    html.push_str(&format!("<p>{}</p>\n", escape(&test.sentences.join(" "))));
    html.push_str("<div class=\"charts\">\n");
    html.push_str(&charts(run, test, looks));
    html.push_str("</div>\n");
    html.push_str(&tables::rates(run, test));
    html.push_str(&tables::latencies(run, test));
    html.push_str("</section>\n");
    html
}

/// What the test asks, in a line.
fn description(record: &TestRecord) -> String {
    let direction = match record.read_percent {
        100.0 => "reads".to_owned(),
        0.0 => "writes".to_owned(),
        read => format!("{} % reads", units::trimmed(read, 1)),
    };
    let places = match record.random_percent {
        100.0 => "at random places".to_owned(),
        0.0 => "one block after the other".to_owned(),
        random => format!("{} % at random places", units::trimmed(random, 1)),
    };
    let sizes = match record.block_sizes.as_slice() {
        [] => "request sizes of the workload".to_owned(),
        [one] => format!("{} blocks", units::size(*one)),
        [first, .., last] => {
            format!("blocks of {} to {}", units::size(*first), units::size(*last))
        }
    };
    let depths: Vec<String> = record.queue_depths.iter().map(u32::to_string).collect();
    let depths = words::list(&depths);
    format!("Workload {}: {direction}, {places}, {sizes}, queue depth {depths}.", record.workload)
}

/// A curve where there is a sweep, bars where there is not.
fn charts(run: &Run, test: &TestAnalysis, looks: &[Look]) -> String {
    let record = &run.tests[test.test];
    let by_block = record.block_sizes.len() > 1;
    let by_depth = record.queue_depths.len() >= CURVE_PLACES_LEAST;
    if by_block {
        // One chart for each depth.
        let chart = |depth: &u32| {
            let points: Vec<&PointAnalysis> =
                test.points.iter().filter(|it| it.point.queue_depth == *depth).collect();
            let caption = format!("{} by block size, queue depth {depth}", record.name);
            let axis = Axis { places: &record.block_sizes, label: units::size, name: "block size" };
            curve(run, test, looks, &points, &axis, &caption)
        };
        let curves: String = record.queue_depths.iter().map(chart).collect();
        return curves + &bar_chart(run, test, looks, test.main());
    }
    if by_depth {
        let places: Vec<u64> = record.queue_depths.iter().map(|depth| u64::from(*depth)).collect();
        let points: Vec<&PointAnalysis> = test.points.iter().collect();
        let axis = Axis { places: &places, label: |depth| depth.to_string(), name: "queue depth" };
        let caption = format!("{} by queue depth", record.name);
        return curve(run, test, looks, &points, &axis, &caption);
    }
    test.points.iter().map(|point| bar_chart(run, test, looks, point)).collect()
}

fn curve(
    run: &Run,
    test: &TestAnalysis,
    looks: &[Look],
    points: &[&PointAnalysis],
    axis: &Axis<'_>,
    caption: &str,
) -> String {
    let lines: Vec<Line<'_>> = (0..run.subjects.len())
        .map(|subject| Line {
            look: &looks[subject],
            figures: points.iter().map(|point| Some(point.of(subject)?.rate)).collect(),
        })
        .collect();
    let most = points
        .iter()
        .filter_map(|point| point.standings.first())
        .map(|standing| standing.rate.value)
        .fold(0.0, f64::max);
    let unit = unit(test.metric, most);
    let label = format!("{caption}. {}", test.sentences.join(" "));
    let svg = curves(&lines, axis, unit, |value| words::rate(test.metric, value), &label);
    figure(caption, &svg)
}

fn bar_chart(run: &Run, test: &TestAnalysis, looks: &[Look], point: &PointAnalysis) -> String {
    let caption = caption(&run.tests[test.test], point.point);
    let rows: Vec<Bar<'_>> = (0..run.subjects.len())
        .map(|subject| {
            let standing = point.of(subject);
            let measured = run.cell(subject, test.test, point.point).is_some();
            let words = match standing {
                Some(standing) => words::rate(test.metric, standing.rate.value),
                None if measured => "not valid".to_owned(),
                None => "not measured".to_owned(),
            };
            Bar {
                look: &looks[subject],
                figure: standing.map(|standing| standing.rate),
                words,
                best: point.leads(subject),
            }
        })
        .collect();
    let label = format!("{caption}. {}", test.sentences.join(" "));
    figure(&caption, &bars(&rows, &label))
}

fn caption(record: &TestRecord, point: Point) -> String {
    match words::point(record, point) {
        Some(at) => format!("{}, {at}", record.name),
        None => format!("{}, depth {}", record.name, point.queue_depth),
    }
}

fn figure(caption: &str, svg: &str) -> String {
    format!("<figure>\n<figcaption>{}</figcaption>\n{svg}</figure>\n", escape(caption))
}
