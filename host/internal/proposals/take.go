package proposals

// Sent calls first for each client whose entry leaves for another member now and has not left before: those
// through an index. It is for a Ring with Results.
func (r *Ring[W]) Sent(through uint64, first func(w W)) {
	var none W
	end := through + 1
	for i := len(r.runs) - 1; i >= 0; i-- { // what a later run covers is not in the log any more
		run := &r.runs[i]
		begin := max(run.sent+1, r.applied+1, run.first)
		end = min(end, run.end())
		run.sent = max(run.sent, end-1)
		for index := begin; index < end; index++ {
			if w := *run.at(index); w != none {
				first(w)
			}
		}
		end = min(end, run.first)
	}
}

// Pop removes the result for the entry at an index, which is applied now, as all before it are. It returns
// the client that waits for it, or none: an entry of another term may be there.
func (r *Ring[W]) Pop(index, term uint64) (w W) {
	r.popEach(index, func(run *run[W], at uint64, client W) {
		if at == index && run.term == term {
			w = client
		}
	})
	return w
}

// PopThrough removes the results through an index for which a snapshot came. It calls f for each client that
// waited for a result.
func (r *Ring[W]) PopThrough(index uint64, f func(w W)) {
	r.popEach(index, func(_ *run[W], _ uint64, w W) { f(w) })
}

func (r *Ring[W]) popEach(through uint64, f func(*run[W], uint64, W)) {
	if !r.Results || through <= r.applied {
		return
	}
	var none W
	begin := r.applied + 1
	r.applied = through
	defer r.trim()
	for i := range r.runs {
		run := &r.runs[i]
		for index := max(begin, run.first); index <= through && index < run.end(); index++ {
			place := run.at(index)
			w := *place
			if w == none {
				continue
			}
			r.unapplied--
			if index < run.next {
				*place = none
			}
			f(run, index, w)
		}
	}
}

// End calls f for each client that waits, and forgets them all. answered says that it knows what happened
// to its entry, and waits for the result; applied says the opposite.
func (r *Ring[W]) End(f func(w W, answered, applied bool)) {
	var none W
	runs := r.runs
	r.runs = nil
	r.unanswered, r.unapplied = 0, 0
	r.publish()
	for i := range runs {
		run := &runs[i]
		for index := run.first; index < run.end(); index++ {
			if w := *run.at(index); w != none {
				f(w, index < run.next, !r.Results || index <= r.applied)
			}
		}
	}
}
