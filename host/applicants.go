package host

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// applicant is a host that has proved, on its last connection, that it has a join token. Whether the token
// counts is in the log of its group, so only the leader decides: it begins a plan that adds the host, or
// tells the host why not:
//
//	join refused  61 │ group │ why, a sentence
//
// in a body of kind transport.Control.
type applicant struct {
	group       uint64
	hash        membership.TokenHash
	incarnation transport.Incarnation
	key         membership.Key
	addr        string
	refusal     string // what the host was told last
	told        bool   // since it has asked last
}

// applicants are all hosts that came last with a token. There are at most as many as hosts that are
// admitted, or refused because of their directory.
type applicants struct {
	mu    sync.Mutex
	of    map[uint64][]applicant
	said  map[uint64]int64 // tick at which the others were told where a host of these is
	count atomic.Int64     // hosts in of
}

// note keeps what a host has proved. It returns the groups that it concerns.
func (c *applicants) note(id uint64, all []applicant) (groups []uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.of[id]
	switch {
	case len(all) == 0:
		delete(c.of, id)
		delete(c.said, id)
	case before == nil && len(c.of) >= identity.MaxHosts:
		return nil, fmt.Errorf("%w: %d hosts with a join token", identity.ErrTooManyHosts, len(c.of))
	default:
		if c.of == nil {
			c.of = map[uint64][]applicant{}
		}
		for i := range all {
			groups = append(groups, all[i].group)
			if at := slices.IndexFunc(before, func(b applicant) bool { b.refusal, b.told = "", false; return b == all[i] }); at >= 0 {
				all[i].refusal = before[at].refusal
			}
		}
		c.of[id] = all
	}
	c.count.Store(int64(len(c.of)))
	return groups, nil
}

// mayBeTold reports whether the others may be told where an applicant is: once in a heartbeat interval, since
// it connects as often as it likes, and what the others are told may make them connect.
func (c *applicants) mayBeTold(id uint64, now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, told := c.said[id]; told && now < at+ticksPerHeartbeat {
		return false
	}
	if c.said == nil {
		c.said = map[uint64]int64{}
	}
	c.said[id] = now
	return true
}

// waitFor reports whether a host waits to join a group.
func (c *applicants) waitFor(group uint64) bool {
	ids, _ := c.list(group)
	return len(ids) > 0
}

