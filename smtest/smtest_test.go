package smtest

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// order is a command of the machines of these tests.
type order struct {
	Key, Value string
	For        time.Duration // until it expires; 0: never
	Sum        bool          // the result is everything, in the order of the keys
}

var orders = []order{
	{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "c", Value: "3"}, {Sum: true},
	{Key: "d", Value: "4"}, {Key: "e", Value: "5", For: 20 * time.Millisecond}, {Key: "a", Value: "6"},
	{Sum: true}, {Key: "b"}, {Key: "f", Value: "7"}, {Sum: true}, {Key: "g", Value: "8"}, {Sum: true},
}

// store is a machine without a fault. Tests replace a part of it by a faulty one.
type store struct {
	State struct {
		Values map[string]string
		Until  map[string]time.Duration
	}
	sum      func(*store) string
	now      func(millrace.Command[order]) time.Duration
	before   func(*store, []millrace.Command[order], []string)
	snapshot func(*store) (millrace.Snapshot, error)
	restore  func(*store, io.Reader) error
}

func newStore(changes ...func(*store)) *store {
	s := &store{sum: sortedSum, now: func(c millrace.Command[order]) time.Duration { return c.Time }, snapshot: copied, restore: whole}
	s.State.Values, s.State.Until = map[string]string{}, map[string]time.Duration{}
	for _, change := range changes {
		change(s)
	}
	return s
}

func (s *store) Apply(batch []millrace.Command[order], results []string) error {
	if s.before != nil {
		s.before(s, batch, results)
		return nil
	}
	for i := range batch {
		results[i] = s.apply(batch[i])
	}
	return nil
}

func (s *store) apply(c millrace.Command[order]) string {
	now := s.now(c)
	for k, until := range s.State.Until {
		if until <= now {
			delete(s.State.Values, k)
			delete(s.State.Until, k)
		}
	}
	switch o := c.Value; {
	case o.Sum:
		return s.sum(s)
	case o.Value == "":
		delete(s.State.Values, o.Key)
	default:
		s.State.Values[o.Key] = o.Value
		if o.For > 0 {
			s.State.Until[o.Key] = now + o.For
		}
	}
	return "ok"
}

func (s *store) Snapshot() (millrace.Snapshot, error)         { return s.snapshot(s) }
func (s *store) Restore(_ context.Context, r io.Reader) error { return s.restore(s, r) }
func sortedSum(s *store) (sum string)                         { return s.sumOf(slices.Sorted(maps.Keys(s.State.Values))) }
func (s *store) sumOf(keys []string) (sum string) {
	for _, k := range keys {
		sum += k + "=" + s.State.Values[k] + " "
	}
	return sum
}

func copied(s *store) (millrace.Snapshot, error) {
	b, err := json.Marshal(s.State)
	return millrace.BytesSnapshot(b), err
}

func whole(s *store, r io.Reader) error {
	fresh := newStore()
	b, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(b, &fresh.State)
	}
	if err == nil {
		s.State = fresh.State
	}
	return err
}

// gobSnapshot writes the state in any order.
func gobSnapshot(s *store) (millrace.Snapshot, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(s.State)
	return millrace.BytesSnapshot(b.Bytes()), err
}

func gobRestore(s *store, r io.Reader) error {
	fresh := newStore()
	err := gob.NewDecoder(r).Decode(&fresh.State)
	if err == nil {
		s.State = fresh.State
	}
	return err
}

func inMemory(changes ...func(*store)) func() millrace.Machine[order, string] {
	return func() millrace.Machine[order, string] {
		return millrace.InMemory[order, string](newStore(changes...), millrace.JSON[order]())
	}
}

func TestGoodMachines(t *testing.T) {
	for name, newMachine := range map[string]func() millrace.Machine[order, string]{
		"plain": inMemory(),
		"a snapshot in any order": inMemory(func(s *store) {
			s.snapshot, s.restore = gobSnapshot, gobRestore
		}),
		"goroutines that Apply waits for": inMemory(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				for i := range batch {
					var wg sync.WaitGroup
					wg.Go(func() { results[i] = s.apply(batch[i]) })
					wg.Wait()
				}
			}
		}),
		"with a digest": func() millrace.Machine[order, string] {
			s := newStore()
			digest := func() uint64 { return uint64(len(sortedSum(s))) }
			return millrace.InMemory[order, string](s, millrace.JSON[order]()).Digest(digest)
		},
		"durable": func() millrace.Machine[order, string] {
			return millrace.Durable[order, string](newFile(t), millrace.JSON[order]())
		},
	} {
		t.Run(name, func(t *testing.T) { Run(t, newMachine, orders...) })
	}
}

// file is a durable machine.
type file struct {
	*store
	name  string
	index uint64
}

