//! What holds for the whole run: title, subjects, conditions, how to read it, the plan.

use super::svg::escape;
use crate::analysis::spread;
use crate::model::Run;
use crate::units::{self, NS_PER_SECOND};

/// Title and the line below it.
pub fn title(run: &Run) -> String {
    let conditions = &run.conditions;
    let mut byline = vec![
        date(conditions.started_unix_s),
        conditions.host.clone(),
        format!("{}, {} processors", conditions.cpu, conditions.cpu_count),
        conditions.kernel.clone(),
    ];
    if let Some(finished) = run.finished_unix_s {
        let seconds = finished.saturating_sub(conditions.started_unix_s);
        byline.push(format!(
            "{} cells in {}",
            run.cells.len(),
            units::duration(seconds.saturating_mul(NS_PER_SECOND))
        ));
    }
    format!(
        "<h1>{}</h1>\n<p class=\"byline\">{}</p>\n",
        escape(&run.title),
        escape(&byline.join(" · "))
    )
}

/// `2 January 2026, 03:04 UTC`; the bare number for a time no calendar has.
fn date(unix_s: u64) -> String {
    i64::try_from(unix_s)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map_or_else(
            || format!("{unix_s} s after 1970"),
            |time| time.strftime("%-d %B %Y, %H:%M UTC").to_string(),
        )
}

/// What was measured.
pub fn subjects(run: &Run) -> String {
    let mut html = String::from(
        "<section>\n<h2>What was measured</h2>\n<div class=\"scroll\"><table>\n<thead><tr>\
         <th scope=\"col\">Subject</th><th scope=\"col\" class=\"words\">made of</th>\
         <th scope=\"col\">drives</th><th scope=\"col\">usable</th></tr></thead>\n<tbody>\n",
    );
    for subject in &run.subjects {
        let capacity = subject.capacity_bytes.map_or_else(|| "–".to_owned(), units::size);
        let drives = match subject.drives.len() {
            0 => "–".to_owned(),
            count => count.to_string(),
        };
        html.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td><td>{drives}</td><td>{capacity}</td></tr>\n",
            escape(&subject.name),
            escape(&subject.description)
        ));
    }
    html.push_str("</tbody></table></div>\n</section>\n");
    html
}

/// Under which conditions.
pub fn conditions(run: &Run) -> String {
    let conditions = &run.conditions;
    let memory = conditions.memory_bytes.map_or_else(|| "unknown".to_owned(), units::size);
    let load = conditions
        .load_average
        .map_or_else(|| "unknown".to_owned(), |load| units::trimmed(load, 2));
    let working_set = run.cells.iter().map(|cell| cell.working_set_bytes);
    let working_set = match (working_set.clone().min(), working_set.max()) {
        (Some(least), Some(most)) if least == most => units::size(least),
        (Some(least), Some(most)) => format!("{} to {}", units::size(least), units::size(most)),
        _ => "unknown".to_owned(),
    };
    let rows = [
        ("Run", run.id.clone()),
        ("Started", date(conditions.started_unix_s)),
        ("Machine", conditions.host.clone()),
        ("Processor", format!("{}, {} usable", conditions.cpu, conditions.cpu_count)),
        ("Memory", memory),
        ("Load before the run", load),
        ("Kernel", conditions.kernel.clone()),
        ("Backplane", conditions.version.clone()),
        ("Seed", conditions.seed.to_string()),
        ("Cache policy", conditions.cache_policy.clone()),
        (
            "Data written",
            format!(
                "{} bits of information a byte",
                units::trimmed(conditions.data_entropy_bits, 2)
            ),
        ),
        ("Working set", working_set),
    ];
    let mut html = String::from(
        "<section>\n<h2>Conditions</h2>\n<div class=\"scroll\"><table class=\"facts\">\n<tbody>\n",
    );
    for (name, value) in rows {
        html.push_str(&format!(
            "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>\n",
            escape(&value)
        ));
    }
    html.push_str("</tbody></table></div>\n");
    html.push_str(&drives(run));
    html.push_str("</section>\n");
    html
}

fn drives(run: &Run) -> String {
    let known = |value: Option<bool>| match value {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let mut html = String::from(
        "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">Drive</th>\
         <th scope=\"col\" class=\"words\">kind</th><th scope=\"col\">identity</th><th scope=\"col\">size</th>\
         <th scope=\"col\">direct I/O real</th><th scope=\"col\">write cache</th></tr></thead>\n<tbody>\n",
    );
    for drive in &run.conditions.drives {
        html.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(&drive.path),
            escape(&drive.kind),
            escape(drive.identity.as_deref().unwrap_or("–")),
            units::size(drive.size_bytes),
            known(drive.direct_io),
            known(drive.write_cache)
        ));
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// What the figures mean and what they don't.
pub fn reading() -> String {
    format!(
        "<section>\n<h2>How to read it</h2>\n\
         <p>A cell is one subject under one test at one block size and queue depth. The ramp before it is not \
         counted. Rates are means over the measured time. The intervals hold the mean with {confidence} % \
         confidence as far as the spread within this run tells (bootstrap over the intervals of the time series, \
         at least {least} of them); runs differ more among themselves, so a lead below {lead} % is never called \
         one.</p>\n\
         <p>A figure that is struck through is not counted, the notes say why. A dash is a figure that is not \
         known, or a percentile of too few I/Os; nothing unknown is shown as zero. Drive reads and writes per I/O \
         count what reached the drives for each I/O of the client. CPU per I/O is this program’s own, kernel \
         included.</p>\n</section>\n",
        confidence = units::trimmed(spread::CONFIDENCE * 100.0, 1),
        least = spread::INTERVALS_LEAST,
        lead = units::trimmed(crate::analysis::LEAD_LEAST * 100.0, 1),
    )
}

/// The plan as it was read.
pub fn plan(run: &Run) -> String {
    format!(
        "<section>\n<h2>The plan</h2>\n<details><summary>As it was read</summary>\n<pre>{}</pre>\n</details>\n</section>\n",
        escape(&run.plan_text)
    )
}
