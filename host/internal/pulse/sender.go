package pulse

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/internal/lock"
)

// Leader is a group that leads here. Its methods are called with the lock of the sender held.
type Leader interface {
	ID() uint64
	Ended() bool // it has stopped
	Shard() Shard
	IsQuorum(has func(id uint64) bool) bool // by its roster
}

// Shard runs the turns of groups.
type Shard interface{ Hangs() bool }

// Sender is what a host tells others about the groups that lead here.
type Sender struct {
	self   uint64
	life   uint64 // of this host: versions of another life mean nothing
	shards []Shard

	mu    lock.Mutex
	peers []*receiverList // ascending
	hung  []bool          // by shard, at the last beat

	heardOf []uint64 // scratch memory of AnswerAll
}

// New returns a sender of this host, with its life, to other hosts. shards are all that run groups.
func New(self, life uint64, peers []uint64, shards []Shard) *Sender {
	p := &Sender{self: self, life: life, shards: shards, hung: make([]bool, len(shards))}
	for _, id := range peers {
		p.peers = append(p.peers, &receiverList{peer: id, entries: map[uint64]*entry{}})
	}
	return p
}

// Add makes the list of one more host.
func (p *Sender) Add(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, _ := slices.BinarySearchFunc(p.peers, id, func(to *receiverList, id uint64) int { return cmp.Compare(to.peer, id) })
	p.peers = slices.Insert(p.peers, at, &receiverList{peer: id, entries: map[uint64]*entry{}})
}

// Remove takes a host out, with what it has answered.
func (p *Sender) Remove(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers = slices.DeleteFunc(p.peers, func(to *receiverList) bool { return to.peer == id })
}

// Set puts a group into the lists of its members, without those left out. It reports whether there is
// space in all of them. A group that has stopped is refused: it was taken out when it stopped
//
// (Drop), and the turn under way must not put it back.
func (p *Sender) Set(g Leader, members []uint64, term, commit uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.Ended() {
		return false
	}
	for _, to := range p.peers {
		if slices.Contains(members, to.peer) && !to.hasSpace(g.ID()) {
			return false
		}
	}
	for _, to := range p.peers {
		if slices.Contains(members, to.peer) {
			to.add(g, Line{g.ID(), term, commit})
		}
	}
	return true
}

// Drop takes a group out of the lists.
func (p *Sender) Drop(g Leader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.peers {
		to.drop(g)
	}
}

// Active calls f for each other host that has answered, since a tick, a list with this group, and did not
// except it. f is told the tick of the latest answer. Ticks that were missed do not count. The answers that
// came in that tick are among them: a turn in the same tick may have looked before they came.
func (p *Sender) Active(g Leader, since int64, f func(peer uint64, at int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eachActive(g, since, f)
}

func (p *Sender) eachActive(g Leader, since int64, f func(peer uint64, at int64)) {
	for _, to := range p.peers {
		if to.heardAt < since {
			continue
		}
		if e := to.entries[g.ID()]; e != nil && e.group == g && to.acked >= e.since && !e.excluded {
			f(to.peer, to.heardAt)
		}
	}
}

// Beat returns what each other host must hear of the groups here. The caller sends it when the lock is
// released: a transport that blocks must not stop the turns, which call set and drop.
func (p *Sender) Beat() (records []RecordTo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.findHungShards()
	for _, to := range p.peers {
		if to.changed {
			to.changed, to.lines = false, to.next(p.hangs)
			to.version++
		}
		r := RecordTo{Peer: to.peer}
		if to.live > 0 {
			r.Life, r.Version, r.Pulses = p.life, to.version, true
			if to.acked != to.version {
				r.HasList, r.Lines = true, to.lines
			}
		}
		records = append(records, r)
	}
	return records
}

// RecordTo is a record and the host that it is for.
type RecordTo struct {
	Peer uint64
	Record
}

// hangs reports whether the shard of a group hung at this beat.
func (p *Sender) hangs(g Leader) bool {
	i := slices.Index(p.shards, g.Shard())
	return i >= 0 && p.hung[i]
}

// findHungShards changes the lists if a shard has begun to hang in a turn, or goes on.
func (p *Sender) findHungShards() {
	for i, s := range p.shards {
		if hangs := s.Hangs(); hangs != p.hung[i] {
			p.hung[i] = hangs
			for _, to := range p.peers {
				to.changed = true
			}
		}
	}
}

// Answered records what a host answers, and returns the groups that it excepts. An exception from a list
// before a group was put into it is not about its presence there.
func (p *Sender) Answered(peer uint64, a Answer, now int64) (excluded []Leader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.peers {
		if to.peer != peer || a.Life != p.life || a.Version > to.version || a.Version < to.acked {
			continue // not ours, or late: a later one has come
		}
		if !a.Known {
			to.acked = 0
			return nil
		}
		to.acked, to.heardAt = max(to.acked, a.Version), now
		for _, id := range a.Excluded {
			if e := to.entries[id]; e != nil && e.group != nil && e.since <= a.Version {
				e.excluded = true
				excluded = append(excluded, e.group)
			}
		}
	}
	return excluded
}

// Life is the life of this host under which its lists are sent.
func (p *Sender) Life() uint64 { return p.life }

// Question is a leader whose check of the quorum is due.
type Question struct {
	Leader   Leader
	Since    int64 // when its peers were noted last
	Answered bool  // by a quorum since then, this host included
}

// AnswerAll answers questions, in place.
func (p *Sender) AnswerAll(questions []Question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range questions {
		q := &questions[i]
		p.heardOf = append(p.heardOf[:0], p.self)
		p.eachActive(q.Leader, q.Since, func(peer uint64, _ int64) { p.heardOf = append(p.heardOf, peer) })
		q.Answered = q.Leader.IsQuorum(func(id uint64) bool { return slices.Contains(p.heardOf, id) })
	}
}
