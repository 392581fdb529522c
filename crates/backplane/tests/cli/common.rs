//! A folder to work in, and the binary run there.

use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sha2::{Digest, Sha256};

pub const BACKPLANE: &str = env!("CARGO_BIN_EXE_backplane");

/// Large enough for metadata and a few stripes.
pub const DRIVE: &str = "8M";

/// A folder of its own for each test.
pub struct Bench {
    folder: tempfile::TempDir,
}

/// What a run of the binary gave.
pub struct Ran {
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ran { status, stdout, stderr } = self;
        write!(f, "status {status}\n{}\n{stderr}", String::from_utf8_lossy(stdout))
    }
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap()
    }

    /// Holds for everything the command was asked: it was done, and all is well.
    #[track_caller]
    pub fn well(self) -> Self {
        assert_eq!(self.status, 0, "{self:#?}");
        self
    }

    /// It was not done: exit status 2, nothing but an error on standard error, with a hint.
    #[track_caller]
    pub fn refused(self, fact: &str) -> Self {
        assert_eq!(self.status, 2, "{self:#?}");
        assert!(self.stderr.starts_with("error: "), "{self:#?}");
        assert!(self.stderr.contains(fact), "no {fact:?} in {self:#?}");
        assert!(self.stderr.contains("\nhint: "), "{self:#?}");
        self
    }
}

impl Bench {
    pub fn new() -> Self {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BACKPLANE);
        command.args(words).current_dir(self.folder.path());
        // Sockets of its own, whoever runs the tests and whatever else is served here.
        command.env("BACKPLANE_RUNTIME_DIR", self.path("run"));
        command
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        self.output(self.command(words))
    }

    /// The same with the words of one line.
    pub fn line(&self, line: &str) -> Ran {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub fn output(&self, mut command: Command) -> Ran {
        let output = command.stdin(Stdio::null()).output().unwrap();
        Ran {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn spawn(&self, line: &str) -> Child {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = self.command(&words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Drives `d0`, `d1`, … of [`DRIVE`].
    pub fn drives(&self, count: usize) -> String {
        let names: Vec<_> = (0..count).map(|index| format!("d{index}")).collect();
        let names = names.join(" ");
        self.line(&format!("drive create {names} --size {DRIVE}")).well();
        names
    }

    pub fn poke(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    pub fn peek(&self, name: &str, offset: u64, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        File::open(self.path(name)).unwrap().read_exact_at(&mut buffer, offset).unwrap();
        buffer
    }

    /// What all files hold, to show that nothing was written.
    pub fn snapshot(&self) -> Vec<(PathBuf, u64)> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        let hash = |path: &PathBuf| {
            let mut hasher = DefaultHasher::new();
            hasher.write(&fs::read(path).unwrap());
            hasher.finish()
        };
        files.into_iter().map(|path| (path.clone(), hash(&path))).collect()
    }
}

pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The folder of arrays that a real kernel made, beside the checkout or where
/// `BACKPLANE_CORPUS` says.
pub fn corpus() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/md");
    let named = std::env::var_os("BACKPLANE_CORPUS").map(PathBuf::from);
    let folder = named.unwrap_or(beside);
    folder.join("index.toml").exists().then_some(folder)
}

/// Unpacks the members of a set into `to`, with `prefix` before their names.
pub fn unpack(corpus: &Path, set: &str, to: &Path, prefix: &str) {
    let packed = File::open(corpus.join(set).join("members.tar.zst")).unwrap();
    let mut plain = Vec::new();
    let mut stream = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
    std::io::Read::read_to_end(&mut stream, &mut plain).unwrap();
    for file in tar::Archive::new(&plain[..]).entries().unwrap() {
        let mut file = file.unwrap();
        let path = file.path().unwrap().into_owned();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut out = File::create(to.join(format!("{prefix}{name}"))).unwrap();
        std::io::copy(&mut file, &mut out).unwrap();
    }
}
