package load

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
)

// A machine outlives the load that writes to it if its host is a process of its own: the next load finds what
// the last one has left. So a load begins with an entry that empties the machine and gives it a run, which
// is the load's own number. All members apply it at the same place in their log. At its end a load sees from
// the run whether another one has come between.
//
//	offset  bytes
//	0       4     magic
//	4       16    run
//	20      4     CRC32C of bytes 0–19

// Run is the number of one load on machines that outlive it. The zero Run is that of a machine of which no
// load has made a beginning.
type Run [2]uint64

// NewRun draws a run.
func NewRun() Run {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return Run{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// String returns its first digits, which are enough to tell two loads apart.
func (r Run) String() string {
	if r == (Run{}) {
		return "none"
	}
	return hex.EncodeToString(binary.BigEndian.AppendUint32(nil, uint32(r[0])))
}

// Beginning returns the entry with which the load of a run begins.
func (r Run) Beginning() []byte {
	b := binary.LittleEndian.AppendUint32(nil, beginningMagic)
	b = binary.LittleEndian.AppendUint64(b, r[0])
	b = binary.LittleEndian.AppendUint64(b, r[1])
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

const (
	beginningMagic = 0x62656769 // "begi"
	beginningBytes = 24
)

// parseBeginning returns the run of a beginning; ok is false for any other entry.
func parseBeginning(data []byte) (r Run, ok bool) {
	if len(data) != beginningBytes || binary.LittleEndian.Uint32(data) != beginningMagic ||
		binary.LittleEndian.Uint32(data[20:]) != crc32.Checksum(data[:20], castagnoli) {
		return r, false
	}
	return Run{binary.LittleEndian.Uint64(data[4:]), binary.LittleEndian.Uint64(data[12:])}, true
}

// begin empties the machine for a run. The caller holds mu.
func (m *Machine) begin(index uint64, pos uint32, r Run) {
	m.broken = nil
	m.advance(index, pos)
	m.run, m.clients, m.span = r, nil, 0
	m.state = MachineState{Applied: index, Hash: mix(mix(r[0]) ^ r[1])}
}

// Run returns the run of the last beginning.
func (m *Machine) Run() Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run
}

// Violation returns the first rule that an entry of this run has broken, or nil.
func (m *Machine) Violation() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken
}

// Seen returns the state of the machine with its run, of one moment.
func (m *Machine) Seen() (MachineState, Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.run
}

// RestoreRun is Restore for a form that must be of a run.
func (m *Machine) RestoreRun(form []byte, want Run) error {
	if err := m.Restore(form); err != nil {
		return err
	}
	if have := m.Run(); have != want {
		return fmt.Errorf("the machine is of load %v, want %v", have, want)
	}
	return nil
}