func newFile(t *testing.T) *file {
	return &file{store: newStore(), name: filepath.Join(t.TempDir(), "index")}
}

func (f *file) Apply(batch []millrace.Command[order], results []string) error {
	f.index = batch[len(batch)-1].Index
	return f.store.Apply(batch, results)
}

func (f *file) Sync() error {
	return os.WriteFile(f.name, []byte(strconv.FormatUint(f.index, 10)), 0o600)
}

func (f *file) Applied() (uint64, error) {
	b, err := os.ReadFile(f.name)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	index, _ := strconv.ParseUint(string(b), 10, 64)
	return index, err
}

// TestFaultyMachines: each fault is found, and the sentence names it.
func TestFaultyMachines(t *testing.T) {
	var shared int
	for _, c := range []struct {
		fault string
		new   func() millrace.Machine[order, string]
		want  []string
	}{
		{"the order of a map", inMemory(func(s *store) {
			s.sum = func(s *store) string { return s.sumOf(slices.Collect(maps.Keys(s.State.Values))) }
		}), []string{"not deterministic: command", "of 13, {Key: Value: For:0s Sum:true}, at index", "look for the order of a map"}},
		{"the clock", inMemory(func(s *store) {
			origin := time.Now()
			s.now = func(millrace.Command[order]) time.Duration { return time.Since(origin) }
		}), []string{"not deterministic", "look for time.Now (Command.Time instead)"}},
		{"the date", inMemory(func(s *store) {
			s.sum = func(s *store) string { return sortedSum(s) + time.Now().Format(time.DateOnly) }
		}), []string{"with the clock of the year 2000", "look for time.Now (Command.Time instead)"}},
		{"the clock, in the state only", inMemory(func(s *store) {
			s.now = func(c millrace.Command[order]) time.Duration {
				if c.Value.Sum {
					s.State.Until["seen"] = 1000*time.Hour + time.Duration(time.Now().UnixNano())
				}
				return c.Time
			}
		}), []string{"gave the same results, the states differ", "look for time.Now"}},
		{"goroutines", inMemory(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				var wg sync.WaitGroup
				var mu sync.Mutex
				for i := range batch {
					wg.Go(func() {
						mu.Lock()
						defer mu.Unlock()
						results[i] = s.apply(batch[i])
					})
				}
				wg.Wait()
			}
		}), []string{"not deterministic: command"}},
		{"goroutines that Apply does not wait for", inMemory(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				for i := range batch[1:] {
					results[i] = s.apply(batch[i])
				}
				last := len(batch) - 1
				answer := s.apply(batch[last])
				go func() { results[last] = answer }()
			}
		}), []string{"after it had returned: it must wait for its goroutines|not deterministic: command"}},
		{"the size of a batch", inMemory(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				for i := range batch {
					results[i] = s.apply(batch[i])
				}
				results[0] += fmt.Sprint(len(batch))
			}
		}), []string{"look for what depends on where a batch ends"}},
		{"a state that depends on who waits", inMemory(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				for i := range batch {
					if results[i] = s.apply(batch[i]); batch[i].Awaited {
						s.State.Until["answers"]++
					}
				}
			}
		}), []string{"after all 13 commands, which gave the same results", "it differs with Command.Awaited"}},
		{"a compared result that depends on who waits", inMemory(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				for i := range batch {
					if answer := s.apply(batch[i]); batch[i].Awaited {
						results[i] = answer
					}
				}
			}
		}), []string{"members would compare what differs", "it differs with Command.Awaited"}},
		{"publications in the order of a map", inMemory(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				for i := range batch {
					results[i] = s.apply(batch[i])
					for k := range s.State.Values {
						batch[i].Publish([]byte(k))
					}
				}
			}
		}), []string{"publishes [", "and in another machine", "look for the order of a map"}},
		{"a random number", inMemory(func(s *store) {
			s.sum = func(*store) string { return fmt.Sprint(rand.IntN(1 << 20)) }
		}), []string{"a random number"}},
		{"a shared variable", inMemory(func(s *store) {
			s.sum = func(*store) string { shared++; return fmt.Sprint(shared) }
		}), []string{"a variable that several machines share"}},
		{"a restore that stops half way", inMemory(func(s *store) {
			s.restore = func(s *store, r io.Reader) error {
				clear(s.State.Values)
				d := json.NewDecoder(r)
				return d.Decode(&s.State)
			}
		}), []string{"Restore is not atomic", "read everything before you replace anything"}},
		{"a restore that replaces a part first", inMemory(func(s *store) {
			s.snapshot, s.restore = gobSnapshot, func(s *store, r io.Reader) error {
				clear(s.State.Values)
				return gobRestore(s, r)
			}
		}), []string{"Restore is not atomic", "without the Restore"}},
		{"a restore that keeps the old state too", inMemory(func(s *store) {
			s.restore = func(s *store, r io.Reader) error {
				b, err := io.ReadAll(r)
				if err != nil || !json.Valid(b) {
					return errors.Join(err, errors.New("no state"))
				}
				return json.Unmarshal(b, &s.State)
			}
		}), []string{"after it has applied all commands itself, has another state"}},
		{"a restore that believes one Read", inMemory(func(s *store) {
			s.restore = func(s *store, r io.Reader) error {
				b := make([]byte, 1<<20)
				n, err := r.Read(b)
				if err != nil {
					return err
				}
				return whole(s, bytes.NewReader(b[:n]))
			}
		}), []string{"Restore returns an error for a snapshot", "read byte by byte"}},
		{"a snapshot that is the living state", inMemory(func(s *store) {
			s.snapshot = func(s *store) (millrace.Snapshot, error) { return live{s}, nil }
		}), []string{"written after the other commands were applied, has another state"}},
		{"a snapshot without a part of the state", inMemory(func(s *store) {
			s.snapshot = func(s *store) (millrace.Snapshot, error) {
				b, err := json.Marshal(map[string]any{"Values": s.State.Values})
				return millrace.BytesSnapshot(b), err
			}
		}), []string{"continues differently: command"}},
		{"a snapshot that hides the error of its writer", inMemory(func(s *store) {
			s.snapshot = func(s *store) (millrace.Snapshot, error) {
				b, err := json.Marshal(s.State)
				return silent(b), err
			}
		}), []string{"WriteTo of the snapshot returns nil, although its writer has failed"}},
		{"a restore that hides the error of its reader", inMemory(func(s *store) {
			s.restore = func(s *store, r io.Reader) error {
				_ = whole(s, r)
				return nil
			}
		}), []string{"Restore returns nil, although its reader has failed"}},
		{"a digest of what is not the state", func() millrace.Machine[order, string] {
			applied := 0
			s := newStore(func(s *store) {
				s.before = func(s *store, batch []millrace.Command[order], results []string) {
					applied++
					for i := range batch {
						results[i] = s.apply(batch[i])
					}
				}
			})
			return millrace.InMemory[order, string](s, millrace.JSON[order]()).Digest(func() uint64 { return uint64(applied) })
		}, []string{"gave the same results, the digests of the states are 0x1 and 0xd"}},
		{"an error for a command", inMemory(func(s *store) {
			s.sum = func(*store) string { panic("no sum") }
		}), []string{"Apply panics with commands 1 to 13 of 13: no sum"}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			if raceDetector && strings.HasSuffix(c.fault, "does not wait for") {
				t.Skip("the race detector finds it")
			}
			err := check(t, c.new, orders)
			if err == nil {
				t.Fatal("not found")
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			t.Log(first)
			for _, want := range c.want {
				said := func(want string) bool { return strings.Contains(err.Error(), want) }
				if !slices.ContainsFunc(strings.Split(want, "|"), said) { // of a race, whichever comes first
					t.Errorf("the sentence lacks %q", want)
				}
			}
		})
	}
}

