//! Connections between nodes: a length and a protobuf message, all messages for one peer in one write.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use protobuf::Message as _;
use raft::eraftpb::Message;

use super::node::Inbox;

/// Links are the outgoing connections of one node. Its two threads write to them.
#[derive(Clone, Default)]
pub struct Links(Arc<BTreeMap<u64, Mutex<TcpStream>>>);

impl Links {
    /// Sends messages. Each peer's leave in one write, which blocks until the kernel has taken it. (Peers read
    /// without end, into their inboxes, so it does.)
    pub fn send(&self, messages: Vec<Message>) -> std::io::Result<()> {
        let mut by_peer: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for m in messages {
            let buf = by_peer.entry(m.to).or_default();
            buf.extend_from_slice(&m.compute_size().to_le_bytes());
            m.write_to_vec(buf).map_err(std::io::Error::other)?;
        }
        for (peer, buf) in by_peer {
            self.0[&peer].lock().unwrap().write_all(&buf)?;
        }
        Ok(())
    }
}

const READ_BYTES: usize = 256 << 10;

/// Connects each node with each other one. Index i is node i + 1.
pub fn connect(inboxes: &[Arc<Inbox>]) -> std::io::Result<Vec<Links>> {
    let mut out: Vec<BTreeMap<u64, Mutex<TcpStream>>> = inboxes.iter().map(|_| BTreeMap::new()).collect();
    for (to, inbox) in inboxes.iter().enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        for (from, links) in out.iter_mut().enumerate() {
            if from == to {
                continue;
            }
            let dialed = TcpStream::connect(listener.local_addr()?)?;
            let (accepted, _) = listener.accept()?;
            dialed.set_nodelay(true)?;
            links.insert(to as u64 + 1, Mutex::new(dialed));
            let inbox = inbox.clone();
            std::thread::spawn(move || receive(accepted, &inbox));
        }
    }
    Ok(out.into_iter().map(|links| Links(Arc::new(links))).collect())
}

/// Puts what arrives into an inbox. What has been read already is put there at once.
fn receive(from: TcpStream, inbox: &Inbox) {
    let mut from = BufReader::with_capacity(READ_BYTES, from);
    let mut buf = Vec::new();
    let mut messages = Vec::new();
    loop {
        let mut length = [0; 4];
        if let Err(e) = from.read_exact(&mut length) {
            return inbox.fail(format!("a connection ended: {e}"));
        }
        buf.resize(u32::from_le_bytes(length) as usize, 0);
        if let Err(e) = from.read_exact(&mut buf) {
            return inbox.fail(format!("a connection ended: {e}"));
        }
        match Message::parse_from_carllerche_bytes(&bytes::Bytes::copy_from_slice(&buf)) {
            Ok(m) => messages.push(m),
            Err(e) => return inbox.fail(format!("a message cannot be read: {e}")),
        }
        if from.buffer().is_empty() {
            inbox.messages(std::mem::take(&mut messages));
        }
    }
}
