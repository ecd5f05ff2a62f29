package millrace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
)

// swapped is the result of a swapper: what was there before is for the caller alone.
type swapped struct {
	Revision int64
	Before   []int64 `millrace:"awaited"`
}

// swapper keeps the latest value. It builds Before where the result is awaited.
type swapper struct {
	revision, value int64
	built           int
}

func (s *swapper) Apply(batch []millrace.Command[int64], results []swapped) error {
	for i := range batch {
		s.revision++
		results[i].Revision = s.revision
		if batch[i].Awaited {
			s.built++
			results[i].Before = []int64{s.value}
		}
		s.value = batch[i].Value
	}
	return nil
}

func (s *swapper) Snapshot() (millrace.Snapshot, error) {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.revision))
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(b, uint64(s.value))), nil
}

func (s *swapper) Restore(_ context.Context, r io.Reader) error {
	var both [2]int64
	if err := binary.Read(r, binary.BigEndian, &both); err != nil {
		return err
	}
	s.revision, s.value = both[0], both[1]
	return nil
}

// An answer is built where a caller waits for it: on the leader for its callers, on a follower for what it
// has forwarded. Members do not differ by it. With Results each member builds each answer, and a copy of a
// command gets the answer that was kept.
func TestAnswersAreBuiltWhereSomeoneWaits(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			machines := map[uint64]*swapper{}
			c := millracetest.New(t, 3, func(id uint64) millrace.Machine[int64, swapped] {
				machines[id] = &swapper{}
				m := millrace.InMemory(machines[id], millrace.Binary[int64]())
				if keeps {
					m = m.Results(millrace.JSON[swapped]())
				}
				return m
			})
			c.Leader(t.Context())
			for i := range int64(12) { // each node proposes four
				got, err := c.Node(uint64(i%3)+1).Propose(t.Context(), i+1)
				if err != nil || got.Revision != i+1 || !slices.Equal(got.Before, []int64{i}) {
					t.Fatalf("command %d: %+v, %v", i+1, got, err)
				}
				<-time.After(500 * time.Millisecond) // of the bubble
			}
			mark := c.Node(1).NewSession().Next()
			for id := range uint64(3) {
				<-time.After(500 * time.Millisecond) // all have applied the first
				got, err := c.Node(id+1).Propose(t.Context(), 99, millrace.InSession(mark))
				if again := id > 0 && !keeps; again != errors.Is(err, millrace.ErrAlreadyApplied) || !again && !slices.Equal(got.Before, []int64{12}) {
					t.Errorf("copy %d in a session: %+v, %v", id+1, got, err)
				}
			}
			<-time.After(2 * time.Second)
			synctest.Wait()
			all := 0
			for id := uint64(1); id <= 3; id++ {
				all += machines[id].built
				if at := c.Node(id).Group().Metrics().Divergence.DifferAt; at > 0 {
					t.Errorf("members differ, says node %d: %v", id, c.Node(id).Explain())
				}
			}
			if want := map[bool]int{false: 13, true: 39}[keeps]; all != want {
				t.Errorf("%d answers were built, want %d", all, want)
			}
		})
	}
}

// A sink gets the outcomes of a batch in one call, each once.
func TestSinkGetsABatchInOneCall(t *testing.T) {
	machine, entered, release := held()
	n := open(t, alone(t), millrace.InMemory(machine, millrace.Bytes()))
	lead(t, n)
	var mu sync.Mutex
	var calls [][]uint64
	all := make(chan struct{})
	seen := 0
	sink := millrace.NewSink(200, func(outcomes []millrace.Completion[uint64]) {
		mu.Lock()
		defer mu.Unlock()
		var tags []uint64
		for _, o := range outcomes {
			if tags = append(tags, o.Tag); o.Err != nil {
				t.Error(o.Err)
			}
		}
		calls = append(calls, tags)
		if seen += len(tags); seen == 100 {
			close(all)
		}
	})
	submit := func(from, n2 int) {
		commands, tags := make([][]byte, n2), make([]uint64, n2)
		for i := range tags {
			commands[i], tags[i] = []byte{1}, uint64(from+i)
		}
		if taken, err := n.SubmitMany(commands, tags, sink); taken != n2 || err != nil {
			t.Fatal(taken, err)
		}
	}
	submit(0, 1)
	<-entered
	submit(1, 99) // they gather while the machine hangs
	waitCommitted(t, n)
	release()
	<-all
	mu.Lock()
	defer mu.Unlock()
	if len(calls) > 4 || !slices.IsSorted(slices.Concat(calls...)) {
		t.Errorf("100 outcomes came in %d calls: %v", len(calls), calls)
	}
	if space := sink.Space(); space != 200 {
		t.Errorf("space for %d, want 200", space)
	}
}

// waitCommitted waits until much is committed that the machine has not applied.
func waitCommitted(t *testing.T, n *millrace.Node[[]byte, uint64]) {
	t.Helper()
	for since := time.Now(); n.Status().Committed < 4 && time.Since(since) < 2*time.Second; {
		<-time.After(time.Millisecond)
	}
	<-time.After(20 * time.Millisecond)
}
