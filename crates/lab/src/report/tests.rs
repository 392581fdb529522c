//! The page as a whole: the same bytes as stored, well-formed, and safe with hostile names.
//!
//! To accept a changed page, run the tests with `UPDATE_SNAPSHOTS=1` and look at the difference.

use super::*;
use crate::analysis::analyse;
use crate::made_up;

fn page(run: &Run) -> String {
    html(run, &analyse(run))
}

/// Compares with a stored file, or stores it.
fn assert_stored(name: &str, text: &str) {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = stored.lines().zip(text.lines()).position(|(old, new)| old != new);
    assert!(stored == text, "{} differs, first in line {differs:?} (from 0)", path.display());
}

#[test]
fn the_page_is_the_stored_one() {
    assert_stored("troubled.html", &page(&made_up::troubled()));
}

#[test]
fn every_page_is_well_formed() {
    let mut single = made_up::run();
    single.subjects.truncate(1);
    single.cells.retain(|cell| cell.subject == 0);
    let mut empty = made_up::run();
    empty.cells.clear();
    let mut bare = empty.clone();
    bare.subjects.clear();
    bare.tests.clear();
    bare.conditions.drives.clear();
    let mut ladder = made_up::run();
    // Twelve depths, as a curve over depths.
    ladder.tests[2].queue_depths = (0..12).map(|power| 1 << power).collect();
    for run in [made_up::run(), made_up::troubled(), single, empty, bare, ladder] {
        let text = page(&run);
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(&text, options).unwrap();
        let scripts = document.descendants().filter(|node| node.has_tag_name("script")).count();
        assert_eq!(scripts, 0);
        // Nothing is fetched from anywhere.
        for word in ["http:", "https:", "url(", "@import"] {
            assert!(!text.contains(word), "{word}");
        }
        let mut values = document.descendants().flat_map(|node| node.attributes());
        assert!(values.all(|it| !["NaN", "inf"].iter().any(|word| it.value().contains(word))));
    }
}

#[test]
fn each_subject_keeps_its_look() {
    let mut run = made_up::run();
    for index in 0..20 {
        let mut subject = run.subjects[1].clone();
        subject.name = format!("Subject {index}");
        run.subjects.push(subject);
    }
    let looks = looks(&run);
    assert_eq!(looks[0].class, "s0");
    assert_eq!((looks[1].class.as_str(), looks[8].class.as_str()), ("s1", "s1"));
    // Where a colour comes again, the marker is another one.
    for (index, look) in looks.iter().enumerate().skip(1) {
        for other in &looks[index + 1..(index + COLOURS).min(looks.len())] {
            assert!(look.class != other.class || look.marker != other.marker);
        }
    }
}
