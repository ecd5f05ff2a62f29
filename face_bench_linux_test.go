package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// BenchmarkFace is what the typed face costs beside the bytes below it: one host in memory, so that nothing
// else costs much. Believe cpu-ns/op, the processor time of the whole process; ns/op is that of a machine on
// which others work.
//
//	go test . -run '^$' -bench Face -count 6
func BenchmarkFace(b *testing.B) {
	for _, clients := range []int{1, 16, 100, 1000} {
		b.Run(fmt.Sprintf("propose/%d/bytes", clients), func(b *testing.B) {
			g := inMemory(b)
			benchClients(b, clients, func(command []byte) error {
				_, err := g.Propose(b.Context(), append(make([]byte, 0, len(command)), command...))
				return err
			})
		})
		b.Run(fmt.Sprintf("propose/%d/typed", clients), func(b *testing.B) {
			n := inMemoryTyped(b)
			benchClients(b, clients, func(command []byte) error { _, err := n.Propose(b.Context(), command); return err })
		})
		b.Run(fmt.Sprintf("many/%d/bytes", clients), func(b *testing.B) {
			g, done := inMemory(b), host.NewCompletions(clients)
			var taken []outcome.Completion
			benchMany(b, clients, func(commands [][]byte, tags []uint64) (int, error) {
				for i := range commands {
					commands[i] = append(make([]byte, 0, len(commands[i])), commands[i]...)
				}
				return g.SubmitMany(commands, tags, done)
			}, func() int {
				<-done.Ready()
				taken = done.Take(taken)
				return len(taken)
			})
		})
		b.Run(fmt.Sprintf("many/%d/typed", clients), func(b *testing.B) {
			n, done := inMemoryTyped(b), millrace.NewCompletions[uint64](clients)
			var taken []millrace.Completion[uint64]
			benchMany(b, clients, func(commands [][]byte, tags []uint64) (int, error) { return n.SubmitMany(commands, tags, done) }, func() int {
				<-done.Ready()
				taken = done.Take(taken)
				return len(taken)
			})
		})
	}
}

// inMemory opens a group of bytes on a host of its own, without a disk and a network.
func inMemory(b *testing.B) *host.Group {
	h := hostInMemory(b)
	g, err := h.OpenGroup(b.Context(), host.GroupConfig{ID: 1, Volatile: true}, &raw{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := g.WaitLeader(b.Context()); err != nil {
		b.Fatal(err)
	}
	return g
}

func inMemoryTyped(b *testing.B) *millrace.Node[[]byte, uint64] {
	n, err := millrace.OpenGroup(b.Context(), hostInMemory(b), host.GroupConfig{ID: 1}, millrace.InMemory(&ledger{}, millrace.BytesInPlace()))
	if err != nil {
		b.Fatal(err)
	}
	lead(b, n)
	return n
}

func hostInMemory(b *testing.B) *host.Host {
	h, err := host.Open(b.Context(), host.Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a"}, Durability: wal.ModeMemory},
		host.WithFS(crashfs.New()), host.WithTransport(loopback.NewNetwork().Host(1)), host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close(context.Background()) })
	return h
}

// benchClients has clients that propose a command of 1 KiB, wait, and propose again.
func benchClients(b *testing.B, clients int, propose func(command []byte) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	measured := cpuOf(b)
	for range clients {
		all.Go(func() {
			for command := make([]byte, 1<<10); left.Add(-1) >= 0; {
				if err := propose(command); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	measured()
}

// benchMany has one goroutine that keeps commands under way.
func benchMany(b *testing.B, under int, submit func(commands [][]byte, tags []uint64) (int, error), take func() int) {
	command := make([]byte, 1<<10)
	commands, tags := make([][]byte, under), make([]uint64, under)
	measured := cpuOf(b)
	for begun, done := 0, 0; done < b.N; done += take() {
		n := min(under-(begun-done), b.N-begun)
		for i := range n {
			commands[i] = command
		}
		taken, err := submit(commands[:n], tags[:n])
		if err != nil && !errors.Is(err, outcome.ErrOverloaded) {
			b.Fatal(err)
		}
		begun += taken
	}
	measured()
}

// cpuOf reports the processor time of what follows, until the function that it returns is called.
func cpuOf(b *testing.B) (measured func()) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := used()
	return func() {
		b.StopTimer()
		b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op")
	}
}
