package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Verify implements load.Target. It waits until the members have applied the same values of this run, and all
// that were acknowledged, which it sees from what each of them has seen. A member that cannot be reached is
// left out, and a remark says so; without a majority it is an error.
func (r *Run) Verify(ctx context.Context, ledger *load.Ledger) error {
	var late error // why the time was over
	for {
		present, missing, err := r.converged(ctx)
		if err != nil {
			if ctx.Err() != nil && late != nil {
				return late
			}
			return err
		}
		behind, err := r.compare(ctx, present, ledger)
		switch {
		case err != nil:
			return err
		case behind == nil:
			if missing != nil {
				r.absent(missing)
			}
			return nil
		case ctx.Err() == nil || late == nil: // else it says only that the time is over
			late = behind
		}
		if lab.Sleep(ctx, pollInterval) != nil {
			return late
		}
	}
}

// compare fetches what members have seen in all groups, and compares it with the ledger. behind is what may
// be right later: a value came while it was fetched, a member is gone since.
func (r *Run) compare(ctx context.Context, present []int, ledger *load.Ledger) (behind, err error) {
	for g := range r.groups {
		share := load.Share{}
		if r.groups > 1 {
			share = load.Share{Every: uint32(r.groups), First: uint32(g)}
		}
		var machines []*load.Machine
		for _, i := range present {
			m := &load.Machine{Share: share}
			form, err := r.form(ctx, i, g)
			if err == nil {
				err = m.RestoreRun(form, r.run)
			}
			if err != nil {
				return fmt.Errorf("what member %d has applied in group %d cannot be read: %w", i+1, g+1, err), nil
			}
			machines = append(machines, m)
		}
		behind, err := load.CompareMachines(machines, ledger)
		switch {
		case err != nil:
			return nil, fmt.Errorf("group %d, members %v: %w", g+1, ids(present), err)
		case behind != nil:
			return fmt.Errorf("%w: group %d, members %v: %w", lab.ErrMismatch, g+1, ids(present), behind), nil
		}
	}
	return nil, nil
}

func ids(present []int) (all []int) {
	for _, i := range present {
		all = append(all, i+1)
	}
	return all
}

// converged waits until the members that answer have applied the same, twice in a row, and returns which they
// are, and why others are missing. Without a majority it goes on waiting.
func (r *Run) converged(ctx context.Context) (present []int, missing, err error) {
	until := time.Now().Add(r.absence)
	late := errors.New("no member has answered in time")
	for last := [][]GroupState(nil); ; {
		states, missing := r.states(ctx)
		if ctx.Err() != nil {
			return nil, nil, late
		}
		behind, err := r.behind(states)
		if err != nil {
			return nil, nil, err
		}
		present := answered(states)
		most := 2*len(present) > len(r.links)
		if behind == nil && same(states, last) && (missing == nil || most && time.Now().After(until)) {
			return present, missing, nil
		}
		late = tooLate(behind, missing, most)
		last = states
		if lab.Sleep(ctx, pollInterval) != nil {
			return nil, nil, late
		}
	}
}

// tooLate is the error of members that have not converged in time. What members hold that do not answer is
// not known, so they alone are no mismatch.
func tooLate(behind, missing error, majority bool) error {
	switch {
	case behind != nil:
		return fmt.Errorf("%w: %w", lab.ErrMismatch, errors.Join(behind, missing))
	case missing != nil && !majority:
		return fmt.Errorf("what the members hold is not known, because a majority does not answer: start them again, and then the load: %w", missing)
	}
	return fmt.Errorf("%w: %w", lab.ErrMismatch, errors.Join(errors.New("the members still apply entries, although all clients have stopped"), missing))
}

// absent notes that members were not verified.
func (r *Run) absent(missing error) {
	r.remark(archive.WarnMemberGone, "not every member was verified: %v.", missing)
}

func answered(states [][]GroupState) (present []int) {
	for i, of := range states {
		if of != nil {
			present = append(present, i)
		}
	}
	return present
}

// behind returns why the members are not level yet, or nil. The error is what waiting does not mend.
func (r *Run) behind(states [][]GroupState) (behind, err error) {
	for g := range r.groups {
		want := r.acked[g].Load()
		for _, of := range states {
			if of != nil && of[g].Run == r.run {
				want = max(want, of[g].Machine.Entries)
			}
		}
		for i, of := range states {
			if of == nil {
				continue
			}
			switch s := of[g]; {
			case s.Err != "":
				return nil, fmt.Errorf("group %d has stopped on member %d: %s", g+1, i+1, s.Err)
			case s.Broken != "" && s.Run == r.run:
				return nil, fmt.Errorf("%w: group %d, member %d: %s", lab.ErrMismatch, g+1, i+1, s.Broken)
			case r.isLater(g, s):
				return nil, r.beside(s)
			case s.Run != r.run || s.Machine.Entries < want:
				behind = fmt.Errorf("member %d applied %d values of group %d in load %v, and should have %d in load %v", i+1, s.Machine.Entries, g+1, s.Run, want, r.run)
			}
		}
	}
	return behind, nil
}

// isLater reports whether a machine is of a load that has begun after this one. One that is of another load
// and has applied less has started again, and comes to this load with its log.
func (r *Run) isLater(g int, s GroupState) bool {
	return s.Run != r.run && s.Machine.Applied > r.beganAt[g]
}

func (r *Run) beside(s GroupState) error {
	return fmt.Errorf("another load, %v, has begun on these members beside this one, %v: they serve one at a time; measure again when it has ended", s.Run, r.run)
}

// disturbed returns an error if another load has begun on members that answer.
func (r *Run) disturbed(ctx context.Context) error {
	states, _ := r.states(ctx) // a member that does not answer says nothing
	for _, of := range states {
		for g, s := range of {
			if r.isLater(g, s) {
				return r.beside(s)
			}
		}
	}
	return nil
}

func same(a, b [][]GroupState) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return false
		}
		for g := range a[i] {
			if a[i][g].Machine != b[i][g].Machine {
				return false
			}
		}
	}
	return true
}

// form fetches what a member has seen in a group, piece by piece. Nothing is written meanwhile.
func (r *Run) form(ctx context.Context, i, g int) (form []byte, err error) {
	for {
		asking, cancel := context.WithTimeout(ctx, answerTimeout)
		offset := binary.LittleEndian.AppendUint64(nil, uint64(len(form)))
		var total int64
		piece, err := answer(asking, r.links[i], MemberRequest(KindForm, g, offset...), func(text []byte) (piece []byte, err error) {
			total, piece, err = FormPiece(text)
			return piece, err
		})
		cancel()
		if err != nil {
			return nil, err
		}
		form = append(form, piece...)
		if int64(len(form)) == total {
			return form, nil
		}
		if len(piece) == 0 || int64(len(form)) > total || total > maxFormBytes {
			return nil, fmt.Errorf("its form has %d bytes, at most %d are read, and came to %d", total, int64(maxFormBytes), len(form))
		}
	}
}

// maxFormBytes bounds what one machine may say: a bit for each of 8 billion writes.
const maxFormBytes = 1 << 30
