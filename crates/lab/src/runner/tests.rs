//! Whole runs in virtual time, on memory drives that answer late, fail, hang or vanish.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drive::{Effect, ErrorKind, Fault, Faulty, MemoryDrive, NbdDrive, Operation};
use world::{RingError, World};

use super::conditions::Host;
use super::supply::{Content, Supplied, Supply, SupplyError};
use super::*;
use crate::model::{Cell, DriveRecord, NoteKind};
use crate::plan::DriveSource;
use crate::store;

/// What a made-up drive answers after.
const LATENCY: Duration = Duration::from_micros(100);

/// Drives in memory with a delay and the faults of a test.
struct MadeUp {
    stop: Arc<AtomicBool>,
    /// Faults of the drive with this index.
    faults: Vec<(u32, Fault)>,
    /// Sets the stop flag after this long in the first world.
    stop_after: Option<Duration>,
    /// The number of the world in which opening panics: a process that dies.
    dies_in: Option<u32>,
    worlds: u32,
    filled: Rc<RefCell<Vec<DriveSource>>>,
    abandoned: Vec<DriveSource>,
}

impl MadeUp {
    fn new() -> Self {
        Self {
            stop: Arc::default(),
            faults: Vec::new(),
            stop_after: None,
            dies_in: None,
            worlds: 0,
            filled: Rc::default(),
            abandoned: Vec::new(),
        }
    }
}

impl Supply for MadeUp {
    fn world(&mut self) -> Result<World, RingError> {
        let world = World::virtual_time(u64::from(self.worlds));
        if let (Some(after), 0) = (self.stop_after, self.worlds) {
            let (clock, stop) = (world.clone(), Arc::clone(&self.stop));
            world.spawn(async move {
                clock.sleep(after).await;
                stop.store(true, Ordering::Relaxed);
            });
        }
        self.worlds += 1;
        Ok(world)
    }

    fn record(&self, source: &DriveSource) -> DriveRecord {
        DriveRecord {
            path: format!("{source:?}"),
            kind: "made up".into(),
            identity: None,
            size_bytes: 0,
            direct_io: None,
            write_cache: None,
        }
    }

    fn open(
        &mut self,
        world: &World,
        sources: &[DriveSource],
        _writes: bool,
    ) -> Result<Vec<Supplied>, SupplyError> {
        assert_ne!(self.dies_in, Some(self.worlds), "the process dies");
        let open = |source: &DriveSource| {
            let (index, size_bytes, content) = match source {
                DriveSource::Scratch { index, size_bytes } => {
                    (*index, *size_bytes, Content::Unwritten)
                }
                DriveSource::Path(path) if path == "given" => {
                    (99, 16 << 20, Content::Given { hole_bytes: Some(4096) })
                }
                // Virtual time has no sockets.
                DriveSource::Path(target) => {
                    return Err(NbdDrive::open(world, target).err().expect("no ring").into());
                }
            };
            let memory = MemoryDrive::new(&format!("drive {index}"), size_bytes, 4096);
            let faulty = Faulty::new(world, Rc::new(memory), 1);
            let control = faulty.control();
            control.add(Fault::new(Effect::Delay(LATENCY)));
            for (_, fault) in self.faults.iter().filter(|(drive, _)| *drive == index) {
                control.add(fault.clone());
            }
            Ok(Supplied { drive: Rc::new(faulty), record: self.record(source), content })
        };
        sources.iter().map(open).collect()
    }

    fn filled(&mut self, source: &DriveSource) {
        self.filled.borrow_mut().push(source.clone());
    }

    fn abandon(&mut self, source: &DriveSource) {
        self.abandoned.push(source.clone());
    }
}

fn host() -> Host {
    Host {
        name: "made up".into(),
        kernel: "none".into(),
        cpu: "none".into(),
        memory_bytes: None,
        load_average: None,
        virtual_machine: false,
    }
}

fn plan(subjects: &str, tests: &str) -> Plan {
    let text = format!(
        "title = \"Made up\"\nseed = 7\n[defaults]\ntime = \"20ms\"\nramp = \"10ms\"\n\
         working_set = \"8M\"\ndrives = {{ count = 4, size = \"16M\" }}\n{subjects}\n{tests}\n"
    );
    Plan::parse("made-up.toml", &text).unwrap()
}

