package millrace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/millrace/millrace"
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

func quiet() millrace.Option { return millrace.WithLogger(slog.New(slog.DiscardHandler)) }

func alone(t testing.TB) millrace.Config {
	return millrace.Config{ID: 1, Dir: t.TempDir(), Members: map[uint64]string{1: "127.0.0.1:0"}}
}

// open opens a node of one member, and closes it when the test ends.
func open[C, R any](t testing.TB, c millrace.Config, m millrace.Machine[C, R], o ...millrace.Option) *millrace.Node[C, R] {
	t.Helper()
	n, err := millrace.Open(t.Context(), c, m, append(o, quiet())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// A node that is opened again has the state that it had: in a new directory and in an old one the call is the
// same.
func TestProposeReturnsTheResult(t *testing.T) {
	c := alone(t)
	want := int64(0)
	for range 3 {
		n, err := millrace.Open(t.Context(), c, millrace.InMemory(&counter{}, millrace.Binary[int64]()), quiet())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.WaitLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range int64(100) {
			var r millrace.Receipt
			got, err := n.Propose(t.Context(), i, millrace.WithReceipt(&r))
			if err != nil {
				t.Fatal(err)
			}
			if want += i; got != want {
				t.Fatalf("the result of adding %d is %d, want %d", i, got, want)
			}
			if r.Index == 0 || r.Term == 0 {
				t.Fatalf("the receipt is %+v", r)
			}
		}
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Propose(t.Context(), 1); !errors.Is(err, millrace.ErrStopped) {
			t.Fatalf("Propose after Close: %v, want ErrStopped", err)
		}
	}
}
