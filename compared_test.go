package millrace_test

import (
	"context"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/millracetest"
)

type counterMachine = millrace.Machine[int64, int64]

// memberCounter is the counter of the README, with a mistake.
type memberCounter struct {
	n       int64
	mistake func(n int64) int64
}

func (c *memberCounter) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		c.n += batch[i].Value
		results[i] = c.mistake(c.n)
	}
	return nil
}

func (c *memberCounter) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(nil, uint64(c.n))), nil
}

func (c *memberCounter) Restore(_ context.Context, r io.Reader) error {
	return binary.Read(r, binary.BigEndian, &c.n)
}

// runCounter proposes a command each half second for five seconds, and returns what members say.
func runCounter(t *testing.T, newMachine func(id uint64) counterMachine) (said []diagnosis.Diagnosis, differ []uint64) {
	c := millracetest.New(t, 3, newMachine)
	c.Leader(t.Context())
	for range 10 {
		if _, err := c.Node(1).Propose(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		<-time.After(500 * time.Millisecond) // of the bubble
	}
	synctest.Wait()
	for id := uint64(1); id <= 3; id++ {
		said = append(said, c.Node(id).Explain())
		differ = append(differ, c.Node(id).Group().Metrics().Divergence.DifferAt)
	}
	return said, differ
}

// A machine whose results depend on the member, or on the clock, is noticed without any setting: in Explain
// of every member, and in the metrics.
func TestDifferentResultsAreNoticed(t *testing.T) {
	for name, mistake := range map[string]func(id uint64, n int64) int64{
		"the member": func(id uint64, n int64) int64 { return n + int64(id) },
		"the clock":  func(id uint64, n int64) int64 { return time.Now().UnixNano() + int64(id) }, // the bubble has one clock
		"nothing":    func(_ uint64, n int64) int64 { return n },
	} {
		for _, unwatched := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					said, differ := runCounter(t, func(id uint64) counterMachine {
						m := millrace.InMemory(&memberCounter{mistake: func(n int64) int64 { return mistake(id, n) }}, millrace.Binary[int64]())
						if unwatched {
							m = m.Unwatched()
						}
						return m
					})
					want := name != "nothing" && !unwatched
					for i, d := range said {
						if d.Has(diagnosis.CodeDiverged) != want || differ[i] > 0 != want || want && !strings.Contains(d.String(), "differ in their results after entry") {
							t.Errorf("unwatched %v: member %d says %v, and its metrics entry %d", unwatched, i+1, d, differ[i])
						}
					}
				})
			})
		}
	}
}

// Members that sum up their results in other ways are not compared.
func TestOnlyEqualFormsAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, _ := runCounter(t, func(id uint64) counterMachine {
			c := &memberCounter{mistake: func(n int64) int64 { return n + int64(id) }}
			m := millrace.InMemory(c, millrace.Binary[int64]())
			if id == 2 {
				m = m.Unwatched()
			}
			if id == 3 {
				m = m.Version("v2")
			}
			return m
		})
		for i, d := range said {
			if d.Has(diagnosis.CodeDiverged) {
				t.Errorf("member %d says: %v", i+1, d)
			}
		}
	})
}
