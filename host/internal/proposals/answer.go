package proposals

import "sort"

// Fate is what happens to a proposal.
type Fate int

const (
	// Committed: its entry is committed.
	Committed Fate = iota
	// Dropped: another entry was committed in its place, or before it, so that it never will be.
	Dropped
	// Covered: a snapshot covers its index, so this host does not know which entry was committed there.
	Covered
)

// Answer answers the proposals at the indexes through one that is committed, and calls answer for each, in
// the order of terms and indexes. termAt returns the term of a committed entry; ok is false if it is not
// known here any more.
func (r *Ring[W]) Answer(through uint64, termAt func(index uint64) (term uint64, ok bool), answer func(w W, index, term uint64, f Fate)) {
	defer r.trim()
	for i := range r.runs {
		for run := &r.runs[i]; run.next <= through && run.next < run.end(); {
			f := Dropped
			switch term, ok := termAt(run.next); {
			case !ok:
				f = Covered
			case term == run.term:
				f = Committed
			}
			r.answerNext(run, f, answer)
		}
	}
}

// AnswerOwn answers the proposals of a term in which this host leads, through an index that is committed. The
// entries that it proposed in its term stay in its log while it leads, so it need not look at them. The
// followers' disks may commit them before they are on this host's disk, and so before they are applied.
func (r *Ring[W]) AnswerOwn(term, through uint64, answer func(w W, index, term uint64, f Fate)) {
	if len(r.runs) == 0 || r.runs[len(r.runs)-1].term != term {
		return
	}
	defer r.trim()
	for run := &r.runs[len(r.runs)-1]; run.next <= through && run.next < run.end(); {
		r.answerNext(run, Committed, answer)
	}
}

func (r *Ring[W]) answerNext(run *run[W], f Fate, answer func(w W, index, term uint64, f Fate)) {
	index := run.next
	run.next++
	if w, waits := r.answer(run, index, f == Committed); waits {
		answer(w, index, run.term, f)
	}
}

// answer answers the place of an index. A client whose entry is committed stays until that is applied.
func (r *Ring[W]) answer(run *run[W], index uint64, committed bool) (w W, waits bool) {
	var none W
	place := run.at(index)
	if *place == none {
		return none, false
	}
	w = *place
	r.unanswered--
	needsResult := r.Results && index > r.applied
	if !committed || !needsResult {
		*place = none
		if needsResult {
			r.unapplied--
		}
	}
	return w, true
}

// Drop calls drop for the proposals that can no longer be committed. These belong to a term before
// commitTerm, the term of the last committed entry, and their index holds an entry of another term or is
// not committed. termAt is that of Answer.
//
// Answer makes the same decision, but each pipeline calls it at its own time, and some of them when entries
// are applied. A state machine that hangs would then keep the clients waiting.
func (r *Ring[W]) Drop(commit, commitTerm uint64, termAt func(index uint64) (term uint64, ok bool), drop func(w W)) {
	defer r.trim()
	for i := range r.runs {
		if run := &r.runs[i]; run.term < commitTerm {
			from := run.next + uint64(run.survivors(commit, termAt))
			end := run.end()
			for index := from; index < end; index++ {
				if w, waits := r.answer(run, index, false); waits {
					drop(w)
				}
			}
			run.places = run.places[:run.head+int(from-run.first)]
		}
	}
}

// survivors counts the first proposals of a deposed leader that may still be committed. They are a prefix:
// behind the point where the committed log diverges from the leader's, it has no entry of the leader (Log
// Matching, thesis §3.5). If the log no longer knows the term, Answer will decide.
func (r *run[W]) survivors(commit uint64, termAt func(uint64) (uint64, bool)) int {
	if commit < r.next {
		return 0
	}
	return sort.Search(int(min(r.end(), commit+1)-r.next), func(i int) bool {
		term, ok := termAt(r.next + uint64(i))
		return ok && term != r.term
	})
}
