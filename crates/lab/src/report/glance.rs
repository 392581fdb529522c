//! Everything at a glance: subjects by tests, each test at the point that stands for it.

use super::svg::escape;
use crate::analysis::{Analysis, TestAnalysis, words};
use crate::model::Run;

/// The table with its heading.
pub fn table(run: &Run, analysis: &Analysis) -> String {
    let mut html = String::from(
        "<h2>At a glance</h2>\n<div class=\"scroll\"><table class=\"glance\">\n<thead><tr><th></th>",
    );
    for test in &analysis.tests {
        let record = &run.tests[test.test];
        let at = words::point(record, test.main().point)
            .map_or_else(String::new, |at| format!("<br/>{}", escape(&at)));
        html.push_str(&format!("<th scope=\"col\">{}{at}</th>", escape(&record.name)));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for subject in 0..run.subjects.len() {
        let name = escape(&run.subjects[subject].name);
        html.push_str(&format!("<tr><th scope=\"row\">{name}</th>"));
        for test in &analysis.tests {
            html.push_str(&cell(run, test, subject));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html.push_str(&legend(run));
    html
}

fn cell(run: &Run, test: &TestAnalysis, subject: usize) -> String {
    let point = test.main();
    let Some(standing) = point.of(subject) else {
        let measured = run.cell(subject, test.test, point.point).is_some();
        let words = if measured { "not valid" } else { "not measured" };
        return format!("<td class=\"none\" style=\"--share:0%\">{words}</td>");
    };
    let most = point.standings.first().map_or(0.0, |first| first.rate.value);
    let share = if most > 0.0 { standing.rate.value / most * 100.0 } else { 0.0 };
    let rate = escape(&words::rate(test.metric, standing.rate.value));
    let factor = match standing.times_baseline {
        Some(factor) if run.baseline() != Some(subject) => {
            format!("{} ×", words::short_factor(factor))
        }
        _ => "\u{a0}".to_owned(),
    };
    let (class, star) = if point.leads(subject) { (" class=\"best\"", " ★") } else { ("", "") };
    format!("<td{class} style=\"--share:{share:.0}%\">{rate}{star}<small>{factor}</small></td>")
}

fn legend(run: &Run) -> String {
    let against = words::baseline(run).map_or_else(String::new, |name| {
        format!(" Small figures are multiples of {}.", escape(&name))
    });
    format!(
        "<p class=\"hint\">★ fastest, or level with the fastest within noise.{against} \
         1 MB/s is 10<sup>6</sup> bytes per second, 1 KiB is 1024 bytes; IOPS are I/Os per second.</p>\n"
    )
}
