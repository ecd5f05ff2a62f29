package load

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// Ledger is what the clients know: how many values each has sent, and which of them were acknowledged. Each
// client writes its page without a lock. Other goroutines read the page only after the client has stopped.
type Ledger struct {
	pages []*Page // index: client
}

// Page belongs to one client.
type Page struct {
	sent  uint64 // sequences [0, sent) were handed to the target
	acked sequences
}

// Open adds a page for the next client. Only the goroutine that starts the clients calls it.
func (l *Ledger) Open() (client uint32, page *Page) {
	page = &Page{}
	l.pages = append(l.pages, page)
	return uint32(len(l.pages) - 1), page
}

// Send returns the sequence of the client's next value, and records that it was sent.
func (p *Page) Send() (seq uint64) {
	seq = p.sent
	p.sent++
	return seq
}

// Acknowledge records that the target has acknowledged the value with this sequence.
func (p *Page) Acknowledge(seq uint64) { p.acked.add(seq) }

// Acked returns the number of acknowledged writes.
func (l *Ledger) Acked() uint64 { return l.ackedOf(Share{}) }

func (l *Ledger) ackedOf(s Share) uint64 {
	var n uint64
	for slot := uint32(0); int(s.client(slot)) < len(l.pages); slot++ {
		n += l.pages[s.client(slot)].acked.count()
	}
	return n
}

// missing is an acknowledged write that a machine does not have, or not yet.
type missing struct {
	seq    int
	client uint32
}

func (m *missing) Error() string {
	return fmt.Sprintf("write %d of client %d was acknowledged and is not there", m.seq, m.client)
}

// compare checks applied writes, a set for each client of a share, against the ledger: no write is there that
// was never sent, and every acknowledged one is, else the error has a missing. (A write that failed or was
// cut off may be there or not.)
func (l *Ledger) compare(applied []sequences, s Share) error {
	for slot, have := range applied {
		client, sent := s.client(uint32(slot)), uint64(0)
		if int(client) < len(l.pages) {
			sent = l.pages[client].sent
		}
		if last, ok := have.last(); ok && last >= sent {
			return fmt.Errorf("%w: write %d of client %d is there and was never sent (the client sent %d)",
				lab.ErrMismatch, last, client, sent)
		}
	}
	for slot := uint32(0); int(s.client(slot)) < len(l.pages); slot++ {
		client := s.client(slot)
		page := l.pages[client]
		var have sequences
		if int(slot) < len(applied) {
			have = applied[slot]
		}
		for w := range page.acked.words() {
			if lost := page.acked.word(w) &^ have.word(w); lost != 0 {
				return fmt.Errorf("%w: %w", lab.ErrMismatch, &missing{w*64 + bits.TrailingZeros64(lost), client})
			}
		}
	}
	return nil
}

// VerifyPoll is how often Verify looks again while the hosts converge. Nothing is measured meanwhile.
const VerifyPoll = 2 * time.Millisecond

// VerifyMachines waits until the machines of all hosts have applied the same values, and all that were
// acknowledged. The number of values does not show that: after a fault it includes values without an
// acknowledgement. All hashes must be equal, and each machine must pass its Verify. If ctx ends first, the
// error names the host that is behind. Errors wrap lab.ErrMismatch. All machines must have the same Share.
func VerifyMachines(ctx context.Context, machines []*Machine, ledger *Ledger) error {
	acked := ledger.ackedOf(machines[0].Share)
	poll := time.NewTicker(VerifyPoll)
	defer poll.Stop()
	var last []MachineState
	for {
		states := make([]MachineState, len(machines))
		for i, m := range machines {
			states[i] = m.State()
		}
		if err := divergence(states); err != nil {
			return err
		}
		behind := lagging(states, acked)
		// The same states twice: probably no entry is on its way any more.
		if behind == nil && sameStates(states, last) {
			var err error
			if behind, err = lacking(machines, ledger); behind == nil {
				return err
			}
		}
		last = states
		select {
		case <-poll.C:
		case <-ctx.Done():
			if behind == nil {
				behind = errors.New("the hosts still apply entries, although all clients have stopped")
			}
			return fmt.Errorf("%w: %w", lab.ErrMismatch, behind)
		}
	}
}

// CompareMachines is one look of VerifyMachines, for machines that do not change, such as copies. behind is
// what may be right in later copies, err what will not be.
func CompareMachines(machines []*Machine, ledger *Ledger) (behind, err error) {
	states := make([]MachineState, len(machines))
	for i, m := range machines {
		states[i] = m.State()
	}
	if err := divergence(states); err != nil {
		return nil, err
	}
	if behind := lagging(states, ledger.ackedOf(machines[0].Share)); behind != nil {
		return behind, nil
	}
	return lacking(machines, ledger)
}

// lacking lets each machine Verify itself. behind names the first acknowledged write that is missing: it may
// come. err is what waiting does not mend.
func lacking(machines []*Machine, ledger *Ledger) (behind, err error) {
	for i, m := range machines {
		err := m.Verify(ledger)
		var lost *missing
		switch {
		case errors.As(err, &lost):
			if behind == nil {
				behind = fmt.Errorf("host %d: %w", i+1, lost)
			}
		case err != nil:
			return nil, fmt.Errorf("host %d: %w", i+1, err)
		}
	}
	return behind, nil
}

// divergence compares hosts that have applied equally many values.
func divergence(states []MachineState) error {
	at := make(map[uint64]int, len(states))
	for i, s := range states {
		j, seen := at[s.Entries]
		if seen && states[j].Hash != s.Hash {
			return fmt.Errorf("%w: after %d values host %d has state %016x (index %d) and host %d has %016x (index %d)",
				lab.ErrMismatch, s.Entries, j+1, states[j].Hash, states[j].Applied, i+1, s.Hash, s.Applied)
		}
		at[s.Entries] = i
	}
	return nil
}

// lagging names a host that has applied less than another one, or less than was acknowledged.
func lagging(states []MachineState, acked uint64) error {
	want := acked
	for _, s := range states {
		want = max(want, s.Entries)
	}
	for i, s := range states {
		if s.Entries < want {
			return fmt.Errorf("host %d applied %d values and should have %d (%d were acknowledged)", i+1, s.Entries, want, acked)
		}
	}
	return nil
}

func sameStates(a, b []MachineState) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
