//! A node: a thread that owns the RawNode, steps what is in the inbox, sends and applies; and a thread that writes all
//! that waits with one sync, sends the messages that had to wait for it, and reports back (`advance_append_async`,
//! `on_persist_ready`).

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use raft::eraftpb::{ConfState, Entry, HardState, Message, MessageType};
use raft::storage::MemStorage;
use raft::{Config, RawNode, StateRole};
use raft_engine::{LogBatch, MessageExt};

use super::disk::Log;
use super::link::Links;
use super::machine::{Machine, State};

/// What waits for a node's turn. Its first failure stops the run.
#[derive(Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    proposals: Vec<Vec<u8>>,
    persisted: u64,
    campaign: bool,
    failed: Option<String>,
}

impl Inbox {
    fn with(&self, f: impl FnOnce(&mut Waiting)) {
        f(&mut self.waiting.lock().unwrap());
        self.wake.notify_one();
    }
    pub fn messages(&self, mut more: Vec<Message>) {
        self.with(|w| w.messages.append(&mut more));
    }
    pub fn propose(&self, mut values: Vec<Vec<u8>>) {
        self.with(|w| w.proposals.append(&mut values));
    }
    pub fn campaign(&self) {
        self.with(|w| w.campaign = true);
    }
    pub fn fail(&self, why: String) {
        self.with(|w| _ = w.failed.get_or_insert(why));
    }
    pub fn failure(&self) -> Option<String> {
        self.waiting.lock().unwrap().failed.clone()
    }

    /// Takes all that waits, or nothing when the next tick is due.
    fn take(&self, due: Instant) -> Waiting {
        let mut w = self.waiting.lock().unwrap();
        loop {
            let empty = w.messages.is_empty() && w.proposals.is_empty() && w.persisted == 0 && !w.campaign;
            let left = due.saturating_duration_since(Instant::now());
            if !empty || left.is_zero() {
                let failed = w.failed.clone();
                return std::mem::replace(
                    &mut *w,
                    Waiting {
                        failed,
                        ..Waiting::default()
                    },
                );
            }
            w = self.wake.wait_timeout(w, left).unwrap().0;
        }
    }
}

/// The settings: those of the children in Go, and what raft-rs has for throughput.
const TICK: Duration = Duration::from_millis(100);
const ELECTION_TICKS: usize = 30;
const HEARTBEAT_TICKS: usize = 1;
const INFLIGHT: usize = 4096;
const KEPT_ENTRIES: u64 = 20_000; // in memory, for followers; compacted when there are twice as many

/// The one group of a log.
const GROUP: u64 = 1;

struct Entries;

impl MessageExt for Entries {
    type Entry = Entry;
    fn index(e: &Entry) -> u64 {
        e.index
    }
}

/// What the writing thread has to do.
struct Task {
    number: u64,
    entries: Vec<Entry>,
    hard_state: Option<HardState>,
    messages: Vec<Message>,
    sync: bool,
}

#[derive(Default)]
struct Tasks {
    waiting: Mutex<Vec<Task>>,
    wake: Condvar,
}

/// Answers is told of each batch of values that the leader has applied.
pub type Answers = Arc<dyn Fn(&[Entry]) + Send + Sync>;

/// What others see of a node.
pub struct Node {
    pub inbox: Arc<Inbox>,
    pub machine: Arc<Mutex<Machine>>,
}

impl Node {
    pub fn state(&self) -> State {
        self.machine.lock().unwrap().state
    }
}

pub fn start(
    id: u64,
    voters: &[u64],
    inbox: Arc<Inbox>,
    links: Links,
    log: Arc<Log>,
    answers: Answers,
) -> raft::Result<Node> {
    let store = MemStorage::new_with_conf_state(ConfState::from((voters.to_vec(), vec![])));
    let config = Config {
        id,
        election_tick: ELECTION_TICKS,
        heartbeat_tick: HEARTBEAT_TICKS,
        max_size_per_msg: u64::MAX,
        max_inflight_msgs: INFLIGHT,
        pre_vote: true,
        check_quorum: true,
        batch_append: true,
        skip_bcast_commit: true,
        ..Config::default()
    };
    let raw = RawNode::new(&config, store, &slog::Logger::root(slog::Discard, slog::o!()))?;
    let node = Node {
        inbox: inbox.clone(),
        machine: Arc::default(),
    };
    let tasks = Arc::new(Tasks::default());
    let mut owner = Owner {
        raw,
        inbox: inbox.clone(),
        links: links.clone(),
        tasks: tasks.clone(),
        machine: node.machine.clone(),
        answers,
        led: false,
    };
    let machine = node.machine.clone();
    std::thread::spawn(move || {
        let why = owner.run();
        owner.inbox.fail(why)
    });
    std::thread::spawn(move || {
        let why = write(&tasks, &log, &links, &inbox, &machine);
        inbox.fail(why)
    });
    Ok(node)
}

/// Owner is what the thread that steps raft has.
struct Owner {
    raw: RawNode<MemStorage>,
    inbox: Arc<Inbox>,
    links: Links,
    tasks: Arc<Tasks>,
    machine: Arc<Mutex<Machine>>,
    answers: Answers,
    led: bool,
}

impl Owner {
    /// Runs until something fails, and returns why.
    fn run(&mut self) -> String {
        let mut due = Instant::now() + TICK;
        loop {
            if let Err(why) = self.turn(due) {
                return why;
            }
            if Instant::now() >= due {
                self.raw.tick();
                due = Instant::now() + TICK;
            }
        }
    }

