//! Clients in a closed loop, the clock and the check: those of cmd/internal/lab/load. An operation that starts in the
//! window is in the latencies; one that ends in the window counts for the throughput.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use raft::eraftpb::Entry;
use tokio::sync::oneshot;

use super::disk::{self, SYNCS};
use super::link;
use super::machine::Page;
use super::node::{self, Answers, Inbox, Node};
use super::value::{id_of, Source};
use super::{Failure, Request};

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

pub fn measure(r: &Request, prefilled: bool, tasks: bool) -> Result<serde_json::Value, Failure> {
    let desk: Arc<dyn Desk> = if tasks {
        Arc::new(Slots::new(r.clients))
    } else {
        Arc::new(Pile::default())
    };
    let nodes = start(r, prefilled, desk.clone())?;
    let m = Measurement::new(r, nodes);
    if tasks {
        m.run_tasks(desk)
    } else {
        m.run_batched(desk)
    }
}

fn start(r: &Request, prefilled: bool, desk: Arc<dyn Desk>) -> Result<Vec<Node>, Failure> {
    let voters: Vec<u64> = (1..=r.hosts).collect();
    let inboxes: Vec<Arc<Inbox>> = voters.iter().map(|_| Arc::default()).collect();
    let links = link::connect(&inboxes)?;
    let mut nodes = Vec::new();
    for ((id, inbox), links) in voters.iter().zip(inboxes).zip(links) {
        let log = disk::open(format!("{}/node-{id}", r.dir), prefilled)?;
        let desk = desk.clone();
        let answers: Answers = Arc::new(move |applied: &[Entry]| desk.answer(applied));
        nodes.push(node::start(*id, &voters, inbox, links, Arc::new(log), answers)?);
    }
    nodes[0].inbox.campaign();
    let began = Instant::now();
    while nodes.iter().any(|n| n.state().applied == 0) {
        if began.elapsed() > PATIENCE {
            return Err(Failure::Other(format!("no leader after {PATIENCE:?}")));
        }
        std::thread::sleep(POLL);
    }
    Ok(nodes)
}

/// Where the leader leaves the answers for the clients.
trait Desk: Send + Sync {
    fn answer(&self, applied: &[Entry]);
    /// Waits until clients are answered, and returns which. None: nothing happened for a while.
    fn wait(&self) -> Option<Vec<u32>>;
    /// Makes one client wait for its answer.
    fn slot(&self, client: u32) -> oneshot::Receiver<()>;
}

/// Pile is for one thread that is all clients.
#[derive(Default)]
struct Pile {
    answered: Mutex<Vec<u32>>,
    wake: Condvar,
}

impl Desk for Pile {
    fn answer(&self, applied: &[Entry]) {
        let clients = applied.iter().filter(|e| !e.data.is_empty()).map(|e| id_of(&e.data).0);
        self.answered.lock().unwrap().extend(clients);
        self.wake.notify_one();
    }
    fn wait(&self) -> Option<Vec<u32>> {
        let answered = self.answered.lock().unwrap();
        let (mut answered, late) = self
            .wake
            .wait_timeout_while(answered, Duration::from_secs(1), |a| a.is_empty())
            .unwrap();
        (!late.timed_out()).then(|| std::mem::take(&mut *answered))
    }
    fn slot(&self, _: u32) -> oneshot::Receiver<()> {
        unreachable!("no client waits alone")
    }
}

/// Slots are for a task per client.
struct Slots(Vec<Mutex<Option<oneshot::Sender<()>>>>);

impl Slots {
    fn new(clients: u32) -> Slots {
        Slots((0..clients).map(|_| Mutex::default()).collect())
    }
}

impl Desk for Slots {
    fn answer(&self, applied: &[Entry]) {
        for e in applied.iter().filter(|e| !e.data.is_empty()) {
            if let Some(waits) = self.0[id_of(&e.data).0 as usize].lock().unwrap().take() {
                let _ = waits.send(());
            }
        }
    }
    fn wait(&self) -> Option<Vec<u32>> {
        unreachable!("each client waits alone")
    }
    fn slot(&self, client: u32) -> oneshot::Receiver<()> {
        let (answer, waits) = oneshot::channel();
        *self.0[client as usize].lock().unwrap() = Some(answer);
        waits
    }
}

