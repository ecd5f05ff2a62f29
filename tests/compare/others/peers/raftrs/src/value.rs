//! Values as the clients of every child make them (cmd/internal/lab/load/value.go): magic, client, sequence, CRC32C of
//! the payload, check of the header, payload.

pub const MIN_BYTES: usize = 32;
const HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x6d69_6c6c;
const OFFSETS: usize = 64;

/// Source makes values of one size. Payloads are slices of one random block.
pub struct Source {
    value_bytes: usize,
    block: Vec<u8>,
    checksums: Vec<u32>,
}

impl Source {
    pub fn new(value_bytes: usize, seed: u64) -> Source {
        let payload = value_bytes - HEADER_BYTES;
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        let block: Vec<u8> = (0..payload + OFFSETS)
            .map(|_| {
                state = super::machine::mix(state);
                state as u8
            })
            .collect();
        let checksums = (0..OFFSETS)
            .map(|at| crc32c::crc32c(&block[at..at + payload]))
            .collect();
        Source {
            value_bytes,
            block,
            checksums,
        }
    }

    pub fn value(&self, client: u32, seq: u64) -> Vec<u8> {
        let at = ((seq + u64::from(client)) % OFFSETS as u64) as usize;
        let mut v = Vec::with_capacity(self.value_bytes);
        v.extend_from_slice(&MAGIC.to_le_bytes());
        v.extend_from_slice(&client.to_le_bytes());
        v.extend_from_slice(&seq.to_le_bytes());
        v.extend_from_slice(&self.checksums[at].to_le_bytes());
        let check = crc32c::crc32c(&v);
        v.extend_from_slice(&check.to_le_bytes());
        v.extend_from_slice(&self.block[at..at + self.value_bytes - HEADER_BYTES]);
        v
    }
}

fn u32_at(v: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(v[at..at + 4].try_into().unwrap())
}

/// Client and sequence of a value that this process has made, without a check.
pub fn id_of(v: &[u8]) -> (u32, u64) {
    (u32_at(v, 4), u64::from_le_bytes(v[8..16].try_into().unwrap()))
}

/// Client, sequence and checksum of a value, or None if these are not the bytes that a client sent.
pub fn parse(v: &[u8]) -> Option<(u32, u64, u32)> {
    if v.len() < HEADER_BYTES || u32_at(v, 0) != MAGIC || u32_at(v, 20) != crc32c::crc32c(&v[..20]) {
        return None;
    }
    let sum = crc32c::crc32c(&v[HEADER_BYTES..]);
    let (client, seq) = id_of(v);
    (sum == u32_at(v, 16)).then_some((client, seq, sum))
}