const READS: &str = "[[tests]]\nname = \"Reads\"\nworkload = \"random-read\"\nblock_sizes = [\"4K\"]\nqueue_depths = [1, 8]";
const WRITES: &str = "[[tests]]\nname = \"Writes\"\nworkload = \"random-write\"\nblock_sizes = [\"4K\"]\nqueue_depths = [1]";
const ONE: &str = "[[subjects]]\nname = \"One\"\nlevel = \"single\"";

fn array(level: &str) -> String {
    let chunk = if level == "raid1" { "" } else { "chunk = \"64K\"" };
    format!("[[subjects]]\nname = \"{level}\"\nlevel = \"{level}\"\n{chunk}")
}

/// Runs a plan on made-up drives; the store is in `directory`.
fn run_in(directory: &Path, plan: &Plan, supply: &mut MadeUp) -> Run {
    let mut run = session::head(plan, supply, &host(), 1_767_323_045);
    let mut store = Store::create(directory, &run).unwrap();
    let stop = Arc::clone(&supply.stop);
    let mut reporter = Reporter::new(Show::Nothing, Box::new(io::sink()));
    Session {
        plan,
        supply,
        store: &mut store,
        run: &mut run,
        reporter: &mut reporter,
        cpu_ns: None,
        stop: &stop,
        told_cached: false,
    }
    .measure()
    .unwrap();
    // What is stored is what was measured.
    assert_eq!(store.load().unwrap(), run);
    run
}

fn run(plan: &Plan, supply: &mut MadeUp) -> Run {
    run_in(tempfile::tempdir().unwrap().path(), plan, supply)
}

fn note(cell: &Cell, kind: NoteKind) -> &str {
    let note = cell.notes.iter().find(|note| note.kind == kind);
    note.map_or_else(|| panic!("no {kind:?} in {:?}", cell.notes), |note| note.text.as_str())
}

#[test]
fn the_same_seed_gives_the_same_cells_byte_for_byte() {
    let tests = format!(
        "{READS}\n{WRITES}\n[[tests]]\nname = \"Mix\"\nworkload = \"file-server\"\nqueue_depths = [4]"
    );
    let plan = plan(&format!("{ONE}\n{}\n{}", array("raid5"), array("raid10")), &tests);
    let text = |_| export::json(&run(&plan, &mut MadeUp::new())).unwrap();
    let [first, second] = [0, 1].map(text);
    assert!(first == second);
    let other = Plan { seed: 8, ..plan.clone() };
    assert!(export::json(&run(&other, &mut MadeUp::new())).unwrap() != first);
}

#[test]
fn figures_are_those_of_the_drives() {
    let levels = ["raid0", "raid1", "raid5", "raid6"].map(array).join("\n");
    let plan = plan(&format!("{ONE}\n{levels}"), &format!("{READS}\n{WRITES}"));
    let mut supply = MadeUp::new();
    let filled = Rc::clone(&supply.filled);
    let run = run(&plan, &mut supply);
    assert_eq!(run.cells.len(), run.cells_planned);
    assert!(run.cells.iter().all(Cell::is_valid), "{:?}", run.cells);
    assert_eq!(filled.borrow().len(), 1 + 4 * 4, "every drive is written before it is read");

    let rate = |subject: usize, cell: usize| {
        run.cells[subject * 3 + cell].ios_per_second().unwrap().round() as u64
    };
    // 100 µs for a read, everywhere; the queue multiplies it, for these drives know no limit.
    for subject in 0..5 {
        assert_eq!((rate(subject, 0), rate(subject, 1)), (10_000, 80_000));
    }
    // A write: one step, but old data and parity are read first where there is parity.
    assert_eq!(
        [0, 1, 2, 3, 4].map(|subject| rate(subject, 2)),
        [10_000, 10_000, 10_000, 5_000, 5_000]
    );
    let writes = |subject: usize| {
        let cell = &run.cells[subject * 3 + 2];
        let traffic = cell.drive_traffic.unwrap();
        let per_io = |ios: u64| (ios as f64 / cell.writes.ios as f64).round() as u64;
        (per_io(traffic.read_ios), per_io(traffic.write_ios))
    };
    // RAID 6 of four: one read of the other data chunk is less than three of old content.
    assert_eq!([0, 1, 2, 3, 4].map(writes), [(0, 1), (0, 1), (0, 4), (2, 2), (1, 3)]);
    assert_eq!(run.cells[0].cpu_ns, None, "nobody measured it");
    assert_eq!(run.subjects[3].parity_members, 1);
    assert_eq!(run.subjects[2].copies, 4);
    assert!(run.subjects[3].capacity_bytes.unwrap() < 3 * (16 << 20));
}

