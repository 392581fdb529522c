//! Findings in plain words.

use super::{PointAnalysis, Standing, TestAnalysis, Verdict, spread, words};
use crate::model::{Run, SubjectRecord};
use crate::units;

/// The findings of one test.
pub(super) fn of_test(run: &Run, test: &TestAnalysis) -> Vec<String> {
    let mut sentences = Vec::new();
    // A curve is told by its end and its crossings; a few points are told one by one.
    let record = &run.tests[test.test];
    if record.block_sizes.len() > 1 {
        sentences.extend(result(run, test, test.main()));
        sentences.extend(lead_changes(run, test));
    } else {
        sentences.extend(test.points.iter().filter_map(|point| result(run, test, point)));
    }
    sentences.extend(efficiency(run, test));
    sentences.extend(parity_cost(run, test));
    sentences
}

/// The findings of the whole run.
pub(super) fn headline(run: &Run, tests: &[TestAnalysis]) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(overall(run, tests));
    sentences.extend(safe_choice(run, tests));
    sentences.extend(tests.iter().filter_map(|test| {
        let result = result(run, test, test.main())?;
        Some(format!("{}: {result}", run.tests[test.test].name))
    }));
    sentences.extend(
        tests
            .iter()
            .filter(|test| run.tests[test.test].random_percent > 50.0)
            .filter_map(|test| parity_cost(run, test)),
    );
    sentences
}

fn name(run: &Run, subject: usize) -> String {
    run.subjects[subject].name.clone()
}

/// Who won at a point and by how much.
fn result(run: &Run, test: &TestAnalysis, point: &PointAnalysis) -> Option<String> {
    let first = point.standings.first()?;
    let place = words::at_point(&run.tests[test.test], point.point);
    let rate = words::rate(test.metric, first.rate.value);
    let against = against_baseline(run, first);
    let second = point.standings.get(1);
    let winner = name(run, first.subject);
    Some(match (point.verdict, second) {
        (Verdict::Tied(count), _) if count == run.subjects.len() => {
            format!("No subject is ahead{place}: all reached about {rate}, within noise.")
        }
        (Verdict::Tied(count), _) => {
            let mut tied: Vec<usize> =
                point.standings[..count].iter().map(|standing| standing.subject).collect();
            tied.sort_unstable();
            let names: Vec<String> = tied.iter().map(|subject| name(run, *subject)).collect();
            let with_baseline = run.baseline().is_some_and(|subject| tied.contains(&subject));
            let against = if with_baseline { String::new() } else { against };
            format!(
                "{} are level{place}, within noise: about {rate}{against}.",
                words::list(&names)
            )
        }
        (Verdict::Won, Some(second)) => {
            format!("{winner} is fastest{place} with {rate}{against}; {}.", runner_up(run, second))
        }
        (Verdict::Unjudged, Some(second)) => format!(
            "{winner} reached most{place}, {rate}{against}; {}, but the series are too short to tell \
             whether that is noise.",
            runner_up(run, second)
        ),
        _ => format!("Only {winner} has figures{place}: {rate}."),
    })
}

/// `, 3.8 times one drive`, or nothing for the baseline itself.
fn against_baseline(run: &Run, standing: &Standing) -> String {
    match (standing.times_baseline, words::baseline(run)) {
        (Some(factor), Some(baseline)) if run.baseline() != Some(standing.subject) => {
            format!(", {}", words::against(factor, &baseline))
        }
        _ => String::new(),
    }
}

fn runner_up(run: &Run, second: &Standing) -> String {
    let behind = second.behind.map_or(0.0, |lead| 1.0 - 1.0 / lead.times);
    format!("{} follows, {} behind", name(run, second.subject), words::percent(behind))
}

/// Where along a curve the lead changes.
fn lead_changes(run: &Run, test: &TestAnalysis) -> Option<String> {
    let leaders: Vec<(usize, &PointAnalysis)> = test
        .points
        .iter()
        .filter(|point| point.verdict == Verdict::Won)
        .map(|point| (point.standings[0].subject, point))
        .collect();
    let last = leaders.last()?.0;
    let (before, point) = leaders.iter().rev().find(|(subject, _)| *subject != last)?;
    let at = words::at_point(&run.tests[test.test], point.point);
    Some(format!("Up to there the order changes: {} leads{at}.", name(run, *before)))
}

/// How much of what its drives could do together the winner reached.
fn efficiency(run: &Run, test: &TestAnalysis) -> Option<String> {
    let first = test.main().standings.first()?;
    let subject = &run.subjects[first.subject];
    let drives = subject.drives.len();
    let factor = first.times_baseline?;
    // Against one drive only: other baselines don't say what a drive can do.
    let one_drive = run.subjects[run.baseline()?].drives.len() == 1;
    let won = test.main().verdict == Verdict::Won;
    if !won || !one_drive || drives < 2 || run.baseline() == Some(first.subject) {
        return None;
    }
    Some(format!(
        "{} reached {} of {drives} times one drive.",
        subject.name,
        words::percent(factor / drives as f64)
    ))
}