// live writes the state as it is then.
type live struct{ s *store }

func (l live) WriteTo(ctx context.Context, w io.Writer) error {
	snap, err := copied(l.s)
	if err != nil {
		return err
	}
	return snap.WriteTo(ctx, w)
}

func (live) Close() error { return nil }

// silent is a snapshot whose WriteTo does not look.
type silent []byte

func (s silent) WriteTo(_ context.Context, w io.Writer) error {
	_, _ = w.Write(s)
	return nil
}

func (silent) Close() error { return nil }

// note is a command with bytes, and a result that may share memory.
type notes struct{ lines [][]byte }

func (n *notes) Apply(batch []millrace.Command[[]byte], results [][]byte) error {
	for i := range batch {
		n.lines = append(n.lines, batch[i].Value)
		results[i] = bytes.Join(n.lines, []byte(" "))
	}
	return nil
}

func (n *notes) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(bytes.Join(n.lines, []byte("\n"))), nil
}

func (n *notes) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	n.lines = nil
	if len(b) > 0 {
		n.lines = bytes.Split(b, []byte("\n"))
	}
	return nil
}

// sharing returns a part of its state.
type sharing struct{ notes }

func (s *sharing) Apply(batch []millrace.Command[[]byte], results [][]byte) error {
	for i := range batch {
		s.lines = append(s.lines, batch[i].Value)
		results[i] = s.lines[0]
		s.lines[0][0]++
	}
	return nil
}

// keeping is a codec that keeps what belongs to the log.
type keeping struct{ millrace.Codec[[]byte] }

func (keeping) Decode(b []byte) ([]byte, error) { return b, nil }

// replacing is a codec that does not append.
type replacing struct{ millrace.Codec[[]byte] }

