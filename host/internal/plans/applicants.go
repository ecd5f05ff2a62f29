package plans

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/transport"
)

// Applicant is a host that has proved, on its last connection, that it has a join token. Whether the token
// counts is in the log of its group, so only the leader decides. It begins a plan that adds the host, or
// tells the host why not.
type Applicant struct {
	Group       uint64
	Hash        membership.TokenHash
	Incarnation transport.Incarnation
	Key         membership.Key
	Addr        string
	Refusal     string // what the host was told last
	told        bool   // since it has asked last
}

// Applicants are all hosts that came last with a token. There are at most as many as hosts that are
// admitted, or refused because of their directory.
type Applicants struct {
	mu    lock.Mutex
	of    map[uint64][]Applicant
	said  map[uint64]int64 // tick at which the others were told where a host of these is
	count atomic.Int64     // hosts in of
}

// Record keeps what a host has proved. It returns the groups that it concerns.
func (c *Applicants) Record(id uint64, all []Applicant) (groups []uint64, err error) {
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
			c.of = map[uint64][]Applicant{}
		}
		for i := range all {
			groups = append(groups, all[i].Group)
			if at := slices.IndexFunc(before, func(b Applicant) bool { b.Refusal, b.told = "", false; return b == all[i] }); at >= 0 {
				all[i].Refusal = before[at].Refusal
			}
		}
		c.of[id] = all
	}
	c.count.Store(int64(len(c.of)))
	return groups, nil
}

// MayBeTold reports whether the others may be told where an applicant is: once in some ticks. An applicant
// connects as often as it likes, and what the others are told may make them connect.
func (c *Applicants) MayBeTold(id uint64, now, every int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, told := c.said[id]; told && now < at+every {
		return false
	}
	if c.said == nil {
		c.said = map[uint64]int64{}
	}
	c.said[id] = now
	return true
}

// WaitFor reports whether a host waits to join a group.
func (c *Applicants) WaitFor(group uint64) bool {
	ids, _ := c.List(group)
	return len(ids) > 0
}

// List returns the applicants of a group, by host.
func (c *Applicants) List(group uint64) (ids []uint64, all []Applicant) {
	if c.count.Load() == 0 {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, of := range c.of {
		if slices.ContainsFunc(of, func(o Applicant) bool { return o.Group == group }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		at := slices.IndexFunc(c.of[id], func(o Applicant) bool { return o.Group == group })
		all = append(all, c.of[id][at])
	}
	return ids, all
}

// Drop forgets an applicant: it is a member.
func (c *Applicants) Drop(id, group uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[id] = slices.DeleteFunc(c.of[id], func(o Applicant) bool { return o.Group == group }); len(c.of[id]) == 0 {
		delete(c.of, id)
		delete(c.said, id)
	}
	c.count.Store(int64(len(c.of)))
}

// Tell notes what an applicant learns. It reports whether that is something else than last, and whether the
// applicant waits for it.
func (c *Applicants) Tell(id, group uint64, why string) (news, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.of[id] {
		if o := &c.of[id][i]; o.Group == group {
			news = o.Refusal != why
			waits = news || !o.told
			o.Refusal, o.told = why, true
		}
	}
	return news, waits
}

// Last returns what a host has proved on its last connection.
func (c *Applicants) Last(id uint64) []Applicant {
	if c.count.Load() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.of[id])
}

// Any reports whether a host waits to join a group here.
func (c *Applicants) Any() bool { return c.count.Load() > 0 }

// Asks notes that a host asks for the roster of a group. It reports whether it is an applicant: it may not
// have learned what it was told.
func (c *Applicants) Asks(id, group uint64) (is bool) {
	if c.count.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.of[id] {
		if o := &c.of[id][i]; o.Group == group {
			o.told, is = false, true
		}
	}
	return is
}

// Has reports whether a host came last with a token.
func (c *Applicants) Has(id uint64) bool {
	if c.count.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[id] != nil
}

// JoinPlan returns the plan that makes a host a member by its token at a log time, or why there is none.
func JoinPlan(r *membership.Roster, id uint64, c Applicant, now time.Duration) (p membership.Plan, err error) {
	if err := r.RejectToken(c.Hash, id, now); err != nil {
		return p, err
	}
	t, _ := r.Token(c.Hash)
	want := membership.Want{Op: membership.Add, Learner: t.Learner, Replace: r.Role(id) != membership.None, Token: c.Hash}
	want.Member = membership.Member{ID: id, Incarnation: c.Incarnation, Addr: c.Addr, Keys: membership.Keys{c.Key}}
	if p.Stages, err = r.Make([]membership.Want{want}); err != nil {
		return p, err
	}
	// The id follows from what the plan is for: two leaders that propose it propose the same.
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(append(c.Hash[:], c.Incarnation[:]...), r.Changed))
	p.ID, p.Base, p.Time = membership.PlanID(sum[:]), r.Changed, now
	return p, nil
}
