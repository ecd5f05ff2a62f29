package millrace

import pb "github.com/millrace/millrace/raft/raftpb"

// tenures holds who waits for what this host has proposed: a list for each term that it led, in order of the log. Only
// what is committed at an index decides what became of a proposal there — an entry that another leader has overwritten
// here may survive elsewhere and come back — so waiters outlive the leadership they were made in.
type tenures struct {
	all   []tenure
	bytes int64
	count int
}

type tenure struct {
	term    uint64
	next    uint64 // index of waiting[0]
	waiting []claim
}

type claim struct {
	waiter *waiter // nil: an entry of ours that nobody waits for
	bytes  int64
}

// add registers who waits for entries of term, from index on. Within a tenure indexes only grow; entries in between that
// nobody waits for (the leader's first) are filled in.
func (t *tenures) add(term, index uint64, proposals []proposal) {
	if n := len(t.all); n == 0 || t.all[n-1].term != term {
		t.all = append(t.all, tenure{term: term, next: index})
	}
	last := &t.all[len(t.all)-1]
	if len(last.waiting) == 0 {
		last.next = index
	}
	for last.next+uint64(len(last.waiting)) < index {
		last.waiting = append(last.waiting, claim{})
	}
	for _, p := range proposals {
		last.waiting = append(last.waiting, claim{p.waiter, p.bytes()})
		t.bytes += p.bytes()
	}
	t.count += len(proposals)
}

// settle answers everyone who waits for an index within the committed entries: a receipt where the entry is theirs,
// ErrDropped where another leader's took its place.
func (t *tenures) settle(committed []pb.Entry) {
	if len(committed) == 0 || len(t.all) == 0 {
		return
	}
	first, last := committed[0].Index, committed[len(committed)-1].Index
	kept := t.all[:0]
	for _, ten := range t.all {
		for len(ten.waiting) > 0 && ten.next <= last {
			index := ten.next
			if index >= first && committed[index-first].Term == ten.term {
				t.answerNext(&ten, outcome{receipt: Receipt{Index: index, Term: ten.term}})
			} else {
				t.answerNext(&ten, outcome{err: ErrDropped})
			}
		}
		if len(ten.waiting) > 0 {
			kept = append(kept, ten)
		}
	}
	clear(t.all[len(kept):])
	t.all = kept
}

// settleOwn answers the clients of the leader of term for everything through the commit index. What it proposed in its
// term stands in its log as proposed as long as it leads, so there is no need to see the entries: they may be committed by
// the followers' disks before they are on the own one, and so before they are handed out to be applied.
func (t *tenures) settleOwn(term, commit uint64) {
	if len(t.all) == 0 {
		return
	}
	ten := &t.all[len(t.all)-1]
	if ten.term != term {
		return
	}
	for len(ten.waiting) > 0 && ten.next <= commit {
		t.answerNext(ten, outcome{receipt: Receipt{Index: ten.next, Term: term}})
	}
}

// answerNext takes the first claim off a tenure.
func (t *tenures) answerNext(ten *tenure, o outcome) {
	c := ten.waiting[0]
	ten.waiting[0] = claim{}
	ten.waiting, ten.next = ten.waiting[1:], ten.next+1
	if c.waiter != nil {
		t.bytes -= c.bytes
		t.count--
		c.waiter.answer(o)
	}
}

// abandon answers everyone who still waits.
func (t *tenures) abandon(err error) {
	for _, ten := range t.all {
		for _, c := range ten.waiting {
			if c.waiter != nil {
				c.waiter.answer(outcome{err: err})
			}
		}
	}
	*t = tenures{}
}
