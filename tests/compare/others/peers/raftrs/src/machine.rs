//! The state machine and the check of every child (cmd/internal/lab/load/machine.go and ledger.go): a hash over all
//! that was applied, in order, and a bit for each write.

/// Finalizer of splitmix64.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Position and content of a machine.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct State {
    pub applied: u64,
    pub entries: u64,
    pub hash: u64,
}

/// A growing set of small integers.
#[derive(Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Reports whether i was new.
    pub fn add(&mut self, i: u64) -> bool {
        let word = (i / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (i % 64);
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    pub fn has(&self, i: u64) -> bool {
        self.0.get((i / 64) as usize).is_some_and(|w| w & (1 << (i % 64)) != 0)
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|w| u64::from(w.count_ones())).sum()
    }
}

#[derive(Default)]
pub struct Machine {
    pub state: State,
    clients: Vec<Bits>,
    broken: Option<String>,
}

impl Machine {
    pub fn apply(&mut self, index: u64, data: &[u8]) {
        if index <= self.state.applied {
            self.break_with(format!("entry {index} was applied after entry {}", self.state.applied));
        }
        self.state.applied = index;
        if data.is_empty() {
            return; // a new leader's first entry
        }
        self.state.entries += 1;
        let Some((client, seq, sum)) = super::value::parse(data) else {
            return self.break_with(format!(
                "entry {index} ({} bytes) is not a value that a client sent",
                data.len()
            ));
        };
        let h = mix(self.state.hash ^ index);
        let h = mix(h ^ (u64::from(client) << 32 | u64::from(sum)));
        self.state.hash = mix(h ^ seq);
        if client as usize >= self.clients.len() {
            self.clients.resize_with(client as usize + 1, Bits::default);
        }
        if !self.clients[client as usize].add(seq) {
            self.break_with(format!(
                "write {seq} of client {client} was applied twice, the second time at index {index}"
            ));
        }
    }

    fn break_with(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// Compares with what the clients know: `ledger[c]` has how many writes client c has sent, all of which were
    /// acknowledged but perhaps the last.
    pub fn verify(&self, ledger: &[Page]) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        for (client, page) in ledger.iter().enumerate() {
            let none = Bits::default();
            let have = self.clients.get(client).unwrap_or(&none);
            if let Some(lost) = (0..page.acknowledged).find(|seq| !have.has(*seq)) {
                return Err(format!(
                    "write {lost} of client {client} was acknowledged and is not there"
                ));
            }
            if have.count() > page.sent {
                return Err(format!(
                    "client {client} sent {} writes, and {} are there",
                    page.sent,
                    have.count()
                ));
            }
        }
        Ok(())
    }
}

/// What one client knows: its writes [0, sent) were proposed, [0, acknowledged) answered.
#[derive(Clone, Copy, Default)]
pub struct Page {
    pub sent: u64,
    pub acknowledged: u64,
}

#[cfg(test)]
mod tests {
    use super::super::value::{parse, Source};
    use super::*;

    fn applied(values: &[Vec<u8>]) -> Machine {
        let mut m = Machine::default();
        for (i, v) in values.iter().enumerate() {
            m.apply(i as u64 + 1, v);
        }
        m
    }

    #[test]
    fn verify_finds_what_is_wrong() {
        let source = Source::new(200, 1);
        let values: Vec<_> = (0..5).map(|seq| source.value(3, seq)).collect();
        let ledger = |sent, acknowledged| {
            let mut pages = vec![Page::default(); 4];
            pages[3] = Page { sent, acknowledged };
            pages
        };
        assert_eq!(applied(&values).verify(&ledger(5, 5)), Ok(()));
        assert_eq!(
            applied(&values).verify(&ledger(6, 5)),
            Ok(()),
            "the last may be there or not"
        );
        assert!(applied(&values[1..])
            .verify(&ledger(5, 5))
            .unwrap_err()
            .contains("write 0 of client 3 was acknowledged"));
        assert!(applied(&values)
            .verify(&ledger(4, 4))
            .unwrap_err()
            .contains("sent 4 writes, and 5 are there"));
        let mut twice = values.clone();
        twice.push(values[2].clone());
        assert!(applied(&twice)
            .verify(&ledger(5, 5))
            .unwrap_err()
            .contains("applied twice"));
        for bit in [3 * 8, 100 * 8] {
            let mut damaged = values.clone();
            damaged[1][bit / 8] ^= 1;
            assert!(parse(&damaged[1]).is_none());
            assert!(applied(&damaged)
                .verify(&ledger(5, 5))
                .unwrap_err()
                .contains("is not a value"));
        }
    }

    #[test]
    fn hashes_tell_orders_apart() {
        let source = Source::new(64, 1);
        let (a, b) = (source.value(0, 0), source.value(1, 0));
        assert_ne!(applied(&[a.clone(), b.clone()]).state, applied(&[b, a]).state);
    }
}
