package millrace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
)

// ledger is a machine of bytes; its result is how many commands there were.
type ledger struct {
	n     uint64
	apply func(batch []millrace.Command[[]byte]) error // not nil: before the count
}

func (l *ledger) Apply(batch []millrace.Command[[]byte], results []uint64) error {
	if l.apply != nil {
		if err := l.apply(batch); err != nil {
			return err
		}
	}
	for i := range batch {
		l.n++
		results[i] = l.n
	}
	return nil
}

func (l *ledger) Snapshot() (millrace.Snapshot, error)     { return millrace.BytesSnapshot(nil), nil }
func (l *ledger) Restore(context.Context, io.Reader) error { return nil }

func lead[C, R any](t testing.TB, n *millrace.Node[C, R]) {
	t.Helper()
	if _, err := n.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// raw is a machine of package host beside ledger.
type raw struct{ n uint64 }

func (r *raw) Apply(entries []statemachine.Entry) error { r.n += uint64(len(entries)); return nil }

// stored is a ledger whose state counts as stored.
type stored struct{ ledger }

func (*stored) Applied() (uint64, error) { return 0, nil }
func (*stored) Sync() error              { return nil }

// TestAllocationsOfAProposal bounds what one proposal allocates, on a host alone and on three hosts together,
// with everything that they do for it, when many are under way. On each host the codec makes one copy. A
// follower allocates what it receives once for each batch.
func TestAllocationsOfAProposal(t *testing.T) {
	inMemory := func() millrace.Machine[[]byte, uint64] { return millrace.InMemory(&ledger{}, millrace.Bytes()) }
	durable := func() millrace.Machine[[]byte, uint64] { return millrace.Durable(&stored{}, millrace.Bytes()) }
	for _, row := range []struct {
		name         string
		machine      func() millrace.Machine[[]byte, uint64]
		hosts, bytes int
		most         float64
	}{
		{"alone", inMemory, 1, 1 << 10, 4},
		{"in memory, 32 B", inMemory, 3, 32, 6},
		{"in memory, 1 KiB", inMemory, 3, 1 << 10, 6},
		{"durable, 32 B", durable, 3, 32, 6},
		{"durable, 1 KiB", durable, 3, 1 << 10, 6},
	} {
		t.Run(row.name, func(t *testing.T) {
			var n *millrace.Node[[]byte, uint64]
			if row.hosts == 1 {
				n = open(t, alone(t), row.machine())
				lead(t, n)
			} else {
				n = threeOverTCP(t, row.machine)
			}
			if row.hosts > 1 {
				waitForBatches(t, n)
			}
			got := math.Inf(1)
			for tries := 0; tries < 5 && got > row.most; tries++ { // on a busy machine few share a batch
				got = min(got, allocations(t, n, make([]byte, row.bytes)))
			}
			t.Logf("%.2f allocations for each proposal", got)
			if got > row.most && !withRace() {
				t.Errorf("%.2f allocations for each proposal, want %v at most", got, row.most)
			}
		})
	}
}

// threeOverTCP starts three hosts as programs do, on a disk and with connections, and returns the leader.
func threeOverTCP(t *testing.T, machine func() millrace.Machine[[]byte, uint64]) *millrace.Node[[]byte, uint64] {
	t.Helper()
	members := map[uint64]string{}
	for id := uint64(1); id <= 3; id++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		members[id] = l.Addr().String()
		_ = l.Close()
	}
	var nodes []*millrace.Node[[]byte, uint64]
	for id := uint64(1); id <= 3; id++ {
		nodes = append(nodes, open(t, millrace.Config{ID: id, Dir: scratch.Dir(t), Members: members}, machine()))
	}
	leader, err := nodes[0].WaitLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return nodes[leader.ID-1]
}

// waitForBatches proposes until commands share entries. Until a leader knows that all members read such
// entries, each command has one of its own.
func waitForBatches(t *testing.T, n *millrace.Node[[]byte, uint64]) {
	t.Helper()
	for range 1000 {
		before := n.Status().LastIndex
		proposeBeside(t, n, []byte{1}, 1)
		if n.Status().LastIndex-before < proposers/2 {
			return
		}
	}
	t.Fatalf("%d proposals at a time never share entries", proposers)
}

const proposers = 100

