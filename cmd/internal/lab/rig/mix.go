package rig

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Mixed is a cluster as a load.Target of reads and writes. Each client draws for each operation, from the
// number of the operation alone, which of the two it is. Writes are in the ledger of the cluster under
// clients of their own, so a window has no ledger: the one that it makes counts reads, too.
type Mixed struct {
	reader Reader
	reads  int // percent
	source *load.Source

	mu      sync.Mutex
	writers map[uint32]*writer // by the client of the window

	readTimes, writeTimes times
}

// writer is one client's page in the ledger of the cluster.
type writer struct {
	client uint32
	page   *load.Page
}

// Mix returns the cluster as a target of which some percent of the operations are reads, and the others
// writes of valueBytes. It is for one window.
func (c *Cluster) Mix(by Reading, reads, valueBytes int, seed uint64) (*Mixed, error) {
	r, err := c.Reads(by)
	if err != nil {
		return nil, err
	}
	return &Mixed{
		reader: r, reads: reads, source: load.NewSource(valueBytes, seed), writers: map[uint32]*writer{},
		readTimes: times{latency: load.NewLatencies()}, writeTimes: times{latency: load.NewLatencies()},
	}, nil
}

// times are the latencies of one kind of operation, warm-up included.
type times struct {
	mu      sync.Mutex
	latency *load.Latencies
}

func (t *times) record(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latency.Record(took)
}

// Reads and Writes return how long the operations of each kind took, beginning with their call, warm-up
// included. The window must have ended.
func (m *Mixed) Reads() *load.Latencies  { return m.readTimes.latency }
func (m *Mixed) Writes() *load.Latencies { return m.writeTimes.latency }

// Propose implements load.Target: it reads or writes.
func (m *Mixed) Propose(ctx context.Context, value []byte) (err error) {
	id := load.IDOf(value)
	began, to := time.Now(), &m.writeTimes
	switch {
	case int(draw(id)%100) >= m.reads:
		err = m.write(ctx, id.Client)
	case m.reader.Reading == ByLog: // a command like any other
		err, to = m.write(ctx, id.Client), &m.readTimes
	default:
		err, to = m.reader.Propose(ctx, value), &m.readTimes
	}
	if err == nil {
		to.record(time.Since(began))
	}
	return err
}

// write makes the next write of a client. A client of a window has one operation at a time.
func (m *Mixed) write(ctx context.Context, client uint32) error {
	m.mu.Lock()
	w := m.writers[client]
	if w == nil {
		w = &writer{}
		w.client, w.page = m.reader.ledger.Open()
		m.writers[client] = w
	}
	m.mu.Unlock()
	seq := w.page.Send()
	err := m.reader.Cluster.Propose(ctx, m.source.Value(load.ValueID{Client: w.client, Seq: seq}))
	if err == nil {
		w.page.Acknowledge(seq)
	}
	return err
}

// draw turns the number of an operation into any number.
func draw(id load.ValueID) uint64 {
	x := uint64(id.Client)<<40 ^ id.Seq
	x = (x ^ x>>31) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return x ^ x>>32
}

// Counters implements load.Target.
func (m *Mixed) Counters() load.Counters { return m.reader.Counters() }

// Verify implements load.Target, by the cluster's own ledger.
func (m *Mixed) Verify(ctx context.Context, _ *load.Ledger) error {
	return m.reader.Cluster.Verify(ctx, m.reader.ledger)
}

// Close implements load.Target.
func (m *Mixed) Close() error { return m.reader.Close() }

// Copies implements load.Copier: values of a window only carry the number of an operation.
func (*Mixed) Copies() bool { return true }

var _ interface {
	load.Target
	load.Copier
} = (*Mixed)(nil)