#[test]
fn what_cannot_be_measured_says_why_and_the_rest_goes_on() {
    let subjects = format!(
        "{}\n[[subjects]]\nname = \"Remote\"\ntarget = \"nbd://far/away\"\n{ONE}",
        array("raid0")
    );
    let tests = format!(
        "[[tests]]\nname = \"Sectors\"\nworkload = \"random-read\"\nblock_sizes = [\"512\", \"4K\"]\n\
         [[tests]]\nname = \"Large\"\nworkload = \"sequential-write\"\nblock_sizes = [\"17M\"]\nworking_set = \"34M\"\ntime = \"10ms\"\nramp = \"0s\"\n{READS}"
    );
    let plan = plan(&subjects, &tests);
    let run = run(&plan, &mut MadeUp::new());
    assert_eq!(run.cells.len(), run.cells_planned);
    // The drives take blocks of 4 KiB.
    assert!(note(&run.cells[0], NoteKind::NotMeasured).contains("512 bytes is no multiple"));
    assert!(run.cells[1].is_valid());
    for remote in &run.cells[5..10] {
        assert!(note(remote, NoteKind::NotMeasured).contains("nbd://far/away"));
    }
    // One drive of 16 MiB has no room for a block of 17 MiB.
    assert!(note(&run.cells[12], NoteKind::NotMeasured).contains("does not fit"));
    assert!(run.cells[13].is_valid() && run.cells[14].is_valid());
}

#[test]
fn a_disk_that_is_full_while_it_is_filled_costs_its_subjects_only() {
    let plan = plan(&format!("{}\n{ONE}", array("raid0")), READS);
    let mut supply = MadeUp::new();
    let full = Fault::new(Effect::Fail(ErrorKind::Full)).on(Operation::Write).after(5);
    supply.faults.push((2, full));
    let run = run(&plan, &mut supply);
    for cell in &run.cells[..2] {
        assert!(note(cell, NoteKind::NotMeasured).contains("no space left"));
    }
    assert!(matches!(supply.abandoned[..], [DriveSource::Scratch { index: 2, .. }]));
    assert!(run.cells[2..].iter().all(Cell::is_valid));
}

#[test]
fn a_drive_that_vanishes_is_told_and_given_up() {
    let plan = plan(&format!("{ONE}\n{}", array("raid5")), READS);
    let mut supply = MadeUp::new();
    // After the 16 writes that fill it, its flush, and some reads.
    let gone = |after| Fault::new(Effect::Fail(ErrorKind::Gone)).after(after);
    supply.faults.push((0, gone(150)));
    let run = run(&plan, &mut supply);
    assert!(note(&run.cells[0], NoteKind::Errors).contains("drive gone"));
    assert!(run.cells[0].reads.ios > 0, "what was measured is kept");
    assert!(note(&run.cells[1], NoteKind::NotMeasured).contains("drive gone"));
    // RAID 5, which asks each drive less, answers without it; but that is a degraded array then.
    assert!(run.cells[2].is_valid());
    assert!(note(&run.cells[3], NoteKind::Errors).starts_with("member 0 failed: "));
    assert!(run.cells[3].reads.ios > 0);
}

#[test]
fn a_drive_that_hangs_is_not_waited_for() {
    let plan = plan(&format!("{ONE}\n{}", array("raid1")), READS);
    let mut supply = MadeUp::new();
    supply.faults.push((0, Fault::new(Effect::Hang).on(Operation::Read).after(120).times(1)));
    let run = run(&plan, &mut supply);
    assert_eq!(note(&run.cells[0], NoteKind::Errors), "1 I/Os were never answered");
    assert!(note(&run.cells[1], NoteKind::NotMeasured).contains("unanswered"));
    assert_eq!(run.cells.len(), run.cells_planned);
}

#[test]
fn a_drive_that_hangs_while_it_is_filled_or_made_a_member_costs_its_subject_only() {
    let plan = plan(&format!("{}\n{}\n{ONE}", array("raid1"), array("raid0")), READS);
    // 16 writes fill a drive, a flush follows; the next write is a superblock.
    let hangs = |operation, after| Fault::new(Effect::Hang).on(operation).after(after).times(1);
    for fault in
        [hangs(Operation::Write, 5), hangs(Operation::Flush, 0), hangs(Operation::Write, 16)]
    {
        let mut supply = MadeUp::new();
        supply.faults.push((3, fault));
        let run = run(&plan, &mut supply);
        for cell in &run.cells[..4] {
            assert!(note(cell, NoteKind::NotMeasured).contains("waited 60s for "));
        }
        assert!(run.cells[4..].iter().all(Cell::is_valid));
    }
}

