package load_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// hall is a target of batches: what is handed in is proposed after 1 ms, all at once, the last first. It
// takes at most seven at a time.
type hall struct {
	*labtest.Target
	limit int
	fails func(tag uint64) error

	under map[uint64][]byte
	order []uint64
}

const maxOfHall = 7

func (h *hall) Batches(limit int) load.Batches {
	h.limit, h.under = limit, map[uint64][]byte{}
	return h
}

func (h *hall) Submit(_ context.Context, values [][]byte, tags []uint64) (taken int, err error) {
	for taken < min(len(values), maxOfHall) {
		tag := tags[taken]
		if _, twice := h.under[tag]; twice || tag >= uint64(h.limit) {
			return taken, errors.New("a tag is used twice")
		}
		h.under[tag], h.order = values[taken], append(h.order, tag)
		taken++
	}
	return taken, nil
}

func (h *hall) Wait(ctx context.Context, reuse []load.Answered) []load.Answered {
	pass(time.Millisecond)
	answers := reuse[:0]
	for _, tag := range slices.Backward(h.order) {
		err := h.fails(tag)
		if err == nil {
			err = h.Propose(ctx, h.under[tag])
		}
		delete(h.under, tag)
		answers = append(answers, load.Answered{Tag: tag, Err: err})
	}
	h.order = nil
	return answers
}

func newHall(fails func(uint64) error) *hall {
	return &hall{Target: labtest.NewTarget(3), fails: fails}
}

// One goroutine, seven writes a millisecond: each is counted, with its own latency, and verified.
func TestBatchedCountsEachWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newHall(func(uint64) error { return nil })
		l := newLoad(target, 0, time.Second)
		o, err := l.Run(t.Context(), noPhase, load.Batched{Outstanding: 10})
		if err != nil {
			t.Fatal(err)
		}
		if want := uint64(7 * 999); o.Completed != want || o.Latency.Max() != time.Millisecond || o.Failed != 0 {
			t.Errorf("%d writes of at most %v, %d failed; want %d of 1 ms", o.Completed, o.Latency.Max(), o.Failed, want)
		}
		if err := target.Verify(t.Context(), l.Ledger()); err != nil {
			t.Error(err)
		}
	})
}

// Writes that fail count as failed, and the others go on. A target without batches is refused.
func TestBatchedCountsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newHall(func(tag uint64) error {
			if tag == 3 {
				return errors.New("not this one")
			}
			return nil
		})
		l := newLoad(target, 0, time.Second)
		o, err := l.Run(t.Context(), noPhase, load.Batched{Outstanding: 7})
		if err != nil || o.Failed == 0 || o.Completed == 0 || o.Errors["not this one"] != o.Failed {
			t.Errorf("%d done, %d failed, %v, %v", o.Completed, o.Failed, o.Errors, err)
		}
		if err := target.Verify(t.Context(), l.Ledger()); err != nil {
			t.Error(err)
		}
		if _, err := newLoad(labtest.NewTarget(1), 0, time.Second).Run(t.Context(), noPhase, load.Batched{Outstanding: 7}); err == nil || !strings.Contains(err.Error(), "no batches") {
			t.Error(err)
		}
	})
}