/// One point. The clock counts from the start of the warm-up.
struct Measurement<'a> {
    request: &'a Request,
    nodes: Vec<Node>,
    source: Source,
    origin: Instant,
}

/// What a client, or all of them, have measured.
#[derive(Default)]
struct Tally {
    latencies: Vec<Duration>,
    completed: u64,
}

impl Tally {
    fn record(&mut self, start: Duration, end: Duration, window: &std::ops::Range<Duration>) {
        if window.contains(&start) {
            self.latencies.push(end - start);
        }
        if window.contains(&end) {
            self.completed += 1;
        }
    }
}

/// What the process had used at one moment.
#[derive(Clone, Copy)]
struct Usage {
    cpu: Duration,
    syncs: u64,
}

fn usage() -> Usage {
    // SAFETY: getrusage fills the struct that it is given.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    let of = |t: libc::timeval| Duration::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
    Usage {
        cpu: of(used.ru_utime) + of(used.ru_stime),
        syncs: SYNCS.load(Ordering::Relaxed),
    }
}

impl<'a> Measurement<'a> {
    fn new(request: &'a Request, nodes: Vec<Node>) -> Self {
        let source = Source::new(request.value_bytes, request.seed);
        Measurement {
            request,
            nodes,
            source,
            origin: Instant::now(),
        }
    }

    fn window(&self) -> std::ops::Range<Duration> {
        self.request.warmup..self.request.warmup + self.request.length
    }

    fn check(&self) -> Result<(), Failure> {
        match self.nodes.iter().find_map(|n| n.inbox.failure()) {
            Some(why) => Err(Failure::Other(why)),
            None => Ok(()),
        }
    }

    /// A thread that reads usage at both ends of the window.
    fn sampler(&self) -> std::thread::JoinHandle<(Usage, Usage)> {
        let (origin, window) = (self.origin, self.window());
        std::thread::spawn(move || {
            std::thread::sleep(window.start.saturating_sub(origin.elapsed()));
            let first = usage();
            std::thread::sleep(window.end.saturating_sub(origin.elapsed()));
            (first, usage())
        })
    }

    /// One thread is all clients: it takes all answers that are there, and proposes as many values at once.
    fn run_batched(mut self, desk: Arc<dyn Desk>) -> Result<serde_json::Value, Failure> {
        let clients = self.request.clients;
        let (mut tally, mut ledger) = (Tally::default(), vec![Page::default(); clients as usize]);
        let mut starts = vec![Duration::ZERO; clients as usize];
        let leader = self.nodes[0].inbox.clone();
        self.origin = Instant::now();
        let (sampler, window) = (self.sampler(), self.window());
        let (mut free, mut outstanding): (Vec<u32>, u32) = ((0..clients).collect(), 0);
        loop {
            let now = self.origin.elapsed();
            if now < window.end && !free.is_empty() {
                outstanding += free.len() as u32;
                let values = free.drain(..).map(|c| {
                    let page = &mut ledger[c as usize];
                    starts[c as usize] = now;
                    page.sent += 1;
                    self.source.value(c, page.sent - 1)
                });
                leader.propose(values.collect());
            }
            if outstanding == 0 {
                break;
            }
            match desk.wait() {
                Some(answered) => {
                    let end = self.origin.elapsed();
                    outstanding -= answered.len() as u32;
                    for c in &answered {
                        ledger[*c as usize].acknowledged += 1;
                        tally.record(starts[*c as usize], end, &window);
                    }
                    free = answered;
                }
                None => self.check()?,
            }
            if self.origin.elapsed() > window.end + PATIENCE {
                return Err(Failure::Other(format!(
                    "writes were still unanswered {PATIENCE:?} after the last was sent"
                )));
            }
        }
        self.finish(tally, &ledger, sampler)
    }

