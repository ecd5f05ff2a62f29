package recipe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// snapshotsMachine is a state machine of one host under measurement.
type snapshotsMachine interface {
	millrace.StateMachine[stateCommand, uint64]
	// units is how many pieces of the state a fill can change one by one.
	units() int
	// sum depends on the whole state. Nothing is applied meanwhile.
	sum() (uint32, error)
}

// gaps measures for how long nothing is applied: from the end of one Apply to the begin of the next.
type gaps struct {
	ended    time.Time // the last Apply; zero: there was none
	captured bool      // Snapshot was called since then

	around, other time.Duration // the longest around a Snapshot, and the longest of the others
	capture       time.Duration // the longest Snapshot itself
}

func (g *gaps) begin(now time.Time) {
	if !g.ended.IsZero() {
		gap := now.Sub(g.ended)
		if g.captured {
			g.around = max(g.around, gap)
		} else {
			g.other = max(g.other, gap)
		}
	}
	g.captured = false
}

// memoryMachine is a machine whose state is in memory, in pages, with the values of the clients in them. It
// also checks the values of the present window, and that check is part of its state.
type memoryMachine struct {
	mu     sync.Mutex
	state  *pages
	window uint32
	check  *load.Machine
	count  uint64 // commands
	gaps   gaps
}

// newMemory makes a machine with the state of base, which nothing changes.
func newMemory(base *pages) *memoryMachine {
	return &memoryMachine{state: base.clone().thawed(), check: &load.Machine{}}
}

// thawed returns p in the next epoch: its pages are copied before they are written.
func (p *pages) thawed() *pages {
	p.epoch++
	return p
}

// Apply implements millrace.StateMachine. The result of a command is how many came before it.
func (m *memoryMachine) Apply(batch []millrace.Command[stateCommand], results []uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gaps.begin(time.Now())
	for i := range batch {
		c := &batch[i].Value
		switch c.kind {
		case writeCommand:
			if c.window > m.window {
				m.window, m.check = c.window, &load.Machine{}
			}
			if c.window < m.window {
				return fmt.Errorf("a command of window %d came after one of window %d", c.window, m.window)
			}
			m.check.ApplyAt(batch[i].Index, batch[i].Pos, c.value)
			copy(m.state.writable(m.pageOf(load.IDOf(c.value)))[:], c.value)
		case fillCommand:
			for u := c.first; u < c.first+c.n; u++ {
				scramble(m.state.writable(int(u % uint64(m.state.n)))[:], u^c.seed<<32)
			}
		}
		results[i] = m.count
		m.count++
	}
	m.gaps.ended = time.Now()
	return nil
}

// pageOf spreads the writes over all pages.
func (m *memoryMachine) pageOf(id load.ValueID) int {
	x := (uint64(id.Client)<<40 ^ id.Seq) * 0x9e3779b97f4a7c15
	return int((x >> 20) % uint64(m.state.n))
}

func (m *memoryMachine) units() int { return m.state.n }

// drainGaps returns what was measured since the last call.
func (m *memoryMachine) drainGaps() gaps {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.gaps
	m.gaps = gaps{ended: g.ended} // a Snapshot may come before the next Apply
	return g
}

// checked returns the check of the present window, if that is n.
func (m *memoryMachine) checked(n uint32) *load.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.window != n {
		return &load.Machine{}
	}
	return m.check
}

func (m *memoryMachine) sum() (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.freeze().sum() + uint32(m.count), nil
}

// memorySnapshot is the state of a memory at one moment.
type memorySnapshot struct {
	state *pages
	rest  []byte // what is not in pages
}

// Snapshot implements millrace.StateMachine.
func (m *memoryMachine) Snapshot() (millrace.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	began := time.Now()
	rest := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, m.window), m.count)
	s := &memorySnapshot{m.state.freeze(), m.check.AppendTo(rest)}
	m.gaps.captured, m.gaps.capture = true, max(m.gaps.capture, time.Since(began))
	return s, nil
}

// WriteTo implements millrace.Snapshot. The pages come first, so that those that did not change are at the
// same place in the next snapshot.
func (s *memorySnapshot) WriteTo(_ context.Context, w io.Writer) error {
	if err := s.state.writeTo(w); err != nil {
		return err
	}
	_, err := w.Write(s.rest)
	return err
}

// Close implements millrace.Snapshot.
func (s *memorySnapshot) Close() error {
	s.state = nil
	return nil
}

// Restore implements millrace.StateMachine.
func (m *memoryMachine) Restore(_ context.Context, r io.Reader) error {
	state, err := readPages(m.state.n, r)
	if err != nil {
		return err
	}
	rest, err := io.ReadAll(r)
	if err != nil || len(rest) < 12 {
		return errors.Join(fmt.Errorf("%d bytes follow the pages, want 12 and more", len(rest)), err)
	}
	check := &load.Machine{}
	if err := check.Restore(rest[12:]); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.check = state, check
	m.window, m.count = binary.LittleEndian.Uint32(rest), binary.LittleEndian.Uint64(rest[4:])
	return nil
}
