package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// uses is what the members' processes have used since each of them has answered first. A process that is a
// new one counts from nothing, so what the old one had used by the last answer is kept: the sum never goes
// back.
type uses struct {
	mu      sync.Mutex
	members []used
}

// used is one member.
type used struct {
	last      Usage
	earlier   Usage // sum of the processes before, less what was used before the first answer
	known, ok bool  // it has answered ever; it has answered the last time
}

// useTimeout bounds what a member that does not answer costs a sample.
const useTimeout = 900 * time.Millisecond

// fetch asks all members. fresh starts a new peak of their memory.
func (r *Run) fetch(ctx context.Context, fresh bool) {
	answers, errs := make([]Usage, len(r.links)), make([]error, len(r.links))
	var rest []byte
	if fresh {
		rest = []byte{1}
	}
	each(len(r.links), func(i int) {
		asking, cancel := context.WithTimeout(ctx, useTimeout)
		defer cancel()
		answers[i], errs[i] = answer(asking, r.links[i], MemberRequest(KindUsage, 0, rest...), DecodeAnswer[Usage])
	})
	r.use.mu.Lock()
	defer r.use.mu.Unlock()
	for i := range r.use.members {
		u := &r.use.members[i]
		if u.ok = errs[i] == nil; !u.ok {
			if ctx.Err() == nil {
				r.remark(archive.WarnFailures, "member %d did not answer: what it used meanwhile is not counted.", i+1)
			}
			continue
		}
		if u.take(answers[i]) {
			r.remark(archive.WarnMemberGone, "the process of member %d is a new one since the load began.", i+1)
		}
	}
}

// take takes in an answer, and reports whether it comes from a new process.
func (u *used) take(now Usage) (renewed bool) {
	switch {
	case !u.known: // what it had used before, perhaps for days, is not of this load
		u.earlier.Process, u.earlier.Counters = load.Usage{}.Sub(now.Process), load.Counters{}.Sub(now.Counters)
	case u.last.Life != now.Life:
		renewed = true
		u.earlier.Process, u.earlier.Counters = u.earlier.Process.Add(u.last.Process), u.earlier.Counters.Add(u.last.Counters)
	case now.Process.CPU < u.last.Process.CPU: // an answer to an earlier question, which came later
		return false
	}
	u.last, u.known = now, true
	return renewed
}

// fresh is the first look at the members.
func (r *Run) fresh(ctx context.Context) { r.fetch(ctx, true) }

// Counters implements load.Target.
func (r *Run) Counters() (sum load.Counters) {
	r.fetch(context.Background(), false)
	r.use.mu.Lock()
	defer r.use.mu.Unlock()
	for _, u := range r.use.members {
		sum = sum.Add(u.earlier.Counters).Add(u.last.Counters)
	}
	return sum
}

// HostsUsage implements load.Abroad.
func (r *Run) HostsUsage() (sum load.Usage) {
	r.use.mu.Lock()
	defer r.use.mu.Unlock()
	for _, u := range r.use.members {
		sum = sum.Add(u.earlier.Process).Add(u.last.Process)
	}
	return sum
}

// Uses implements experiment.Abroad.
func (r *Run) Uses() (all []experiment.Use) {
	r.fetch(context.Background(), false)
	r.use.mu.Lock()
	defer r.use.mu.Unlock()
	for i, u := range r.use.members {
		all = append(all, experiment.Use{
			Member: fmt.Sprint(i + 1), Process: u.earlier.Process.Add(u.last.Process), Counters: u.earlier.Counters.Add(u.last.Counters),
			PeakBytes: u.last.PeakBytes, HeapBytes: u.last.HeapBytes, OK: u.ok,
		})
	}
	return all
}