// list returns the applicants of a group, by host.
func (c *applicants) list(group uint64) (ids []uint64, all []applicant) {
	if c.count.Load() == 0 {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, of := range c.of {
		if slices.ContainsFunc(of, func(o applicant) bool { return o.group == group }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		at := slices.IndexFunc(c.of[id], func(o applicant) bool { return o.group == group })
		all = append(all, c.of[id][at])
	}
	return ids, all
}

// drop forgets an applicant: it is a member.
func (c *applicants) drop(id, group uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[id] = slices.DeleteFunc(c.of[id], func(o applicant) bool { return o.group == group }); len(c.of[id]) == 0 {
		delete(c.of, id)
		delete(c.said, id)
	}
	c.count.Store(int64(len(c.of)))
}

// tell notes what an applicant learns. It reports whether that is something else than last, and whether the
// applicant waits for it.
func (c *applicants) tell(id, group uint64, why string) (news, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.of[id] {
		if o := &c.of[id][i]; o.group == group {
			news = o.refusal != why
			waits = news || !o.told
			o.refusal, o.told = why, true
		}
	}
	return news, waits
}

// last returns what a host has proved on its last connection.
func (c *applicants) last(id uint64) []applicant {
	if c.count.Load() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.of[id])
}

// tokenRefusal returns why the token of a host that came last does not count: what a leader here has said, or
// what the roster of a member here says that hears its leader; "": that is not known. A host that is refused
// hears of it from whichever member it dials: the leader cannot speak to it, and it may not know the leader.
func (h *Host) tokenRefusal(id uint64) (why string) {
	for _, a := range h.changes.applicants.last(id) {
		why = cmp.Or(why, a.refusal)
		g := h.groups.get(a.group)
		if g == nil || why != "" {
			continue
		}
		if r := g.roster(); r != nil && g.Err() == nil && !g.isLeaderSilent(h.clock.livedAtBeat()) {
			if err := r.RejectToken(a.hash, id, g.logTime()); err != nil {
				why = err.Error()
			}
		}
	}
	return why
}

// asks notes that a host asks for the roster of a group. It reports whether it is an applicant: it may not
// have learned what it was told.
func (c *applicants) asks(id, group uint64) (is bool) {
	if c.count.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.of[id] {
		if o := &c.of[id][i]; o.group == group {
			o.told, is = false, true
		}
	}
	return is
}

// noteApplicant takes what a host proves when it connects.
func (h *Host) noteApplicant(peer transport.Introduction, remote string) error {
	if len(peer.Proof) == 0 && h.changes.applicants.count.Load() == 0 {
		return nil
	}
	all, err := readProof(h.Cluster(), peer)
	if err != nil {
		return err
	}
	if len(all) > 0 && h.network.ownTCP && h.config.TLS == nil && !onLoopback(remote) {
		return fmt.Errorf("host %d comes with a join token over plain TCP, from %s: who listens in between could join in its place; set Config.TLS on all hosts", peer.ID, remote)
	}
	groups, err := h.changes.applicants.note(peer.ID, all)
	if len(groups) > 0 && peer.Addr != "" && h.changes.applicants.mayBeTold(peer.ID, h.clock.livedAtBeat()) {
		// The leader must hear the applicant, which may know this host only, and may be refused here. The
		// leader looks elsewhere as long as it hears the directory before, so this is said again and again.
		h.tellOthers(peer.ID, peers.Location{Said: peer.Addr, Incarnation: peer.Incarnation, Generation: peer.Generation})
	}
	for _, id := range groups {
		if g := h.groups.get(id); g != nil {
			g.want(dutyPlan)
			g.wake()
		}
	}
	return err
}

// planJoin begins a plan for the first host that may join by its token, and tells the others why they may
// not. It is part of a leader's turn, and no plan is under way.
func (g *Group) planJoin(r *membership.Roster) {
	ids, all := g.host.changes.applicants.list(g.id)
	for i, id := range ids {
		c := all[i]
		if m, ok := r.Member(id); ok && m.Incarnation == c.incarnation {
			g.host.changes.applicants.drop(id, g.id)
			continue
		}
		p, err := g.joinPlan(r, id, c)
		if err != nil {
			g.refuseJoin(id, err)
			continue
		}
		g.host.env.logger.Info("a host joins by a token", "group", g.id, "host", g.self, "member", id, "token", c.hash.String(), "directory", c.incarnation.String())
		g.proposeHost(append([]byte{entry.PlanKind}, p.Encode()...))
		return
	}
}

// logTime returns about the log time now.
func (g *Group) logTime() time.Duration {
	now := g.now()
	return max(g.machine.time.Estimate(now), g.members.time.Estimate(now))
}

// joinPlan returns the plan that makes a host a member by its token, or why there is none.
func (g *Group) joinPlan(r *membership.Roster, id uint64, c applicant) (p membership.Plan, err error) {
	now := g.logTime()
	if err := r.RejectToken(c.hash, id, now); err != nil {
		return p, err
	}
	t, _ := r.Token(c.hash)
	want := membership.Want{Op: membership.Add, Learner: t.Learner, Replace: r.Role(id) != membership.None, Token: c.hash}
	want.Member = membership.Member{ID: id, Incarnation: c.incarnation, Addr: c.addr, Keys: membership.Keys{c.key}}
	if p.Stages, err = r.Make([]membership.Want{want}); err != nil {
		return p, err
	}
	// The id follows from what the plan is for: two leaders that propose it propose the same.
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(append(c.hash[:], c.incarnation[:]...), r.Changed))
	p.ID, p.Base, p.Time = membership.PlanID(sum[:]), r.Changed, now
	return p, g.rejectStages(r, p)
}

// refuseJoin tells a host why it is not made a member.
func (g *Group) refuseJoin(id uint64, why error) {
	news, waits := g.host.changes.applicants.tell(id, g.id, why.Error())
	if news {
		g.host.reports.events.emit(event.JoinRefused{Group: g.id, Member: id, Err: why})
		g.host.env.logger.Warn("a host comes with a join token and is not made a member", "group", g.id, "host", g.self, "member", id, "cause", why)
	}
	if !waits {
		return
	}
	g.host.network.transport.SendBytes(id, transport.Control, encodeJoinRefused(g.id, why.Error()))
}

func encodeJoinRefused(group uint64, why string) []byte {
	return append(binary.AppendUvarint([]byte{control.JoinRefused}, group), why[:min(len(why), maxRefusalBytes)]...)
}

// takeJoinRefused learns from a leader that this host is not made a member.
func (h *Host) takeJoinRefused(from uint64, body []byte) error {
	group, n := binary.Uvarint(body[1:])
	why := body[1+max(n, 0):]
	if n <= 0 || len(why) > maxRefusalBytes || !utf8.Valid(why) {
		return fmt.Errorf("%w: %d bytes refuse a join token", control.ErrBad, len(body))
	}
	g := h.groups.get(group)
	if g == nil || !g.members.joins || g.isBoundHere() {
		return nil
	}
	text := fmt.Sprintf("host %d, its leader, says: %s", from, why)
	if was := g.members.joinRefused.Swap(&text); was == nil || *was != text {
		h.env.logger.Warn("this host is not made a member of the group", "group", group, "host", h.config.ID, "cause", text)
		h.reports.events.emit(event.JoinRefused{Group: group, Member: h.config.ID, By: from, Err: fmt.Errorf("millrace: %s", text)})
	}
	return nil
}

// noteJoined forgets why this host was not made a member, when it is one.
func (g *Group) noteJoined(r *membership.Roster) {
	if m, ok := r.Member(g.self); ok && m.Incarnation == g.host.incarnation() {
		g.members.joinRefused.Store(nil)
	}
}