#[test]
fn a_stopped_run_keeps_its_cells_and_the_part_of_one() {
    let tests = format!("{READS}\ntime = \"1s\"");
    let plan = plan(&format!("{ONE}\n{}", array("raid0")), &tests);
    let mut supply = MadeUp::new();
    // The second cell is measured from 1.02 to 2.02 s, and a little later for the filling.
    supply.stop_after = Some(Duration::from_millis(1500));
    let run = run(&plan, &mut supply);
    assert_eq!(run.cells.len(), 2);
    assert!(run.cells[0].is_valid());
    assert!(note(&run.cells[1], NoteKind::Interrupted).starts_with("stopped after "));
    assert!(run.cells[1].reads.ios > 0 && !run.cells[1].is_valid());
    let analysis = analysis::analyse(&run);
    let caution = "The run is not complete: 2 of 4 cells were measured.";
    assert!(analysis.cautions.iter().any(|text| text == caution), "{:?}", analysis.cautions);
    let folder = tempfile::tempdir().unwrap();
    write_outputs(folder.path(), &run, &analysis).unwrap();
    assert!(folder.path().join(REPORT_NAME).is_file());
}

#[test]
fn a_run_that_dies_keeps_the_cells_it_had() {
    let plan = plan(&format!("{ONE}\n{}", array("raid0")), READS);
    let directory = tempfile::tempdir().unwrap();
    let mut supply = MadeUp { dies_in: Some(2), ..MadeUp::new() };
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run_in(directory.path(), &plan, &mut supply);
    }));
    assert!(died.is_err());
    let run = store::load(directory.path()).unwrap();
    assert_eq!((run.cells.len(), run.finished_unix_s), (2, None));
    assert!(run.cells.iter().all(Cell::is_valid));
    assert!(run.subjects[0].capacity_bytes.is_some(), "the head is up to date too");
}

#[test]
fn what_may_not_be_written_is_not_filled_but_told() {
    let given = "[[subjects]]\nname = \"Given\"\ntarget = \"given\"";
    let mut supply = MadeUp::new();
    // A write would be an error.
    supply.faults.push((99, Fault::new(Effect::Fail(ErrorKind::Media)).on(Operation::Write)));
    let reads = run(&plan(given, READS), &mut supply);
    assert!(reads.cells[0].is_valid());
    assert_eq!(note(&reads.cells[0], NoteKind::Unwritten), "parts of it were never written");
    let writes = run(&plan(given, &format!("{READS}\n{WRITES}")), &mut MadeUp::new());
    assert!(writes.cells.iter().all(|cell| cell.is_valid() && cell.notes.is_empty()));
}

#[test]
fn a_plan_is_refused_before_anything_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    let text = format!(
        "title = \"x\"\n[[subjects]]\nname = \"a\"\ndrives = [\"{}\"]\n{WRITES}",
        victim.display()
    );
    let source = PlanSource { name: "x.toml".into(), text };
    let out = folder.path().join("run");
    let options = RunOptions { out: Some(out.clone()), ..RunOptions::default() };
    let error = run_plan(&source, &options).unwrap_err();
    assert!(matches!(&error, LabError::NotConfirmed { paths } if paths.len() == 1), "{error}");
    assert!(!out.exists());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    let missing = PlanSource::read(&folder.path().join("missing.toml")).unwrap_err();
    assert!(missing.to_string().contains("hint: "), "{missing}");
}

