package host

import (
	"context"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// BenchmarkCall and BenchmarkSubmit hand commands to a group of one host, many at a time: the difference is
// what sessions, callers and receipts cost.
func BenchmarkCall(b *testing.B) {
	g := benchGroup(b, Commands(&benchMachine{}, statemachine.CommandOptions{}))
	const under = 256
	var calls [under]struct {
		call Call
		benchCaller
		data [CallRoom + 64]byte
	}
	for i := range calls {
		calls[i].done = make(chan struct{}, 2)
		calls[i].call.Owner = &calls[i].benchCaller
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		c := &calls[i%under]
		if i >= under {
			<-c.done
			<-c.done
		}
		c.call.Data = append(make([]byte, 0, len(c.data)), c.data[:]...) // the log keeps it
		if err := g.Call(&c.call); err != nil {
			b.Fatal(err)
		}
	}
}

// benchCaller gets a token for the commit, and one for the result.
type benchCaller struct{ done chan struct{} }

func (c *benchCaller) Committed(outcome.Receipt)               { c.done <- struct{}{} }
func (c *benchCaller) Failed(error)                            {} // only when the group is closed
func (c *benchCaller) Duplicate(outcome.Receipt, []byte, bool) { panic("a duplicate") }

type benchMachine struct{}

func (*benchMachine) Apply(batch []statemachine.Command) error {
	for i := range batch {
		if c := batch[i].Caller; c != nil {
			c.(*benchCaller).done <- struct{}{}
		}
	}
	return nil
}

func BenchmarkSubmit(b *testing.B) {
	g := benchGroup(b, ignoring{})
	const under = 256
	var pending [under]Pending
	var command [64]byte
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if i >= under {
			if _, err := pending[i%under].Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		var err error
		if pending[i%under], err = g.Submit(append([]byte(nil), command[:]...)); err != nil {
			b.Fatal(err)
		}
	}
}

type ignoring struct{}

func (ignoring) Apply([]statemachine.Entry) error { return nil }

func benchGroup(b *testing.B, m statemachine.Machine) *Group {
	h, err := Open(b.Context(), Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a"}, Durability: wal.ModeMemory},
		WithFS(crashfs.New()), WithTransport(loopback.NewNetwork().Host(1)), WithLogger(quiet))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close(context.Background()) })
	g, err := h.OpenGroup(b.Context(), GroupConfig{ID: 1}, m)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := g.WaitLeader(b.Context()); err != nil {
		b.Fatal(err)
	}
	return g
}
