//! raftrs is the child of `millrace bench peers` for TiKV's raft-rs on raft-engine: three nodes in one process, on
//! loopback TCP. Its argument says with which files, and who the clients are:
//!
//! - `default`: raft-engine's defaults, which write new files; one thread is all clients
//! - `prefilled`: files that are zero-filled at the start and recycled; one thread is all clients
//! - `tasks`: prefilled files, and a task for each client, like the goroutines of the children in Go
//!
//! A node has a thread that steps raft and applies, and one that writes all that waits with one sync (node.rs). One
//! thread for all clients proposes in batches (load.rs): that is the fastest form, and no other child has it.

mod disk;
mod link;
mod load;
mod machine;
mod node;
mod value;

use std::io::Read;
use std::time::Duration;

/// What Millrace asks for: child.Request in Go.
pub struct Request {
    pub dir: String,
    pub hosts: u64,
    pub clients: u32,
    pub value_bytes: usize,
    pub warmup: Duration,
    pub length: Duration,
    pub seed: u64,
}

/// Why there is no result. A mismatch is a write that was lost, doubled or damaged.
pub enum Failure {
    Mismatch(String),
    Other(String),
}

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(e: E) -> Self {
        Failure::Other(e.to_string())
    }
}

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let (prefilled, tasks) = match mode.as_str() {
        "default" => (false, false),
        "prefilled" => (true, false),
        "tasks" => (true, true),
        _ => {
            eprintln!("usage: raftrs default|prefilled|tasks, with a request on the standard input");
            std::process::exit(2);
        }
    };
    let answer = match read_request().and_then(|r| load::measure(&r, prefilled, tasks)) {
        Ok(result) => serde_json::json!({ "result": result }),
        Err(Failure::Mismatch(why)) => serde_json::json!({ "error": why, "mismatch": true }),
        Err(Failure::Other(why)) => serde_json::json!({ "error": why }),
    };
    println!("{answer}");
    // Threads that wait on their sockets end with the process.
    std::process::exit(0);
}

fn read_request() -> Result<Request, Failure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let json: serde_json::Value = serde_json::from_str(&text)?;
    let number = |name: &str| json[name].as_u64().unwrap_or(0);
    let request = Request {
        dir: json["dir"].as_str().unwrap_or_default().to_owned(),
        hosts: number("hosts"),
        clients: number("clients") as u32,
        value_bytes: number("value_bytes") as usize,
        warmup: Duration::from_nanos(number("warmup_ns")),
        length: Duration::from_nanos(number("length_ns")),
        seed: number("seed"),
    };
    if request.dir.is_empty()
        || request.hosts < 1
        || request.clients < 1
        || request.value_bytes < value::MIN_BYTES
        || request.length.is_zero()
    {
        return Err(Failure::Other(format!("the request {text:?} makes no sense")));
    }
    Ok(request)
}
