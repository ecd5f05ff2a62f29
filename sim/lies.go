package sim

import "slices"

// The first bytes of what hosts tell each other about snapshots (host/snapshotcodec.go).
const firstSnapshotRecord, lastSnapshotRecord = 48, 51

// lie returns what a host sends in place of a record about a snapshot: the record, or, in a third of the
// cases, if the host is the liar, another one in a frame whose checksum is right. So numbers, lengths, hashes
// and contents are wrong, a record is cut off or too long, or one that was sent before comes in its place.
// A host that hears it must refuse it, or find out later, and the state that it restores must be right.
func (n *network) lie(from *life, body []byte) []byte {
	if kind := body[0]; kind < firstSnapshotRecord || kind > lastSnapshotRecord {
		return body
	}
	if n.liar != from.host.id {
		return body
	}
	n.told = append(n.told, slices.Clone(body))
	if len(n.told) > 64 {
		n.told = n.told[1:]
	}
	if n.rng.IntN(3) > 0 {
		return body
	}
	n.w.count(Lies)
	lie := slices.Clone(body)
	switch n.rng.IntN(5) {
	case 0, 1: // a wrong bit, near the front, where the numbers are, or anywhere
		at := 1 + n.rng.IntN(min(len(lie)-1, 60))
		if n.rng.IntN(2) == 0 {
			at = 1 + n.rng.IntN(len(lie)-1)
		}
		lie[at] ^= 1 << n.rng.IntN(8)
	case 2:
		lie = lie[:1+n.rng.IntN(len(lie)-1)]
	case 3:
		for range 1 + n.rng.IntN(20) {
			lie = append(lie, byte(n.rng.Uint32()))
		}
	case 4:
		lie = slices.Clone(n.told[n.rng.IntN(len(n.told))])
	}
	return lie
}
