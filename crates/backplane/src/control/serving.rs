//! Answering: what administrators ask of the arrays of this process, done on them.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use array::Array;
use drive::{DriveError, FileDrive};
use serde::Serialize;
use serde_json::{Value, json};
use target::control::{Acts, NobodyListens, Refused, Replies};
use target::nbd::server::Server;
use world::{Notify, World, race};

use super::members::Members;
use super::protocol::{self, Act, AfterAdd, Answer, JobProgress, List, Listed};
use super::scrub;
use crate::arrays::job::Job;
use crate::arrays::state::{ArrayState, Inventory};
use crate::error::{Failure, Parts};
use crate::scene::{ChooseError, Found, Scene};

/// How often a peer hears that its act is still under way.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// How often a peer that follows a job hears how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Why an act is not done.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Nothing changes in an array that is only read.
    #[error(
        "{array} is served read-only: nothing about it changes\n\
         hint: stop it, and serve it without --read-only"
    )]
    ReadOnly {
        /// The array.
        array: String,
    },
    /// No such member.
    #[error(
        "{array} has no member {member:?}\nmembers: {}\n\
         hint: name one by its drive, its serial number or its slot",
        .members.join(", ")
    )]
    NoMember {
        /// The array.
        array: String,
        /// As given.
        member: String,
        /// What there is.
        members: Vec<String>,
    },
    /// Nobody is in that slot.
    #[error("nobody is in slot {slot} of {array}\nhint: `array show {array}` shows who is where")]
    EmptySlot {
        /// The array.
        array: String,
        /// The slot.
        slot: usize,
    },
    /// The slot's member serves no more.
    #[error(
        "nobody serves in slot {slot} of {array}: there is nothing to replace\n\
         hint: `array remove {array} slot:{slot}`, then `array add {array} DRIVE`"
    )]
    NothingToReplace {
        /// The array.
        array: String,
        /// The slot.
        slot: usize,
    },
    /// The array's data would be lost with it.
    #[error(
        "{array} can't do without slot {slot} ({drive}): data would be lost\n\
         hint: bring the other members back first; `array show {array}` shows which are missing"
    )]
    Needed {
        /// The array.
        array: String,
        /// The slot.
        slot: usize,
        /// Its drive.
        drive: String,
        /// What the engine said beyond that.
        #[source]
        source: Option<DriveError>,
    },
    /// Other arrays would lose their service.
    #[error(
        "this process serves other arrays too: {}\nhint: stop all of them with --all",
        .others.join(", ")
    )]
    Others {
        /// Their names.
        others: Vec<String>,
    },
    /// The end of the service went wrong.
    #[error("the service has ended, not well: {fact}")]
    Stop {
        /// What went wrong.
        fact: String,
    },
    /// No check or repair is under way.
    #[error("no check or repair of {array} is under way\nhint: `array check {array}` begins one")]
    NoScrub {
        /// The array.
        array: String,
    },
    /// What would be overwritten can't be kept.
    #[error(
        "{} can't be kept: {source}\nhint: nothing was changed; name a new folder with room",
        .path.display()
    )]
    Save {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// More was found than is listed.
    #[error(
        "{left} places are not listed, and can't be kept\n\
         hint: repair without --trust-data first, which mends all that is known to be wrong"
    )]
    NotAllListed {
        /// How many.
        left: u64,
    },
    /// It is ending already.
    #[error("the service is ending\nhint: serve the array again")]
    Ending,
}

/// The arrays of this process, and its end.
pub struct Serving {
    world: World,
    scene: Rc<Scene>,
    /// The drives that are open: nobody else, this process included, can open them again.
    held: RefCell<Vec<Rc<FileDrive>>>,
    server: Server,
    ending: Cell<bool>,
    /// How the service ended, once it has.
    ended: RefCell<Option<Result<(), String>>>,
    end: Notify,
}

