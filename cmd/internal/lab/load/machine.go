package load

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// Machine is the state machine of the bench. It stores only what is needed to judge a run. Two machines that
// applied the same values at the same indexes in the same order have the same hash, and any other two do not.
// One bit for each write says whether the machine has seen it. Apply costs about a tenth of a microsecond for
// 1 KiB, nearly all of it for the checksum.
//
// One goroutine calls Apply (a host's apply worker). The other methods may be called from anywhere.
type Machine struct {
	// Share is which clients write to this machine. The zero Share is all of them. It is set before the first
	// Apply.
	Share Share

	mu      sync.Mutex
	state   MachineState
	pos     uint32      // of the last command in its entry
	run     Run         // of the last beginning
	clients []sequences // index: the client's slot in Share
	span    uint64      // sum over the clients of their last sequence + 1: what the bitmaps may need
	broken  error       // the first violation; Verify returns it
}

// MachineState is a machine's position and content in three numbers.
type MachineState struct {
	Applied uint64 // index of the last entry, empty ones included
	Entries uint64 // values applied, without the empty ones
	Hash    uint64 // chain over (index, value) of these
}

// Share names the clients of one group among many: each client whose number leaves the remainder First when
// it is divided by Every. The zero Share has all clients.
type Share struct{ Every, First uint32 }

// slot returns the number of a client within its share, or false if the client is not in it.
func (s Share) slot(client uint32) (uint32, bool) {
	if s.Every == 0 {
		return client, true
	}
	return client / s.Every, client%s.Every == s.First
}

// client returns the client at a slot: the inverse of slot.
func (s Share) client(slot uint32) uint32 {
	if s.Every == 0 {
		return slot
	}
	return slot*s.Every + s.First
}

// Invariants of the workload, so that no value can make a machine allocate without bound: client numbers stay
// below maxClients, and of all that the clients have sent at most maxUnapplied is not applied. A bit for each
// of these is 8 MiB.
const (
	maxClients   = 1 << 20
	maxUnapplied = 1 << 26
)

// Apply is ApplyAt for an entry of one command.
func (m *Machine) Apply(index uint64, data []byte) { m.ApplyAt(index, 0, data) }

// ApplyAt applies the command at a place of the entry at index. Empty data (a new leader's first entry) moves
// Applied and nothing else. Each position must be greater than the last. The data is not kept.
func (m *Machine) ApplyAt(index uint64, pos uint32, data []byte) {
	if len(data) == 0 {
		m.mu.Lock()
		m.advance(index, pos)
		m.mu.Unlock()
		return
	}
	if run, ok := parseBeginning(data); ok {
		m.mu.Lock()
		m.begin(index, pos, run)
		m.mu.Unlock()
		return
	}
	id, sum, ok := ParseValue(data)
	ok = ok && id.Client < maxClients
	if !ok {
		sum = crc32.Checksum(data, castagnoli)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(index, pos)
	m.state.Entries++
	h := mix(m.state.Hash ^ index ^ uint64(pos)<<48)
	h = mix(h ^ (uint64(id.Client)<<32 | uint64(sum)))
	m.state.Hash = mix(h ^ id.Seq)
	if !ok {
		m.breakf("entry %d (%d bytes) is not a value that a client sent", index, len(data))
		return
	}
	slot, ok := m.Share.slot(id.Client)
	if !ok {
		m.breakf("write %d of client %d is in entry %d of a group that this client does not write to", id.Seq, id.Client, index)
		return
	}
	for int(slot) >= len(m.clients) {
		m.clients = append(m.clients, sequences{})
	}
	if !m.extend(&m.clients[slot], id.Seq) {
		m.breakf("write %d of client %d is in entry %d, and more than %d writes that were sent before are not applied: no load fails so often", id.Seq, id.Client, index, maxUnapplied)
		return
	}
	if !m.clients[slot].add(id.Seq) {
		m.breakf("write %d of client %d was applied twice, the second time at index %d", id.Seq, id.Client, index)
	}
}

// extend makes room for a sequence of a client, or reports that there is none. The value counts as applied
// already. The caller holds mu.
func (m *Machine) extend(s *sequences, seq uint64) bool {
	before := s.span()
	if seq < before {
		return true
	}
	if more := seq - before; more > maxUnapplied || m.span+more+1 > m.state.Entries+maxUnapplied {
		return false
	}
	m.span += seq + 1 - before
	return true
}

func (m *Machine) advance(index uint64, pos uint32) {
	if index < m.state.Applied || index == m.state.Applied && pos <= m.pos {
		m.breakf("entry %d, command %d, was applied after entry %d, command %d", index, pos, m.state.Applied, m.pos)
	}
	m.state.Applied, m.pos = index, pos
}

// breakf keeps the first violation: later ones usually follow from it.
func (m *Machine) breakf(format string, args ...any) {
	if m.broken == nil {
		m.broken = fmt.Errorf(format, args...)
	}
}

// State returns the machine's position and hash.
func (m *Machine) State() MachineState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Applied returns the index of the last applied entry.
func (m *Machine) Applied() uint64 { return m.State().Applied }

// Verify compares the machine with what the clients know. The error, if any, wraps lab.ErrMismatch.
func (m *Machine) Verify(l *Ledger) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return fmt.Errorf("%w: %w", lab.ErrMismatch, m.broken)
	}
	return l.compare(m.clients, m.Share)
}

// mix is the finalizer of splitmix64: each bit of the input moves half of the output's.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// AppendTo appends the machine's form, for state machines whose snapshots include it. The form is
// MachineState, the run, then for each client the number of words of its bitmap, and these words. All are 8
// bytes, little endian. A violation is not in it: the host that has seen it keeps it.
func (m *Machine) AppendTo(dst []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range []uint64{m.state.Applied, m.state.Entries, m.state.Hash, m.run[0], m.run[1], uint64(len(m.clients))} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	for i := range m.clients {
		words := m.clients[i].bitmap()
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(words)))
		for _, w := range words {
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
	}
	return dst
}

// Restore makes a new machine what another one was when AppendTo was called. It reads form to its end.
func (m *Machine) Restore(form []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pos = math.MaxUint32 // a snapshot has whole entries
	short := false
	next := func() (n uint64) {
		if len(form) < 8 {
			short = true
			return 0
		}
		n, form = binary.LittleEndian.Uint64(form), form[8:]
		return n
	}
	m.state = MachineState{Applied: next(), Entries: next(), Hash: next()}
	m.run = Run{next(), next()}
	clients := next()
	if clients > uint64(len(form)/8) {
		return fmt.Errorf("the form of a machine has %d clients and %d more bytes", clients, len(form))
	}
	m.clients, m.span = make([]sequences, clients), 0
	for i := range m.clients {
		words := next()
		if words > uint64(len(form)/8) {
			return fmt.Errorf("the form of a machine has %d words for client %d and %d more bytes", words, i, len(form))
		}
		bitmap := make([]uint64, words)
		for w := range bitmap {
			bitmap[w] = next()
		}
		m.clients[i] = sequencesOf(bitmap)
		m.span += m.clients[i].span()
	}
	if short || len(form) > 0 {
		return fmt.Errorf("the form of a machine with %d clients ends early, or %d bytes follow it", clients, len(form))
	}
	return nil
}