    fn turn(&mut self, due: Instant) -> Result<(), String> {
        let w = self.inbox.take(due);
        if w.campaign {
            self.raw.campaign().map_err(|e| e.to_string())?;
        }
        for m in w.messages {
            self.raw.step(m).map_err(|e| e.to_string())?;
        }
        if w.persisted > 0 {
            self.raw.on_persist_ready(w.persisted);
        }
        if !w.proposals.is_empty() {
            let mut m = Message {
                msg_type: MessageType::MsgPropose,
                from: self.raw.raft.id,
                ..Message::default()
            };
            m.entries = w
                .proposals
                .into_iter()
                .map(|v| Entry {
                    data: v.into(),
                    ..Entry::default()
                })
                .collect::<Vec<_>>()
                .into();
            self.raw.step(m).map_err(|e| format!("a proposal was refused: {e}"))?;
        }
        while self.raw.has_ready() {
            self.handle()?;
        }
        self.compact()
    }

    fn handle(&mut self) -> Result<(), String> {
        let mut rd = self.raw.ready();
        let leads = self.raw.raft.state == StateRole::Leader;
        if self.led && !leads {
            return Err("the leader has changed".to_owned());
        }
        self.led = leads;
        if !rd.snapshot().is_empty() {
            return Err("a snapshot was sent, and none are taken here".to_owned());
        }
        self.links.send(rd.take_messages()).map_err(|e| e.to_string())?;
        let committed = rd.take_committed_entries();
        let task = Task {
            number: rd.number(),
            hard_state: rd.hs().cloned(),
            messages: rd.take_persisted_messages(),
            sync: rd.must_sync(),
            entries: rd.take_entries(),
        };
        let store = self.raw.store().clone();
        store.wl().append(&task.entries).map_err(|e| e.to_string())?;
        if let Some(hs) = &task.hard_state {
            store.wl().set_hardstate(hs.clone());
        }
        if !task.entries.is_empty() || task.hard_state.is_some() || !task.messages.is_empty() {
            self.tasks.waiting.lock().unwrap().push(task);
            self.tasks.wake.notify_one();
        }
        self.raw.advance_append_async(rd);
        self.apply(&committed, leads);
        Ok(())
    }

    fn apply(&mut self, committed: &[Entry], leads: bool) {
        let Some(last) = committed.last() else { return };
        {
            let mut machine = self.machine.lock().unwrap();
            for e in committed {
                machine.apply(e.index, &e.data);
            }
        }
        self.raw.advance_apply_to(last.index);
        if leads {
            (self.answers)(committed);
        }
    }

    /// Drops applied entries that no follower needs from the storage in memory.
    fn compact(&mut self) -> Result<(), String> {
        let store = self.raw.store().clone();
        let first = raft::Storage::first_index(&store).map_err(|e| e.to_string())?;
        let applied = self.raw.raft.raft_log.applied;
        if applied < first + 2 * KEPT_ENTRIES {
            return Ok(());
        }
        let mut through = applied - KEPT_ENTRIES;
        if self.raw.raft.state == StateRole::Leader {
            for (_, progress) in self.raw.raft.prs().iter() {
                through = through.min(progress.matched);
            }
        }
        if through <= first {
            return Ok(());
        }
        let done = store.wl().compact(through).map_err(|e| e.to_string());
        done
    }
}

/// How many entries are appended to a log before it is compacted and purged.
const PURGE_ENTRIES: u64 = 20_000;

/// Writes until something fails, and returns why.
fn write(tasks: &Tasks, log: &Log, links: &Links, inbox: &Inbox, machine: &Mutex<Machine>) -> String {
    let (mut batch, mut appended) = (LogBatch::default(), 0);
    loop {
        let waiting = {
            let mut w = tasks.waiting.lock().unwrap();
            while w.is_empty() {
                w = tasks.wake.wait(w).unwrap();
            }
            std::mem::take(&mut *w)
        };
        match write_all(&mut batch, waiting, log, links, inbox) {
            Ok(entries) => appended += entries,
            Err(why) => return why,
        }
        if appended >= PURGE_ENTRIES {
            appended = 0;
            let through = machine.lock().unwrap().state.applied; // as behind a snapshot
            log.compact_to(GROUP, through);
            if let Err(e) = log.purge_expired_files() {
                return e.to_string();
            }
        }
    }
}

fn write_all(batch: &mut LogBatch, waiting: Vec<Task>, log: &Log, links: &Links, inbox: &Inbox) -> Result<u64, String> {
    let (mut number, mut sync, mut appended) = (0, false, 0);
    let (mut hard_state, mut messages) = (None, Vec::new());
    for mut task in waiting {
        number = task.number;
        sync |= task.sync;
        appended += task.entries.len() as u64;
        batch
            .add_entries::<Entries>(GROUP, &task.entries)
            .map_err(|e| e.to_string())?;
        hard_state = task.hard_state.or(hard_state);
        messages.append(&mut task.messages);
    }
    if let Some(hs) = hard_state {
        batch
            .put_message(GROUP, b"state".to_vec(), &hs)
            .map_err(|e| e.to_string())?;
    }
    if !batch.is_empty() {
        log.write(batch, sync).map_err(|e| e.to_string())?;
    }
    links.send(messages).map_err(|e| e.to_string())?;
    inbox.with(|w| w.persisted = number);
    Ok(appended)
}
