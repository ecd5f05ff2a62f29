package lab

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// ErrMismatch says that the nodes do not hold what the clients were promised. It is wrapped with what is wrong.
var ErrMismatch = errors.New("verification failed")

// Ledger is what the clients know: how many values each has sent, and which of them were acknowledged. Each client
// writes its own page without a lock; the others read only after it has stopped.
type Ledger struct {
	pages []*ledgerPage // index: client
}

// ledgerPage belongs to one client.
type ledgerPage struct {
	sent  uint64 // sequences [0, sent) were handed to the target
	acked bitmap
}

func newLedger() *Ledger { return &Ledger{} }

// open adds a page for the next client. It is called by one goroutine, the one that starts the clients.
func (l *Ledger) open() (client uint32, page *ledgerPage) {
	page = &ledgerPage{}
	l.pages = append(l.pages, page)
	return uint32(len(l.pages) - 1), page
}

// Acked returns the number of acknowledged writes.
func (l *Ledger) Acked() uint64 {
	var n uint64
	for _, p := range l.pages {
		n += p.acked.count()
	}
	return n
}

func (b bitmap) count() uint64 {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return uint64(n)
}

// compare checks applied writes, a bitmap for each client, against the ledger: all that was acknowledged is there, and
// nothing that was never sent. (A write that failed or was cut off may be there or not.)
func (l *Ledger) compare(applied []bitmap) error {
	for client, page := range l.pages {
		var have bitmap
		if client < len(applied) {
			have = applied[client]
		}
		for w, want := range page.acked {
			var got uint64
			if w < len(have) {
				got = have[w]
			}
			if lost := want &^ got; lost != 0 {
				return fmt.Errorf("%w: write %d of client %d was acknowledged and is not there",
					ErrMismatch, w*64+bits.TrailingZeros64(lost), client)
			}
		}
	}
	for client, have := range applied {
		var sent uint64
		if client < len(l.pages) {
			sent = l.pages[client].sent
		}
		if last, ok := have.last(); ok && last >= sent {
			return fmt.Errorf("%w: write %d of client %d is there and was never sent (it sent %d)",
				ErrMismatch, last, client, sent)
		}
	}
	return nil
}

func (b bitmap) last() (uint64, bool) {
	for w := len(b) - 1; w >= 0; w-- {
		if b[w] != 0 {
			return uint64(w*64 + 63 - bits.LeadingZeros64(b[w])), true
		}
	}
	return 0, false
}

const verifyPoll = 2 * time.Millisecond

// CheckMachines waits until the machines of all nodes have applied the same number of values, and at least as many as
// were acknowledged; then all hashes must be equal and each machine must pass its Check. When ctx ends first, the
// error names the node that is behind. Errors wrap ErrMismatch.
func CheckMachines(ctx context.Context, machines []*Machine, ledger *Ledger) error {
	acked := ledger.Acked()
	poll := time.NewTicker(verifyPoll)
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
		// The same twice: nothing is trickling in any more.
		if behind == nil && sameStates(states, last) {
			break
		}
		last = states
		select {
		case <-poll.C:
		case <-ctx.Done():
			if behind == nil {
				behind = errors.New("the nodes still apply entries, with all clients stopped")
			}
			return fmt.Errorf("%w: %w", ErrMismatch, behind)
		}
	}
	for i, m := range machines {
		if err := m.Check(ledger); err != nil {
			return fmt.Errorf("node %d: %w", i+1, err)
		}
	}
	return nil
}

// divergence compares nodes that are at the same place.
func divergence(states []MachineState) error {
	at := make(map[uint64]int, len(states))
	for i, s := range states {
		j, seen := at[s.Entries]
		if seen && states[j].Hash != s.Hash {
			return fmt.Errorf("%w: after %d values node %d has state %016x (index %d) and node %d has %016x (index %d)",
				ErrMismatch, s.Entries, j+1, states[j].Hash, states[j].Applied, i+1, s.Hash, s.Applied)
		}
		at[s.Entries] = i
	}
	return nil
}

// lagging says which node has less than another, or less than was acknowledged.
func lagging(states []MachineState, acked uint64) error {
	most := acked
	for _, s := range states {
		most = max(most, s.Entries)
	}
	for i, s := range states {
		if s.Entries < most {
			return fmt.Errorf("node %d applied %d values and should have %d (%d were acknowledged)", i+1, s.Entries, most, acked)
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