/// A run that ended early is gone on with: what was measured stays as it was, and only that of the
/// same plan.
#[test]
fn an_interrupted_run_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "title = \"Files\"\nscratch = \"{}\"\n[defaults]\ntime = \"50ms\"\nramp = \"10ms\"\n\
         working_set = \"16M\"\ndrives = {{ count = 3, size = \"20M\" }}\n{ONE}\n{}\n{READS}\n{WRITES}",
        folder.path().join("scratch").display(),
        array("raid5")
    );
    let source = PlanSource { name: "files.toml".into(), text };
    let at = |name: &str, resume| RunOptions {
        out: Some(folder.path().join(name)),
        resume,
        ..RunOptions::default()
    };
    let whole = run_plan(&source, &at("whole", false)).unwrap().run;
    let kept = whole.cells[..1].to_vec();
    let part = Run { cells: kept.clone(), finished_unix_s: None, ..whole };
    drop(Store::create(&folder.path().join("part"), &part).unwrap());
    let resumed = run_plan(&source, &at("part", true)).unwrap().run;
    assert!(resumed.is_complete() && resumed.cells.len() == part.cells_planned);
    assert_eq!(resumed.cells[..1], kept, "measured once");
    assert_eq!(store::load(&folder.path().join("part")).unwrap(), resumed);
    let other = PlanSource { text: source.text.replace("Files", "Others"), ..source.clone() };
    let refused = run_plan(&other, &at("part", true)).unwrap_err();
    assert!(matches!(refused, LabError::NothingToResume { .. }), "{refused}");
    let nowhere = run_plan(&source, &at("nowhere", true)).unwrap_err();
    assert!(matches!(nowhere, LabError::NothingToResume { .. }), "{nowhere}");
}

#[test]
fn files_are_made_measured_reported_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("scratch");
    let out = folder.path().join("run");
    let text = format!(
        "title = \"Files\"\nscratch = \"{}\"\n[defaults]\ntime = \"50ms\"\nramp = \"10ms\"\n\
         working_set = \"16M\"\ndrives = {{ count = 3, size = \"20M\" }}\n{ONE}\n{}\n{READS}\n{WRITES}",
        scratch.display(),
        array("raid5")
    );
    let source = PlanSource { name: "files.toml".into(), text };
    let options = RunOptions { out: Some(out.clone()), ..RunOptions::default() };
    let outcome = run_plan(&source, &options).unwrap();
    assert!(!scratch.exists());
    assert_eq!(outcome.directory, out);
    assert!(outcome.run.is_complete());
    assert_eq!(store::load(&out).unwrap(), outcome.run);
    for name in [REPORT_NAME, "run.json", "run.csv", store::FILE_NAME] {
        assert!(out.join(name).is_file(), "{name}");
    }
    for cell in &outcome.run.cells {
        assert!(cell.reads.ios + cell.writes.ios > 0, "{:?}", cell.notes);
        assert!(cell.cpu_ns.is_some_and(|cpu_ns| cpu_ns > 0));
    }
    let drives = &outcome.run.conditions.drives;
    assert!(drives.iter().all(|drive| drive.direct_io.is_some() && drive.size_bytes == 20 << 20));
    // The folder of a run is never used twice.
    let again = run_plan(&source, &options).unwrap_err();
    assert!(matches!(again, LabError::Store(StoreError::Occupied(_))), "{again}");
}

#[test]
fn given_files_are_measured_once_named_and_one_file_is_one_member() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, link] = ["first", "second", "link"].map(|name| folder.path().join(name));
    for path in [&first, &second] {
        drive::create_file(path, 16 << 20).unwrap();
    }
    std::os::unix::fs::symlink(&first, &link).unwrap();
    let drives = |paths: [&Path; 2]| format!("drives = {paths:?}");
    let text = format!(
        "title = \"Given\"\n[defaults]\ntime = \"20ms\"\nramp = \"0s\"\nworking_set = \"8M\"\n\
         {}\n{}\n[[subjects]]\nname = \"Twice\"\nlevel = \"raid1\"\n{}\n\
         [[subjects]]\nname = \"Again\"\nlevel = \"raid1\"\n{}\n{READS}",
        array("raid0"),
        drives([&first, &second]),
        drives([&first, &link]),
        drives([&second, &first]),
    );
    let source = PlanSource { name: "given.toml".into(), text };
    let options = RunOptions {
        out: Some(folder.path().join("run")),
        destroy: [&first, &second, &link].map(|path| path.display().to_string()).into(),
        ..RunOptions::default()
    };
    let run = run_plan(&source, &options).unwrap().run;
    assert!(note(&run.cells[2], NoteKind::NotMeasured).contains("are the same drive"));
    for cell in [0, 1, 4, 5] {
        assert!(run.cells[cell].reads.ios > 0, "{:?}", run.cells[cell].notes);
    }
    // No array is left on them.
    let superblock = &fs::read(&first).unwrap()[4096..8192];
    assert!(superblock.iter().all(|byte| *byte == 0));
}
