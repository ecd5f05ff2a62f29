// Package counting has the state machine of tests that need any: a counter.
package counting

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/millrace/millrace"
)

// Counter adds up its commands; the result of each is the sum after it. It has no lock, so that the race
// detector sees who reads it beside Apply.
type Counter struct{ N int64 }

// Apply implements millrace.StateMachine.
func (c *Counter) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		c.N += batch[i].Value
		results[i] = c.N
	}
	return nil
}

// Snapshot implements millrace.StateMachine.
func (c *Counter) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(nil, uint64(c.N))), nil
}

// Restore implements millrace.StateMachine.
func (c *Counter) Restore(_ context.Context, r io.Reader) error {
	return binary.Read(r, binary.BigEndian, &c.N)
}
