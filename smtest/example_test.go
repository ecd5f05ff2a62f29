package smtest_test

import (
	"context"
	"encoding/binary"
	"io"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/smtest"
)

// counter adds up its commands; the result of each is the sum after it.
type counter struct{ n int64 }

func (c *counter) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		c.n += batch[i].Value
		results[i] = c.n
	}
	return nil
}

func (c *counter) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(nil, uint64(c.n))), nil
}

func (c *counter) Restore(_ context.Context, r io.Reader) error {
	return binary.Read(r, binary.BigEndian, &c.n)
}

func TestMachine(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[int64, int64] {
		return millrace.InMemory(&counter{}, millrace.Binary[int64]())
	}, 1, 2, 3, -7, 0, 1<<40)
}
