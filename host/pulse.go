package host

import (
	"cmp"
	"slices"
	"sync"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// Pulses. A leader that has nothing to say but that it is alive (raft.RawNode.Quiet) leaves that to its host:
// one record for each other host and heartbeat interval says it for all such groups. The record is a list of
// groups with their terms and commit indexes, under a version. While the other host has the latest version, a
// pulse is that version alone, and costs neither host any work for a group.
//
//	leader's host                               follower's host (heard.go)
//	pulses.set(group)
//	beat: version 7, the list            ──►    each group that follows in that term, and knows the commit
//	                                            index, is covered by the list; the others are exceptions
//	groups that are excepted beat again  ◄──    beat: version 7, exceptions
//	beat: version 7                      ──►    the list was heard now; no turn
//	peers are active in covered groups   ◄──    beat: version 7, exceptions, with groups that follow no more
//
// Each host beats once in a heartbeat interval, and its record carries both: what it says of its own groups,
// and its answer to the other host. Every record is a full statement, so it may replace one that still waits.
//
// A follower looks at its list when its election timeout would expire, and before it looks at anything else
// (Group.stepInputs), and then tells the core that it has heard the leader (raft.RawNode.HeardLeader). While
// only pulses concern the group, its shard looks for it (asleep.go). So a pulse commits nothing and renews no
// lease.
//
// A pulse vouches for a group, not only for a host. A group that stops, or whose shard hangs in a turn, is
// left out of the list; a follower that stops, or follows no more, becomes an exception.

// pulses is what a host tells others about the groups that lead here.
type pulses struct {
	life   uint64 // of this host: versions of another life mean nothing
	shards []*shard

	mu    sync.Mutex
	peers []*pulsesTo // ascending
	hung  []bool      // by shard, at the last beat

	heardOf []uint64 // scratch memory of noteAnswered
}

func newPulses(life uint64, peers []uint64, shards []*shard) *pulses {
	p := &pulses{life: life, shards: shards, hung: make([]bool, len(shards))}
	for _, id := range peers {
		p.peers = append(p.peers, &pulsesTo{peer: id, entries: map[uint64]*pulseEntry{}})
	}
	return p
}

// add makes the list of one more host.
func (p *pulses) add(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, _ := slices.BinarySearchFunc(p.peers, id, func(to *pulsesTo, id uint64) int { return cmp.Compare(to.peer, id) })
	p.peers = slices.Insert(p.peers, at, &pulsesTo{peer: id, entries: map[uint64]*pulseEntry{}})
}

// remove takes a host out, with what it has answered.
func (p *pulses) remove(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers = slices.DeleteFunc(p.peers, func(to *pulsesTo) bool { return to.peer == id })
}

// set puts a group into the lists of its members, without those left out. It reports whether there is
// space in all of them. A group that has stopped is refused: it was taken out when it stopped
// (Group.leavePulses), and the turn under way must not put it back.
func (p *pulses) set(g *Group, term, commit uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.Err() != nil {
		return false
	}
	members := g.memberIDs()
	for _, to := range p.peers {
		if slices.Contains(members, to.peer) && !to.hasSpace(g.id) {
			return false
		}
	}
	for _, to := range p.peers {
		if slices.Contains(members, to.peer) {
			to.put(g, pulseLine{g.id, term, commit})
		}
	}
	return true
}

// drop takes a group out of the lists.
func (p *pulses) drop(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.peers {
		to.drop(g)
	}
}

// active calls f for each other host that has answered, since a tick, a list with this group, and did not
// except it. Ticks that were missed do not count. The answers that came in that tick are among them: a turn
// in the same tick may have looked before they came.
func (p *pulses) active(g *Group, since int64, f func(peer uint64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eachActive(g, since, f)
}

func (p *pulses) eachActive(g *Group, since int64, f func(peer uint64)) {
	for _, to := range p.peers {
		if to.heardAt < since {
			continue
		}
		if e := to.entries[g.id]; e != nil && e.group == g && to.acked >= e.since && !e.excepted {
			f(to.peer)
		}
	}
}

// beat returns what each other host must hear of the groups here. The caller sends it when the lock is
// released: a transport that blocks must not stop the turns, which call set and drop.
func (p *pulses) beat() (records []pulseTo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookForHungShards()
	for _, to := range p.peers {
		if to.changed {
			to.changed, to.lines = false, to.next(p.hangs)
			to.version++
		}
		r := pulseTo{peer: to.peer}
		if to.live > 0 {
			r.life, r.version, r.pulses = p.life, to.version, true
			if to.acked != to.version {
				r.hasList, r.lines = true, to.lines
			}
		}
		records = append(records, r)
	}
	return records
}

// pulseTo is a record and the host that it is for.
type pulseTo struct {
	peer uint64
	pulseRecord
}

// hangs reports whether the shard of a group hung at this beat.
func (p *pulses) hangs(g *Group) bool {
	i := slices.Index(p.shards, g.shard)
	return i >= 0 && p.hung[i]
}

// lookForHungShards changes the lists if a shard has begun to hang in a turn, or goes on.
func (p *pulses) lookForHungShards() {
	for i, s := range p.shards {
		if hangs := s.hangs(); hangs != p.hung[i] {
			p.hung[i] = hangs
			for _, to := range p.peers {
				to.changed = true
			}
		}
	}
}

// answered records what a host answers, and returns the groups that it excepts. An exception from a list
// before a group was put into it is not about its presence there.
func (p *pulses) answered(peer uint64, a pulseAnswer, now int64) (excepted []*Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.peers {
		if to.peer != peer || a.life != p.life || a.version > to.version || a.version < to.acked {
			continue // not ours, or late: a later one has come
		}
		if !a.known {
			to.acked = 0
			return nil
		}
		to.acked, to.heardAt = max(to.acked, a.version), now
		for _, id := range a.excepted {
			if e := to.entries[id]; e != nil && e.group != nil && e.since <= a.version {
				e.excepted = true
				excepted = append(excepted, e.group)
			}
		}
	}
	return excepted
}

// sendPulses is the beat of a host: one record to each other host that has something to hear.
func (h *Host) sendPulses() {
	for _, r := range h.pulses.beat() {
		r.answer, r.answers = h.heard.answer(r.peer)
		if r.pulses || r.answers {
			h.transport.SendBytes(r.peer, transport.Pulse, r.append(nil))
		}
	}
}

// leadQuietly leaves the heartbeats of a quiet leader to the pulses, and takes them back when it has
// something to say. It is called at the end of a turn.
func (g *Group) leadQuietly() (again bool) {
	now := g.at.ticks
	switch leads := g.node.BasicStatus().RaftState == raft.StateLeader; {
	case !leads:
		g.endPulses(0)
	case !g.node.Quiet() || g.taken.excepted:
		g.endPulses(now + pulseRest)
	case !g.pulsed && now >= g.pulseAfter:
		st := g.node.BasicStatus()
		if g.host.pulses.set(g, st.Term, st.Commit) {
			g.pulsed, g.activeAt = true, g.at.ticks-g.at.missed
			g.node.SetPulsed(true)
			g.shrink()
		}
	}
	// A leader that is not quiet rests for a while; each tick moves that.
	return g.pulsed || g.node.Quiet() && g.pulseAfter < now+pulseRest
}

// endPulses takes the heartbeats back, and rests until a tick.
func (g *Group) endPulses(until int64) {
	g.pulseAfter = until
	if g.pulsed {
		g.pulsed = false
		g.host.pulses.drop(g)
		g.node.SetPulsed(false)
	}
}

// pulseRest is for how many ticks a leader must be quiet before it is pulsed: two heartbeats, which bring the
// commit index to all followers.
const pulseRest = 2*ticksPerHeartbeat + 1

// notePeers tells the core of a leader which followers have answered pulses.
func (g *Group) notePeers() {
	if !g.pulsed {
		return
	}
	var active []uint64
	g.host.pulses.active(g, g.activeAt, func(peer uint64) { active = append(active, peer) })
	g.activeAt = g.at.ticks - g.at.missed
	for _, id := range active {
		g.noteRefusal(g.node.PeerActive(id))
	}
	g.views.noteActive(active, g.activeAt, int64(g.host.config.electionTicks()))
}

// quietLead is a leader's part in pulses. It belongs to the turn.
type quietLead struct {
	pulsed     bool  // its heartbeats are left to the pulses
	pulseAfter int64 // not before this tick
	activeAt   int64 // the tick through which answers were noted
}
