package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
)

// entry is a command: it adds Amount to an account. A Note makes it as large as a test wants.
type entry struct {
	Account string
	Amount  int64
	Note    string `json:",omitempty"`
}

// ledger is the state machine: the balance of each account. Its snapshots have pad bytes beside that, which
// are streamed, so the state may be larger than the memory of the process.
type ledger struct {
	balances map[string]int64
	pad      int64
	delay    atomic.Int64 // of each call of Apply
}

// Apply implements millrace.StateMachine. The result is the balance.
func (l *ledger) Apply(batch []millrace.Command[entry], results []int64) error {
	if d := l.delay.Load(); d > 0 {
		<-time.After(time.Duration(d))
	}
	for i := range batch {
		e := &batch[i].Value
		l.balances[e.Account] += e.Amount
		results[i] = l.balances[e.Account]
	}
	return nil
}

// Snapshot implements millrace.StateMachine.
func (l *ledger) Snapshot() (millrace.Snapshot, error) {
	return frozen{maps.Clone(l.balances), l.pad}, nil
}

// frozen is the state at one moment.
type frozen struct {
	balances map[string]int64
	pad      int64
}

// WriteTo implements millrace.Snapshot: a line of JSON, and pad bytes.
func (f frozen) WriteTo(ctx context.Context, w io.Writer) error {
	if err := json.NewEncoder(w).Encode(f.balances); err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for left, n := f.pad, uint64(0); left > 0 && ctx.Err() == nil; left -= int64(len(block)) {
		for i := range block { // no two blocks are the same
			n = n*6364136223846793005 + 1442695040888963407
			block[i] = byte(n >> 56)
		}
		if _, err := w.Write(block[:min(left, int64(len(block)))]); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Close implements millrace.Snapshot.
func (frozen) Close() error { return nil }

// Restore implements millrace.StateMachine.
func (l *ledger) Restore(_ context.Context, r io.Reader) error {
	lines, next := bufio.NewReader(r), map[string]int64{}
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &next)
	}
	if err != nil {
		return fmt.Errorf("the first line of the state: %w", err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		return err
	}
	l.balances = next
	return nil
}
