//! Requests to a serving process and its answers: one JSON document per line.

use std::fmt;
use std::path::PathBuf;

use array::Returned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arrays::job::Job;
use crate::arrays::state::ArrayState;
use crate::error::Parts;

/// The version of the protocol; it goes up when a reader of the old one would fail.
pub const SCHEMA: u32 = 1;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What to do.
    #[serde(flatten)]
    pub act: Act,
}

impl From<Act> for Request {
    fn from(act: Act) -> Self {
        Request { schema: SCHEMA, act }
    }
}

/// What can be asked. An array is given by its name, with or without its host, or by its UUID; a
/// member by its path, its serial number or its slot (`slot:1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the same words are explained above and in docs/control.md")]
pub enum Act {
    /// Which arrays are served.
    List,
    /// One array whole.
    Show { array: String },
    /// The same when no background job is under way any more, with progress until then.
    Follow { array: String },
    /// Compare all copies, or data and parity.
    Check { array: String },
    /// Compare them, and mend.
    Repair {
        array: String,
        /// Where nobody can know what is wrong, believe the data.
        #[serde(default)]
        trust_data: bool,
        /// A folder that first gets every content there is to choose from.
        #[serde(default)]
        save: Option<PathBuf>,
    },
    /// End a check or repair.
    Cancel { array: String },
    /// Take a member out of use.
    Fail { array: String, member: String },
    /// Take a member, or a spare, out of the array.
    Remove { array: String, member: String },
    /// Give the array another drive: a spare, or the member of an empty slot.
    Add {
        array: String,
        drive: PathBuf,
        /// What on it may be lost, by name.
        #[serde(default)]
        yes_destroy: Vec<String>,
    },
    /// Fill a drive to take over from a member.
    Replace {
        array: String,
        member: String,
        drive: PathBuf,
        /// What on the drive may be lost, by name.
        #[serde(default)]
        yes_destroy: Vec<String>,
    },
    /// End the service of the whole process, when what is under way is done.
    Stop {
        array: String,
        /// Although other arrays are served too.
        #[serde(default)]
        all: bool,
    },
}

/// An array in the answer to [`Act::List`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name as shown.
    pub title: String,
    /// Its name with the host that made it.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
}

impl Listed {
    /// Whether `word` means this array.
    pub fn is_called(&self, word: &str) -> bool {
        let hex = |text: &str| text.replace([':', '-'], "").to_ascii_lowercase();
        (!word.is_empty() && word == self.name)
            || word == self.title
            || hex(word) == hex(&self.uuid)
    }
}

/// The answer to [`Act::List`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// The process that serves.
    pub pid: u32,
    /// What it serves, and what that stands on.
    pub arrays: Vec<Listed>,
}

/// What a drive that was added became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "kebab-case")]
pub enum Added {
    /// The member it was, which gets what it missed.
    Returned {
        /// Its slot.
        slot: usize,
        /// Chunks of the bitmap to copy.
        chunks_to_copy: u64,
        /// Chunks of the bitmap, in all.
        chunks: u64,
    },
    /// A new one, which is filled whole.
    New {
        /// It stands by: no slot is empty.
        spare: bool,
        /// Why it is not taken for a member that came back.
        why: String,
    },
}

impl From<Returned> for Added {
    fn from(returned: Returned) -> Self {
        let Returned { slot, dirty_chunks: chunks_to_copy, chunks } = returned;
        Added::Returned { slot, chunks_to_copy, chunks }
    }
}

impl fmt::Display for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Added::Returned { slot, chunks_to_copy, chunks } => {
                write!(f, "re-added to slot:{slot}: {chunks_to_copy} of {chunks} chunks to copy")
            }
            Added::New { spare: true, why } => write!(f, "added as a spare: {why}"),
            Added::New { spare: false, why } => write!(f, "added as a new member: {why}"),
        }
    }
}

/// The answer to [`Act::Add`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AfterAdd {
    /// The array after it.
    #[serde(flatten)]
    pub state: ArrayState,
    /// What the drive became.
    pub added: Added,
}

/// Progress of an act that waits for a background job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// The array.
    pub title: String,
    /// Its job.
    pub job: Job,
}

/// One line of an answer: any number of progress, then one of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// How far it is.
    Progress(Value),
    /// It is done.
    Done(Value),
    /// It is not done.
    Error(Parts),
}

impl Answer {
    /// Reads a line.
    pub fn read(line: &str) -> Result<Answer, ProtocolError> {
        #[derive(Deserialize)]
        struct Line {
            schema: u32,
            #[serde(flatten)]
            answer: Answer,
        }
        let line: Line = serde_json::from_str(line).map_err(ProtocolError::Answer)?;
        if line.schema == SCHEMA {
            Ok(line.answer)
        } else {
            Err(ProtocolError::Schema { schema: line.schema })
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, value) = match self {
            Answer::Progress(value) => ("progress", value.clone()),
            Answer::Done(value) => ("done", value.clone()),
            Answer::Error(parts) => ("error", json!(parts)),
        };
        write!(f, "{}", json!({ "schema": SCHEMA, word: value }))
    }
}

/// Reads a request.
pub fn request(line: &[u8]) -> Result<Act, ProtocolError> {
    let request: Request = serde_json::from_slice(line).map_err(ProtocolError::Request)?;
    if request.schema == SCHEMA {
        Ok(request.act)
    } else {
        Err(ProtocolError::Schema { schema: request.schema })
    }
}

/// What is no line of this protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// No request.
    #[error("this is no request: {0}\nhint: docs/control.md describes the protocol")]
    Request(#[source] serde_json::Error),
    /// No answer.
    #[error("the serving process gave no answer that can be read: {0}")]
    Answer(#[source] serde_json::Error),
    /// Another version.
    #[error(
        "schema {schema} is not spoken here, {SCHEMA} is\n\
         hint: use the same version of backplane for serving and for asking"
    )]
    Schema {
        /// As received.
        schema: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let act = Act::Fail { array: "data".into(), member: "slot:1".into() };
        let line = serde_json::to_string(&Request::from(act.clone())).unwrap();
        assert_eq!(line, r#"{"schema":1,"act":"fail","array":"data","member":"slot:1"}"#);
        assert_eq!(request(line.as_bytes()).unwrap(), act);
        let stop = request(br#"{"schema":1,"act":"stop","array":"data"}"#).unwrap();
        assert_eq!(stop, Act::Stop { array: "data".into(), all: false });
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let table = [
            "",
            "[]",
            "{}",
            r#"{"schema":1}"#,
            r#"{"schema":1,"act":"erase"}"#,
            r#"{"schema":1,"act":"fail","array":"data"}"#,
            r#"{"schema":2,"act":"list"}"#,
            r#"{"schema":1,"act":"list"} {"#,
            "{\"schema\":1,\"act\":\"\u{0}\"}",
        ];
        for line in table {
            assert!(request(line.as_bytes()).is_err(), "{line}");
        }
        let deep = "[".repeat(60_000);
        assert!(request(deep.as_bytes()).is_err(), "deep nests end early");
        assert!(request(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let parts = Parts { fact: "no".into(), details: vec![], hints: vec!["ask again".into()] };
        for answer in [Answer::Progress(json!({"done": 1})), Answer::Error(parts)] {
            assert_eq!(Answer::read(&answer.to_string()).unwrap(), answer);
        }
        assert!(Answer::read(r#"{"schema":7,"done":null}"#).is_err());
    }
}