    /// A task for each client.
    fn run_tasks(mut self, desk: Arc<dyn Desk>) -> Result<serde_json::Value, Failure> {
        let workers = std::thread::available_parallelism()?.get();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .build()?;
        let source = Arc::new(Source::new(self.request.value_bytes, self.request.seed));
        let leader = self.nodes[0].inbox.clone();
        self.origin = Instant::now();
        let (sampler, window, origin) = (self.sampler(), self.window(), self.origin);
        let stopped = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..self.request.clients)
            .map(|c| {
                let (desk, source, leader, window, stopped) = (
                    desk.clone(),
                    source.clone(),
                    leader.clone(),
                    window.clone(),
                    stopped.clone(),
                );
                runtime.spawn(async move {
                    let (mut tally, mut page) = (Tally::default(), Page::default());
                    loop {
                        let start = origin.elapsed();
                        if start >= window.end || stopped.load(Ordering::Relaxed) {
                            return (tally, page);
                        }
                        let waits = desk.slot(c);
                        page.sent += 1;
                        leader.propose(vec![source.value(c, page.sent - 1)]);
                        if waits.await.is_err() {
                            return (tally, page);
                        }
                        page.acknowledged += 1;
                        tally.record(start, origin.elapsed(), &window);
                    }
                })
            })
            .collect();
        while tasks.iter().any(|t| !t.is_finished()) {
            if let Err(why) = self.check() {
                stopped.store(true, Ordering::Relaxed);
                return Err(why);
            }
            if origin.elapsed() > window.end + PATIENCE {
                return Err(Failure::Other(format!(
                    "writes were still unanswered {PATIENCE:?} after the last was sent"
                )));
            }
            std::thread::sleep(POLL);
        }
        let (mut tally, mut ledger) = (Tally::default(), Vec::new());
        for task in tasks {
            let (mut part, page) = runtime.block_on(task)?;
            tally.latencies.append(&mut part.latencies);
            tally.completed += part.completed;
            ledger.push(page);
        }
        self.finish(tally, &ledger, sampler)
    }

    /// Waits until all nodes have applied the same, checks them, and makes the result.
    fn finish(
        &self,
        mut tally: Tally,
        ledger: &[Page],
        sampler: std::thread::JoinHandle<(Usage, Usage)>,
    ) -> Result<serde_json::Value, Failure> {
        let (first, last) = sampler
            .join()
            .map_err(|_| Failure::Other("the sampler has panicked".to_owned()))?;
        let acknowledged: u64 = ledger.iter().map(|p| p.acknowledged).sum();
        let began = Instant::now();
        loop {
            self.check()?;
            let states: Vec<_> = self.nodes.iter().map(Node::state).collect();
            let same = states.iter().all(|s| s.entries == states[0].entries);
            if same && states[0].entries >= acknowledged {
                if states.iter().any(|s| *s != states[0]) {
                    return Err(Failure::Mismatch(format!("the nodes differ: {states:x?}")));
                }
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(Failure::Mismatch(format!(
                    "{acknowledged} writes were acknowledged, and the nodes are at {states:x?}"
                )));
            }
            std::thread::sleep(POLL);
        }
        for (i, n) in self.nodes.iter().enumerate() {
            let verdict = n.machine.lock().unwrap().verify(ledger);
            verdict.map_err(|why| Failure::Mismatch(format!("node {}: {why}", i + 1)))?;
        }
        if tally.completed == 0 || tally.latencies.is_empty() {
            return Err(Failure::Other(format!(
                "no write was acknowledged within {:?}",
                self.request.length
            )));
        }
        tally.latencies.sort_unstable();
        Ok(self.result(&tally, first, last))
    }

    fn result(&self, tally: &Tally, first: Usage, last: Usage) -> serde_json::Value {
        let (l, ops) = (&tally.latencies, tally.completed as f64);
        let micros = |d: Duration| d.as_nanos() as f64 / 1e3;
        let quantile = |q: f64| micros(l[((l.len() - 1) as f64 * q) as usize]);
        serde_json::json!({
            "ops": tally.completed,
            "ops_per_sec": ops / self.request.length.as_secs_f64(),
            "mean_us": l.iter().copied().map(micros).sum::<f64>() / l.len() as f64,
            "p50_us": quantile(0.5), "p90_us": quantile(0.9), "p99_us": quantile(0.99), "p999_us": quantile(0.999), "max_us": quantile(1.0),
            "fsyncs_per_op": (last.syncs - first.syncs) as f64 / ops,
            "cpu_us_per_op": micros(last.cpu - first.cpu) / ops,
            "duration_s": self.request.length.as_secs_f64(), "warmup_s": self.request.warmup.as_secs_f64(), "failed": 0,
        })
    }
}
