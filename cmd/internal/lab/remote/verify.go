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
	"github.com/millrace/millrace/cmd/internal/lab/member"
)

// Verify implements load.Target. It waits until the members have applied the same values of this run, fetches
// what each has seen, and compares that with the ledger. A member that cannot be reached is left out, and a
// remark says so; without a majority it is an error.
func (r *Run) Verify(ctx context.Context, ledger *load.Ledger) error {
	present, err := r.converged(ctx)
	if err != nil {
		return err
	}
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
				return fmt.Errorf("what member %d has applied in group %d cannot be read: %w", i+1, g+1, err)
			}
			machines = append(machines, m)
		}
		if err := load.VerifyMachines(ctx, machines, ledger); err != nil {
			return fmt.Errorf("group %d, members %v: %w", g+1, ids(present), err)
		}
	}
	return nil
}

func ids(present []int) (all []int) {
	for _, i := range present {
		all = append(all, i+1)
	}
	return all
}

// converged waits until the members that answer have applied the same, twice in a row, and returns which they
// are.
func (r *Run) converged(ctx context.Context) (present []int, err error) {
	until := time.Now().Add(r.absence)
	var last [][]member.GroupState
	for {
		states, missing := r.states(ctx)
		behind, err := r.behind(states)
		if err != nil {
			return nil, err
		}
		if present = answered(states); behind == nil && same(states, last) && (missing == nil || time.Now().After(until)) {
			switch {
			case missing == nil:
				return present, nil
			case 2*len(present) > len(r.links):
				r.absent(missing)
				return present, nil
			}
			behind = missing
		}
		last = states
		if lab.Sleep(ctx, pollInterval) != nil {
			if behind = errors.Join(behind, missing); behind == nil {
				behind = errors.New("the members still apply entries, although all clients have stopped")
			}
			return nil, fmt.Errorf("%w: %w", lab.ErrMismatch, behind)
		}
	}
}

// absent notes that members were not verified.
func (r *Run) absent(missing error) {
	r.remark(archive.WarnFailures, "not every member was verified: %s.", oneLine(missing))
}

func answered(states [][]member.GroupState) (present []int) {
	for i, of := range states {
		if of != nil {
			present = append(present, i)
		}
	}
	return present
}

// behind returns why the members are not level yet, or nil. The error is what waiting does not mend.
func (r *Run) behind(states [][]member.GroupState) (behind, err error) {
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
			case s.Run != r.run && s.Machine.Applied > 0 && r.isLater(states, g, s.Run):
				return nil, fmt.Errorf("another load, %v, has begun on these members beside this one, %v: they serve one at a time", s.Run, r.run)
			case s.Run != r.run || s.Machine.Entries < want:
				behind = fmt.Errorf("member %d applied %d values of group %d in load %v, and should have %d in load %v", i+1, s.Machine.Entries, g+1, s.Run, want, r.run)
			}
		}
	}
	return behind, nil
}

// isLater reports whether every member that answers is of another run: a member alone that is of another one
// has just started again, and will come to this run.
func (r *Run) isLater(states [][]member.GroupState, g int, of load.Run) bool {
	for _, s := range states {
		if s != nil && s[g].Run != of {
			return false
		}
	}
	return true
}

func same(a, b [][]member.GroupState) bool {
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
		piece, err := answer(asking, r.links[i], member.Request(member.KindForm, g, offset...), func(text []byte) (piece []byte, err error) {
			total, piece, err = member.FormPiece(text)
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
