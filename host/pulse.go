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
}

// pulsesTo is what one other host is told.
type pulsesTo struct {
	peer    uint64
	entries []pulseEntry // by group
	changed bool         // since version
	version uint64       // of the list that was sent last
	acked   uint64       // the version that the peer has; 0: none
	heardAt int64        // when it last answered with that version, in ticks that were not missed
	lines   []pulseLine  // of the list
}

// pulseEntry says that a group leads here.
type pulseEntry struct {
	group *Group
	pulseLine
	since uint64 // the first version that has it
	// excepted means that the peer has answered that its member does not follow. Then its answers say nothing
	// of the group until it is put into the list again.
	excepted bool
}

// pulseLine is what a pulse says of a group.
type pulseLine struct {
	group, term, commit uint64
}

func newPulses(life uint64, peers []uint64, shards []*shard) *pulses {
	p := &pulses{life: life, shards: shards, hung: make([]bool, len(shards))}
	for _, id := range peers {
		p.peers = append(p.peers, &pulsesTo{peer: id})
	}
	return p
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
	members := g.founders()
	for _, to := range p.peers {
		if len(to.entries) >= maxPulseEntries && slices.Contains(members, to.peer) {
			return false
		}
	}
	for _, to := range p.peers {
		if slices.Contains(members, to.peer) {
			at, found := to.find(g.id)
			if !found {
				to.entries = slices.Insert(to.entries, at, pulseEntry{})
			}
			to.entries[at] = pulseEntry{group: g, pulseLine: pulseLine{g.id, term, commit}, since: to.version + 1}
			to.changed = true
		}
	}
	return true
}

// drop takes a group out of the lists.
func (p *pulses) drop(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.peers {
		if at, found := to.find(g.id); found && to.entries[at].group == g {
			to.entries = slices.Delete(to.entries, at, at+1)
			to.changed = true
		}
	}
}

func (to *pulsesTo) find(group uint64) (at int, found bool) {
	return slices.BinarySearchFunc(to.entries, group, func(e pulseEntry, id uint64) int { return cmp.Compare(e.pulseLine.group, id) })
}

// active calls f for each other host that has answered, since a tick, a list with this group, and did not
// except it. Ticks that were missed do not count.
func (p *pulses) active(g *Group, since int64, f func(peer uint64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eachActive(g, since, f)
}

func (p *pulses) eachActive(g *Group, since int64, f func(peer uint64)) {
	for _, to := range p.peers {
		if to.heardAt <= since {
			continue
		}
		if at, found := to.find(g.id); found {
			if e := &to.entries[at]; e.group == g && to.acked >= e.since && !e.excepted {
				f(to.peer)
			}
		}
	}
}

// beat calls say for each other host, with what it must hear of the groups here.
func (p *pulses) beat(say func(peer uint64, record *pulseRecord)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookForHungShards()
	for _, to := range p.peers {
		if to.changed {
			to.changed, to.lines = false, p.lines(to)
			to.version++
		}
		r := &pulseRecord{}
		if len(to.entries) > 0 {
			r.life, r.version, r.pulses = p.life, to.version, true
			if to.acked != to.version {
				r.hasList, r.lines = true, to.lines
			}
		}
		say(to.peer, r)
	}
}

// lines returns what the next version says: the groups whose shards work. The others are in no version before
// the one after it, so that no answer counts for them.
func (p *pulses) lines(to *pulsesTo) []pulseLine {
	lines := make([]pulseLine, 0, len(to.entries))
	for at := range to.entries {
		e := &to.entries[at]
		if i := slices.Index(p.shards, e.group.shard); i >= 0 && p.hung[i] {
			e.since = to.version + 2
			continue
		}
		lines = append(lines, e.pulseLine)
	}
	return lines
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
			if at, found := to.find(id); found && to.entries[at].since <= a.version {
				to.entries[at].excepted = true
				excepted = append(excepted, to.entries[at].group)
			}
		}
	}
	return excepted
}

// maxPulseEntries bounds a list. Groups beyond it send heartbeats of their own.
const maxPulseEntries = 16 << 10

// sendPulses is the beat of a host: one record to each other host that has something to hear.
func (h *Host) sendPulses() {
	h.pulses.beat(func(peer uint64, r *pulseRecord) {
		r.answer, r.answers = h.heard.answer(peer)
		if r.pulses || r.answers {
			h.transport.SendBytes(peer, transport.Pulse, r.append(nil))
		}
	})
}

// leadQuietly leaves the heartbeats of a quiet leader to the pulses, and takes them back when it has
// something to say. It is called at the end of a turn.
func (g *Group) leadQuietly() {
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
}

// quietLead is a leader's part in pulses. It belongs to the turn.
type quietLead struct {
	pulsed     bool  // its heartbeats are left to the pulses
	pulseAfter int64 // not before this tick
	activeAt   int64 // the tick through which answers were noted
}