impl Serving {
    /// For the arrays of `scene` on the drives `held`, which `server` serves.
    pub fn new(
        world: &World,
        scene: Rc<Scene>,
        held: Vec<Rc<FileDrive>>,
        server: Server,
    ) -> Rc<Self> {
        Rc::new(Serving {
            world: world.clone(),
            scene,
            held: RefCell::new(held),
            server,
            ending: Cell::new(false),
            ended: RefCell::default(),
            end: Notify::default(),
        })
    }

    /// Ends the service: nothing new is begun.
    pub fn stop(&self) {
        self.ending.set(true);
        self.server.stop();
    }

    /// Tells those who asked for the end how it went.
    pub fn ended(&self, how: Result<(), String>) {
        *self.ended.borrow_mut() = Some(how);
        self.end.notify_all();
    }

    async fn carry_out(&self, act: Act, replies: &Replies) -> Result<Value, Failure> {
        if self.ending.get() {
            return Err(ActError::Ending.into());
        }
        match act {
            Act::List => {
                let arrays = self.scene.found().iter().map(Found::listed).collect();
                document(&List { pid: std::process::id(), arrays })
            }
            Act::Show { array } => self.show(&array),
            Act::Follow { array } => {
                self.follow(&array, replies).await?;
                self.show(&array)
            }
            Act::Check { array } => {
                let found = self.found(&array)?;
                found.array().map_err(|error| Parts::of(error))?.start_check()?;
                self.show(&array)
            }
            Act::Repair { array, trust_data, save } => {
                let found = self.found(&array)?;
                let open = writable(&found)?;
                if let Some(folder) = save {
                    scrub::save(open, &folder).await?;
                }
                open.start_repair(trust_data)?;
                self.show(&array)
            }
            Act::Cancel { array } => {
                let found = self.found(&array)?;
                if !found.array().map_err(|error| Parts::of(error))?.stop_scrub() {
                    return Err(ActError::NoScrub { array: found.title() }.into());
                }
                self.show(&array)
            }
            Act::Fail { array, member } => {
                self.change(&array, async |members| Ok((None, members.fail(&member).await?)))
                    .await?;
                self.show(&array)
            }
            Act::Remove { array, member } => {
                self.change(&array, async |members| Ok((None, members.remove(&member).await?)))
                    .await?;
                self.show(&array)
            }
            Act::Add { array, drive, yes_destroy } => {
                let add = async |members: &Members<'_>| {
                    let (drive, added) = members.add(&drive, &yes_destroy).await?;
                    Ok((Some(drive), added))
                };
                let added = self.change(&array, add).await?;
                document(&AfterAdd { state: self.state(&array)?, added })
            }
            Act::Replace { array, member, drive, yes_destroy } => {
                let replace = async |members: &Members<'_>| {
                    Ok((Some(members.replace(&member, &drive, &yes_destroy).await?), ()))
                };
                self.change(&array, replace).await?;
                self.show(&array)
            }
            Act::Stop { array, all } => self.end(&array, all).await,
        }
    }

    fn found(&self, name: &str) -> Result<Found<'_>, ChooseError> {
        self.scene.choose(Some(name))
    }

    fn show(&self, name: &str) -> Result<Value, Failure> {
        document(&self.state(name)?)
    }

    fn state(&self, name: &str) -> Result<ArrayState, Failure> {
        let found = self.found(name)?;
        let inventory = Inventory::read();
        Ok(match found.array() {
            Ok(array) => ArrayState::in_service(&found, &array.status(), &inventory),
            Err(_) => ArrayState::at_rest(&found, &inventory),
        })
    }

    /// Tells how the array's jobs go on until there are none, or nobody listens.
    async fn follow(&self, name: &str, replies: &Replies) -> Result<(), Failure> {
        let found = self.found(name)?;
        let array = found.array().map_err(|error| Parts::of(error))?;
        // Between two jobs, and before the first, there is none to tell of and more to come.
        while race(array.background_done(), self.world.sleep(PROGRESS_EVERY)).await.is_err() {
            if self.ending.get() {
                return Err(ActError::Ending.into());
            }
            let Some(job) = array.status().job else { continue };
            let progress = JobProgress { title: found.title(), job: Job::from(&job) };
            replies.send(&Answer::Progress(document(&progress)?).to_string()).await?;
        }
        Ok(())
    }

    /// Does something to the members of an array; a drive that it opened stays open.
    async fn change<T>(
        &self,
        name: &str,
        act: impl AsyncFnOnce(&Members<'_>) -> Result<(Option<Rc<FileDrive>>, T), Failure>,
    ) -> Result<T, Failure> {
        let found = self.found(name)?;
        let array = writable(&found)?;
        let held = self.held.borrow().clone();
        let members = Members { world: &self.world, found, array, held: &held };
        let (drive, done) = act(&members).await?;
        drive.into_iter().for_each(|drive| self.hold(drive));
        Ok(done)
    }

    /// Remembers a drive that this process has open.
    fn hold(&self, drive: Rc<FileDrive>) {
        let mut held = self.held.borrow_mut();
        if !held.iter().any(|known| Rc::ptr_eq(known, &drive)) {
            held.push(drive);
        }
    }

    async fn end(&self, name: &str, all: bool) -> Result<Value, Failure> {
        let asked = self.found(name)?.listed();
        let others = self.scene.outer().into_iter().map(|found| found.listed());
        let others: Vec<_> =
            others.filter(|other| *other != asked).map(|other| other.title).collect();
        if !others.is_empty() && !all {
            return Err(ActError::Others { others }.into());
        }
        self.stop();
        while self.ended.borrow().is_none() {
            self.end.wait().await;
        }
        match self.ended.borrow().clone() {
            Some(Err(fact)) => Err(ActError::Stop { fact }.into()),
            _ => document(&json!({ "stopped": asked })),
        }
    }

    async fn answer(&self, request: &[u8], replies: &Replies) -> Result<(), NobodyListens> {
        let act = async {
            let act = protocol::request(request)?;
            self.carry_out(act, replies).await
        };
        let mut act = std::pin::pin!(act);
        let result = loop {
            match race(&mut act, self.world.sleep(SIGN_OF_LIFE)).await {
                Ok(result) => break result,
                // It speaks for itself.
                Err(()) if replies.sending() => {}
                // Who has gone does not hear it; the act is carried on to its end all the same.
                Err(()) => drop(replies.send(&Answer::Progress(Value::Null).to_string()).await),
            }
        };
        let answer = match result {
            Ok(done) => Answer::Done(done),
            Err(error) => Answer::Error(Parts::of(error.as_ref())),
        };
        replies.send(&answer.to_string()).await
    }
}

/// What connections hold: the arrays live as long as one of them is answered.
pub struct Door(pub Rc<Serving>);

impl Acts for Door {
    fn act(&self, request: Vec<u8>, replies: Replies) -> Pin<Box<dyn Future<Output = ()>>> {
        let serving = Rc::clone(&self.0);
        Box::pin(async move {
            // Who asked has gone: nobody is left to tell.
            let _ = serving.answer(&request, &replies).await;
        })
    }

    fn refuse(&self, why: &Refused) -> String {
        Answer::Error(Parts::of(why)).to_string()
    }
}

fn document<T: Serialize>(value: &T) -> Result<Value, Failure> {
    Ok(serde_json::to_value(value)?)
}

/// The open array, if it may be changed.
fn writable<'a>(found: &Found<'a>) -> Result<&'a Array, Failure> {
    let array = found.array().map_err(|error| Parts::of(error))?;
    if array.status().read_only {
        return Err(ActError::ReadOnly { array: found.title() }.into());
    }
    Ok(array)
}

impl Found<'_> {
    /// As it is called, for those who look for it.
    pub fn listed(&self) -> Listed {
        Listed {
            title: self.title(),
            name: self.view().name.clone(),
            uuid: self.uuid().to_string(),
        }
    }
}