func (replacing) Append(_, v []byte) ([]byte, error) { return bytes.Clone(v), nil }

func TestFaultyCodecs(t *testing.T) {
	Run(t, func() millrace.Machine[[]byte, []byte] { return millrace.InMemory(&notes{}, millrace.Bytes()) }, []byte("one"), []byte("two"), []byte("three"))
	for _, c := range []struct {
		fault string
		new   func() millrace.Machine[[]byte, []byte]
		want  string
	}{
		{"keeps", func() millrace.Machine[[]byte, []byte] {
			return millrace.InMemory(&notes{}, millrace.Codec[[]byte](keeping{millrace.Bytes()}))
		}, "Decode of the codec keeps bytes of its argument"},
		{"replaces", func() millrace.Machine[[]byte, []byte] {
			return millrace.InMemory(&notes{}, millrace.Codec[[]byte](replacing{millrace.Bytes()}))
		}, "Append of the codec does not append"},
		{"shares", func() millrace.Machine[[]byte, []byte] { return millrace.InMemory(&sharing{}, millrace.Bytes()) }, "it shares memory with the state"},
		{"none", func() millrace.Machine[[]byte, []byte] { return millrace.Machine[[]byte, []byte]{} }, "without a state machine or without a codec"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			err := check(t, c.new, [][]byte{[]byte("one"), []byte("two"), []byte("three")})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if err := check(t, inMemory(), nil); err == nil || !strings.Contains(err.Error(), "needs commands") {
		t.Errorf("without commands: %v", err)
	}
}

// hidden is a command with a field that JSON does not see.
type hidden struct {
	by   int
	Name string
}

type adder struct{ n int }

func (a *adder) Apply(batch []millrace.Command[hidden], results []int) error {
	for i := range batch {
		a.n += batch[i].Value.by
		results[i] = a.n
	}
	return nil
}
func (a *adder) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(strconv.AppendInt(nil, int64(a.n), 10)), nil
}
func (a *adder) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(b))
	if err == nil {
		a.n = n
	}
	return err
}

func TestCodecThatLosesAField(t *testing.T) {
	err := check(t, func() millrace.Machine[hidden, int] { return millrace.InMemory(&adder{}, millrace.JSON[hidden]()) }, []hidden{{by: 1}, {by: 2}})
	if err == nil || !strings.Contains(err.Error(), "the codec loses something of a command: command 1 of 2, {by:1 Name:}, comes back as {by:0 Name:}") {
		t.Error(err)
	}
}

// TestMachineWithAGoroutine: what a machine does in the background, for itself, is its own concern, whether
// it ends with Close or never.
func TestMachineWithAGoroutine(t *testing.T) {
	for _, closes := range []bool{true, false} {
		Run(t, func() millrace.Machine[order, string] {
			b := &background{newStore(), make(chan struct{})}
			if closes {
				return millrace.InMemory[order, string](closing{b}, millrace.JSON[order]())
			}
			return millrace.InMemory[order, string](b, millrace.JSON[order]())
		}, orders...)
	}
}

type background struct {
	*store
	work chan struct{}
}

func (b *background) Apply(batch []millrace.Command[order], results []string) error {
	go func() { <-b.work }()
	return b.store.Apply(batch, results)
}

type closing struct{ *background }

func (c closing) Close() error { close(c.work); return nil }

// TestApplyThatWaitsForever: in a bubble it is an error, not a hang.
func TestApplyThatWaitsForever(t *testing.T) {
	err := check(t, inMemory(func(s *store) {
		began := time.Now()
		s.before = func(s *store, batch []millrace.Command[order], results []string) {
			if began.Year() == 2000 {
				<-make(chan struct{})
			}
			for i := range batch {
				results[i] = s.apply(batch[i])
			}
		}
	}), orders)
	if err == nil || !strings.Contains(err.Error(), "waits for something that never comes") {
		t.Error(err)
	}
}

// asked has the whole map as its result, which is built for callers only.
type asked struct {
	Done string
	All  []string `millrace:"awaited"`
}

type asking struct{ *store }

func (a asking) Apply(batch []millrace.Command[order], results []asked) error {
	for i := range batch {
		if results[i].Done = a.apply(batch[i]); batch[i].Awaited {
			results[i].All = []string{sortedSum(a.store)}
		}
	}
	return nil
}

// A machine that builds answers for callers only has no fault, whether its results are kept or not.
func TestAnswersForCallers(t *testing.T) {
	machine := func() millrace.Machine[order, asked] {
		return millrace.InMemory[order, asked](asking{newStore()}, millrace.JSON[order]())
	}
	Run(t, machine, orders...)
	Run(t, func() millrace.Machine[order, asked] { return machine().Results(millrace.JSON[asked]()) }, orders...)
}