/// What parity costs in a test of writes, against a stripe of as many drives.
fn parity_cost(run: &Run, test: &TestAnalysis) -> Option<String> {
    if run.tests[test.test].read_percent > 0.0 {
        return None;
    }
    let point = test.main();
    let mut costs = Vec::new();
    let mut against: Option<usize> = None;
    for standing in &point.standings {
        let subject = &run.subjects[standing.subject];
        let stripe = point.standings.iter().find(|other| {
            let other = &run.subjects[other.subject];
            loses_all(other) && other.drives.len() == subject.drives.len()
        });
        let Some(stripe) = stripe.filter(|_| subject.parity_members > 0) else { continue };
        // One sentence, one yardstick.
        if against.is_some_and(|subject| subject != stripe.subject) {
            continue;
        }
        let lost = 1.0 - standing.rate.value / stripe.rate.value;
        if lost <= 0.0 {
            continue;
        }
        let percent = words::percent(lost);
        let operations = drive_operations(run, test, point, standing.subject);
        costs.push(match (against, operations) {
            (None, Some((reads, writes))) => format!(
                "{} is {percent} slower than {} (each write became {reads} and {writes} at the \
                 drives)",
                subject.name, run.subjects[stripe.subject].name
            ),
            (None, None) => format!(
                "{} is {percent} slower than {}",
                subject.name, run.subjects[stripe.subject].name
            ),
            (Some(_), Some((reads, writes))) => {
                format!("{} {percent} ({reads} and {writes})", subject.name)
            }
            (Some(_), None) => format!("{} {percent}", subject.name),
        });
        against = Some(stripe.subject);
    }
    if costs.is_empty() {
        return None;
    }
    let at = words::at_point(&run.tests[test.test], point.point);
    let test_name = &run.tests[test.test].name;
    Some(format!("What parity costs in {test_name}{at}: {}.", costs.join(", ")))
}

/// Several drives of which each is needed.
fn loses_all(subject: &SubjectRecord) -> bool {
    subject.drives.len() > 1 && subject.parity_members == 0 && subject.copies == 1
}

/// Reads and writes at the drives for each write of the client.
fn drive_operations(
    run: &Run,
    test: &TestAnalysis,
    point: &PointAnalysis,
    subject: usize,
) -> Option<(String, String)> {
    let cell = run.cell(subject, test.test, point.point)?;
    let traffic = cell.drive_traffic?;
    // In a stream neighbouring writes are gathered: a count for each would mean nothing.
    if cell.writes.ios == 0 || run.tests[test.test].random_percent < 50.0 {
        return None;
    }
    let each = |ios: u64, what| match units::trimmed(ios as f64 / cell.writes.ios as f64, 1) {
        one if one == "1" => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    Some((each(traffic.read_ios, "read"), each(traffic.write_ios, "write")))
}

/// The subject that is fastest, or level with the fastest, in most tests.
fn overall(run: &Run, tests: &[TestAnalysis]) -> Option<String> {
    if run.subjects.len() < 2 {
        return None;
    }
    let led = |subject: usize| tests.iter().filter(|test| test.main().leads(subject)).count();
    let won = |subject: usize| {
        let wins = |test: &&TestAnalysis| {
            test.main().verdict == Verdict::Won && test.main().leads(subject)
        };
        tests.iter().filter(wins).count()
    };
    let best = (0..run.subjects.len())
        .max_by_key(|&subject| (led(subject), won(subject), std::cmp::Reverse(subject)))?;
    let (led, won, all) = (led(best), won(best), tests.len());
    let record = &run.subjects[best];
    let counts = match (won, led - won) {
        (0, 0) => return None,
        (won, 0) => format!("is fastest in {won} of {all} tests"),
        (0, level) => format!("is level with the fastest in {level} of {all} tests"),
        (won, level) => {
            format!("is fastest in {won} of {all} tests and level with the fastest in {level}")
        }
    };
    let warning = if loses_all(record) {
        "; it loses everything with the first drive that fails"
    } else {
        ""
    };
    Some(format!("{} {counts}{warning}.", record.name))
}

/// The best of those that survive a lost drive, test by test.
fn safe_choice(run: &Run, tests: &[TestAnalysis]) -> Option<String> {
    let safe: Vec<usize> = (0..run.subjects.len())
        .filter(|&subject| {
            run.subjects[subject].parity_members > 0 || run.subjects[subject].copies > 1
        })
        .collect();
    // With all or one of them safe, the other sentences say it already.
    if safe.len() < 2 || safe.len() == run.subjects.len() {
        return None;
    }
    let mut won: Vec<(usize, Vec<String>)> =
        safe.iter().map(|&subject| (subject, Vec::new())).collect();
    let mut level = Vec::new();
    for test in tests {
        let test_name = run.tests[test.test].name.clone();
        let point = test.main();
        let mut contenders =
            point.standings.iter().filter(|standing| safe.contains(&standing.subject));
        let Some(first) = contenders.next() else { continue };
        let cell = |standing: &Standing| run.cell(standing.subject, test.test, point.point);
        let tied = contenders.next().and_then(|second| {
            Some(!spread::lead(cell(first)?, cell(second)?, test.metric).is_real())
        });
        if tied == Some(true) {
            level.push(test_name);
        } else if let Some((_, names)) =
            won.iter_mut().find(|(subject, _)| *subject == first.subject)
        {
            names.push(test_name);
        }
    }
    won.retain(|(_, names)| !names.is_empty());
    won.sort_by_key(|(subject, names)| (std::cmp::Reverse(names.len()), *subject));
    let mut parts: Vec<String> = won
        .iter()
        .map(|(subject, names)| format!("{} at {}", name(run, *subject), words::list(names)))
        .collect();
    if parts.is_empty() {
        return None;
    }
    if !level.is_empty() {
        parts.push(format!("at {} several are level", words::list(&level)));
    }
    Some(format!("Of those that survive a lost drive the fastest is {}.", parts.join("; ")))
}
