//! The report: one HTML page that needs nothing but itself.
//!
//! Plain words first, then a table of everything at a glance, then test by
//! test a chart with its tables, at the end the conditions, every figure and
//! the plan. No script, no fonts, no images from elsewhere; charts are inline
//! SVG ([`svg`], [`chart`]), tooltips are the browser's own. The page follows
//! the reader's light or dark setting, prints on paper and fits a phone.
//!
//! The same run gives the same bytes: nothing in here asks for the time.

mod chart;
mod facts;
mod glance;
mod scale;
mod section;
mod svg;
mod tables;

use crate::analysis::Analysis;
use crate::model::{Metric, Run};
use chart::Look;
use scale::Unit;
use svg::{Marker, escape};

/// Colour classes for subjects other than the baseline, `s1` to this one; then they repeat, and
/// the marker still tells.
const COLOURS: usize = 7;

/// The whole page.
pub fn html(run: &Run, analysis: &Analysis) -> String {
    let looks = looks(run);
    let mut page = head(run);
    page.push_str("<main>\n");
    page.push_str(&facts::title(run));
    page.push_str(&summary(analysis));
    page.push_str(&glance::table(run, analysis));
    for test in &analysis.tests {
        page.push_str(&section::test(run, test, &looks));
    }
    page.push_str(&facts::subjects(run));
    page.push_str(&facts::conditions(run));
    page.push_str(&tables::all_cells(run));
    page.push_str(&facts::reading());
    page.push_str(&facts::plan(run));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn head(run: &Run) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(&run.title),
        include_str!("report/style.css")
    )
}

/// The plain words on top.
fn summary(analysis: &Analysis) -> String {
    let mut html = String::new();
    if !analysis.headline.is_empty() {
        html.push_str(&list("verdicts", &analysis.headline));
    }
    if !analysis.cautions.is_empty() {
        html.push_str("<section class=\"cautions\">\n<h2>Before you believe it</h2>\n");
        html.push_str(&list("", &analysis.cautions));
        html.push_str("</section>\n");
    }
    html
}

fn list(class: &str, items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<ul class=\"{class}\">\n{items}</ul>\n")
}

/// One look for each subject: the baseline is grey, the others take colours in order.
fn looks(run: &Run) -> Vec<Look> {
    let mut next = 0;
    run.subjects
        .iter()
        .enumerate()
        .map(|(index, subject)| {
            let class = if subject.baseline {
                "s0".to_owned()
            } else {
                next += 1;
                format!("s{}", (next - 1) % COLOURS + 1)
            };
            let marker = Marker::ALL[index % Marker::ALL.len()];
            Look { name: subject.name.clone(), class, marker }
        })
        .collect()
}

/// The unit of an axis that reaches `most`.
fn unit(metric: Metric, most: f64) -> Unit {
    match metric {
        Metric::Bytes if most >= 2e9 => Unit { divisor: 1e9, name: "GB/s" },
        Metric::Bytes => Unit { divisor: 1e6, name: "MB/s" },
        Metric::Ios if most >= 1e4 => Unit { divisor: 1e3, name: "thousand IOPS" },
        Metric::Ios => Unit { divisor: 1.0, name: "IOPS" },
    }
}

#[cfg(test)]
mod tests;