// proposeBeside proposes a command several times in each of many goroutines.
func proposeBeside(t *testing.T, n *millrace.Node[[]byte, uint64], command []byte, each int) {
	var all sync.WaitGroup
	for range proposers {
		all.Go(func() {
			for range each {
				if _, err := n.Propose(t.Context(), command); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// allocations returns what the process allocates for each of many proposals of a command.
func allocations(t *testing.T, n *millrace.Node[[]byte, uint64], command []byte) float64 {
	const each = 20
	return testing.AllocsPerRun(5, func() { proposeBeside(t, n, command, each) }) / (proposers * each)
}

// withRace reports whether the race detector is on, which makes every sync.Pool forget some of what it is
// given.
func withRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func BenchmarkPropose(b *testing.B) {
	command := make([]byte, 1<<10)
	bench := func(b *testing.B, one func() error) {
		b.ReportAllocs()
		b.SetParallelism(100)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := one(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.Run("face/result", func(b *testing.B) {
		n := open(b, alone(b), millrace.InMemory(&ledger{}, millrace.Bytes()))
		lead(b, n)
		bench(b, func() error { _, err := n.Propose(b.Context(), command); return err })
	})
	b.Run("face/committed", func(b *testing.B) {
		n := open(b, alone(b), millrace.InMemory(&ledger{}, millrace.Bytes()))
		lead(b, n)
		bench(b, func() error { _, err := n.Commit(b.Context(), command); return err })
	})
	b.Run("host/propose", func(b *testing.B) {
		g := openRaw(b)
		bench(b, func() error { _, err := g.Propose(b.Context(), append([]byte(nil), command...)); return err })
	})
	b.Run("host/submit", func(b *testing.B) {
		g := openRaw(b)
		bench(b, func() error {
			p, err := g.Submit(append([]byte(nil), command...))
			if err == nil {
				_, err = p.Wait(b.Context())
			}
			return err
		})
	})
}

func openRaw(b *testing.B) *host.Group {
	b.Helper()
	h, err := host.Open(b.Context(), host.Config{ID: 1, Dir: scratch.Dir(b), Members: map[uint64]string{1: "127.0.0.1:0"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close(context.Background()) })
	g, err := h.OpenGroup(b.Context(), host.GroupConfig{ID: 1, Volatile: true}, &raw{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := g.WaitLeader(b.Context()); err != nil {
		b.Fatal(err)
	}
	return g
}

// held is a machine whose Apply waits until it is released.
func held() (l *ledger, entered chan struct{}, release func()) {
	entered, gate := make(chan struct{}, 100), make(chan struct{})
	l = &ledger{apply: func([]millrace.Command[[]byte]) error {
		entered <- struct{}{}
		<-gate
		return nil
	}}
	return l, entered, sync.OnceFunc(func() { close(gate) })
}

// hanging opens a node with such a machine. The test closes it.
func hanging(t *testing.T) (n *millrace.Node[[]byte, uint64], entered chan struct{}, release func()) {
	machine, entered, release := held()
	n, err := millrace.Open(t.Context(), alone(t), millrace.InMemory(machine, millrace.Bytes()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	lead(t, n)
	return n, entered, release
}

// Any number of callers wait for one command, in each of the ways, and get the same outcome. A wait whose
// context ends says that the command is committed and not applied, and the command continues.
func TestPendingWaitsInEveryWay(t *testing.T) {
	machine, entered, release := held()
	defer release()
	n := open(t, alone(t), millrace.InMemory(machine, millrace.Bytes()))
	lead(t, n)
	p, err := n.Submit([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	committed, err := p.WaitCommitted(t.Context())
	if err != nil || committed.Index == 0 {
		t.Fatalf("WaitCommitted: %+v, %v", committed, err)
	}
	<-p.Committed()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if _, r, err := p.Wait(ended); !millrace.MayHaveCommitted(err) || !errors.Is(err, context.Canceled) || r.Index != committed.Index ||
			!strings.Contains(err.Error(), fmt.Sprintf("committed at index %d, and this host has not applied it yet", committed.Index)) {
			t.Fatalf("Wait with an ended context: %+v, %v", r, err)
		}
	}
	if _, _, done, _ := p.Poll(); done {
		t.Fatal("Poll knows an outcome that is not there")
	}
	var all sync.WaitGroup
	check := func(result uint64, r millrace.Receipt, err error) {
		if result != 1 || r.Index != committed.Index || r.Term != committed.Term || err != nil {
			t.Errorf("an outcome is %d, %+v, %v", result, r, err)
		}
	}
	for range 20 {
		all.Go(func() { check(p.Wait(t.Context())) })
		all.Go(func() {
			<-p.Done()
			result, r, done, err := p.Poll()
			if !done {
				t.Error("Done is closed, and Poll knows no outcome")
			}
			check(result, r, err)
		})
	}
	release()
	all.Wait()
	check(p.Wait(ended)) // a known outcome wins
	r, err := p.WaitCommitted(ended)
	if committed.Applied = r.Applied; r != committed || r.Applied == 0 || err != nil {
		t.Errorf("WaitCommitted afterwards: %+v, %v", r, err)
	}
}

// Propose with a context that ends says what is known: nothing was proposed, or the command is committed and
// not applied.
func TestProposeWhenTheContextEnds(t *testing.T) {
	machine, entered, release := held()
	defer release()
	n := open(t, alone(t), millrace.InMemory(machine, millrace.Bytes()))
	lead(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	var receipt millrace.Receipt
	if _, err := n.Propose(ctx, []byte("x"), millrace.WithReceipt(&receipt)); !millrace.MayHaveCommitted(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("Propose whose context ended in Apply: %v", err)
	}
	if last := n.Status().LastIndex; receipt.Index == 0 || receipt.Index != last {
		t.Errorf("it is committed, and its receipt is %+v, want index %d", receipt, last)
	}
	if _, err := n.Propose(ctx, []byte("x")); millrace.MayHaveCommitted(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("Propose with an ended context: %v", err)
	}
}

// A machine that fails, panics, or cannot be given a command is halted with a sentence. Every caller
// gets an outcome, which says that the command may be applied elsewhere.
func TestBrokenMachine(t *testing.T) {
	for _, broken := range []struct {
		name  string
		apply func([]millrace.Command[[]byte]) error
		codec millrace.Codec[[]byte]
		want  string
	}{
		{"error", func([]millrace.Command[[]byte]) error { return errors.New("the index is corrupt") }, millrace.Bytes(), "the index is corrupt"},
		{"panic", func([]millrace.Command[[]byte]) error { panic("no such shelf") }, millrace.Bytes(), "panicked while applying entries"},
		{"goexit", func([]millrace.Command[[]byte]) error { runtime.Goexit(); return nil }, millrace.Bytes(), "ended its goroutine while applying"},
		{"codec", nil, liar{forgetful{millrace.Bytes()}}, "the codec cannot decode command 4, of 1 bytes: forgotten; all members of a group need the codec"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			n := open(t, alone(t), millrace.InMemory(&ledger{apply: broken.apply}, broken.codec))
			lead(t, n)
			var pending []*millrace.Pending[uint64]
			for range 10 {
				p, err := n.Submit([]byte("x"))
				if err != nil && !errors.Is(err, millrace.ErrMachineHalted) {
					t.Fatal(err)
				}
				if err == nil {
					pending = append(pending, p)
				}
			}
			for i, p := range pending {
				if _, _, err := p.Wait(t.Context()); !millrace.MayHaveCommitted(err) && !errors.Is(err, millrace.ErrMachineHalted) {
					t.Errorf("outcome %d: %v", i, err)
				}
			}
			if _, err := n.Propose(t.Context(), []byte("x")); !errors.Is(err, millrace.ErrMachineHalted) || !strings.Contains(err.Error(), broken.want) {
				t.Errorf("Propose on the halted member: %v, want ErrMachineHalted with %q", err, broken.want)
			}
			if _, err := n.Read(t.Context(), millrace.Local); !errors.Is(err, millrace.ErrMachineHalted) {
				t.Errorf("a local read: %v", err)
			}
			if err := n.Halted(); n.Err() != nil || err == nil || !strings.Contains(err.Error(), broken.want) {
				t.Errorf("Halted: %v, want %q; Err: %v", err, broken.want, n.Err())
			}
		})
	}
}

// A function of ViewExclusive that ends its goroutine, as t.Fatal does, ends its read and nothing else.
func TestGoexitInDo(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Bytes()))
	for i := range uint64(5) { // more often than there are lanes
		err := n.ViewExclusive(t.Context(), millrace.Local, func() error { runtime.Goexit(); return nil })
		if err == nil || !strings.Contains(err.Error(), "ended its goroutine (runtime.Goexit, as t.Fatal does)") {
			t.Errorf("ViewExclusive: %v", err)
		}
		if count, err := n.Propose(t.Context(), []byte("x")); err != nil || count != i+1 {
			t.Fatalf("after it: %d, %v", count, err)
		}
	}
}

// Whenever a context ends, an outcome is true: acknowledged commands are applied once, those that are surely
// not committed never.
func TestOutcomesWhenContextsEnd(t *testing.T) {
	const workers, each = 6, 150
	applied := [3]map[int64]int{{}, {}, {}}
	c := three(t, func(id uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&tally{applied: applied[id-1]}, millrace.Binary[int64]())
	})
	lead(t, c.nodes[0])
	var errs [workers * each]error
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
				n, id := c.nodes[(w+i)%3], int64(w*each+i)
				if i%2 == 0 {
					_, errs[id] = n.Propose(ctx, id)
				} else {
					_, errs[id] = n.Commit(ctx, id)
				}
				cancel()
			}
		})
	}
	group.Wait()
	var last millrace.Receipt
	if _, err := c.nodes[0].Propose(t.Context(), -1, millrace.WithReceipt(&last)); err != nil {
		t.Fatal(err)
	}
	for i, n := range c.nodes {
		err := n.ViewExclusive(t.Context(), millrace.AtLeast(last.Index), func() error {
			for id, err := range errs {
				times := applied[i][int64(id)]
				surelyNot := err != nil && !millrace.MayHaveCommitted(err)
				if times > 1 || err == nil && times != 1 || surelyNot && times != 0 || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("host %d has applied command %d %d times, and its outcome is %v", i+1, id, times, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// tally counts how often each command is applied.
type tally struct {
	counter
	applied map[int64]int
}

func (s *tally) Apply(batch []millrace.Command[int64], results []int64) error {
	for _, c := range batch {
		s.applied[c.Value]++
	}
	return s.counter.Apply(batch, results)
}

// forgetful encodes and cannot decode.
type forgetful struct{ millrace.Codec[[]byte] }

func (forgetful) Decode([]byte) ([]byte, error) { return nil, errors.New("forgotten") }

// liar says that it is sure, and is wrong.
type liar struct{ forgetful }

func (liar) Sure() bool { return true }

// Close answers those who wait for a machine that hangs.
func TestCloseAnswersWhileApplyHangs(t *testing.T) {
	n, entered, release := hanging(t)
	defer release()
	p, err := n.Submit([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-p.Done(); cancel() }()
	if err := n.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v, want one that names what hangs", err)
	}
	if _, _, err := p.Wait(t.Context()); !millrace.MayHaveCommitted(err) {
		t.Errorf("the outcome is %v", err)
	}
	release()
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Commit returns the place of the command in the log, and does not wait for the state machine.
func TestCommitDoesNotWaitForApply(t *testing.T) {
	m, entered, release := held()
	n := open(t, alone(t), millrace.InMemory(m, millrace.Bytes()))
	lead(t, n)
	defer release()
	first, err := n.Commit(t.Context(), []byte("hangs in Apply"))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	second, err := n.Commit(t.Context(), []byte("waits behind it"))
	if err != nil || second.Index != first.Index+1 || second.Term != first.Term {
		t.Errorf("%+v after %+v, %v", second, first, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Commit(ended, []byte("never")); !errors.Is(err, context.Canceled) || millrace.MayHaveCommitted(err) {
		t.Error(err)
	}
}

// The receipt of a command with a result says when it passed each step, in order.
func TestReceiptHasEveryStep(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Bytes()))
	lead(t, n)
	for range 100 { // the host may tell the commit after the result, and then its time is not in the receipt
		var r millrace.Receipt
		if _, err := n.Propose(t.Context(), []byte("x"), millrace.WithReceipt(&r)); err != nil {
			t.Fatal(err)
		}
		if r.Applied == 0 {
			t.Fatalf("the receipt %+v has no time of its Apply", r)
		}
		if r.Committed > 0 && (r.Queued > r.Appended || r.Appended > r.Committed || r.Committed > r.Applied || r.By != 1) {
			t.Fatalf("the steps of the receipt %+v are out of order", r)
		}
	}
}

// hoarder keeps every command that it is given.
type hoarder struct {
	ledger
	kept [][]byte
}

func (h *hoarder) Apply(batch []millrace.Command[[]byte], _ []uint64) error {
	for i := range batch {
		h.kept = append(h.kept, batch[i].Value)
	}
	return nil
}

// TestCommandsMayBeKept: what the codec gives a machine stays as it is, whatever memory the host reuses.
func TestCommandsMayBeKept(t *testing.T) {
	for name, codec := range map[string]millrace.Codec[[]byte]{"Bytes": millrace.Bytes(), "BytesInPlace": millrace.BytesInPlace()} {
		m := &hoarder{}
		n := open(t, alone(t), millrace.InMemory(m, codec))
		lead(t, n)
		command := func(i int) []byte { return fmt.Appendf(make([]byte, 100), "%s %d", name, i) }
		for i := range 50 {
			if _, err := n.Propose(t.Context(), command(i)); err != nil {
				t.Fatal(err)
			}
		}
		for i, kept := range m.kept {
			if !bytes.Equal(kept, command(i)) {
				t.Fatalf("%s: command %d of %d is %q by now", name, i, len(m.kept), kept)
			}
		}
	}
}
