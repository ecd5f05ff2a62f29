package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// joining is a join token on its way, and then with the hosts that were given it. They are two at times, and
// nothing else adds them meanwhile: at most one of them may become a member (checkToken).
type joining struct {
	replica *replica // that was asked to make it
	token   *host.JoinToken
	hosts   []*machine
	replace uint64 // the member that it replaces; 0: none
	given   bool
	in      bool          // a host has become a member by it
	goneAt  time.Duration // when the group did not have it any more, first
}

// grant asks for a token.
func (c *churn) grant(r *replica, hosts []*machine, replace uint64) {
	if len(hosts) == 0 {
		return
	}
	life := pick(c.rng, 60*time.Millisecond, time.Second, time.Hour)
	t, err := r.group.StartJoinToken(host.JoinTokenOptions{Life: life, Member: replace, Learner: c.rng.IntN(6) == 0})
	if err != nil {
		c.w.breaks(property.OneConfiguration, "%s makes no join token: %v", r.name, err)
	}
	c.w.record(fmt.Sprintf("%s is asked for join token %v, for %v", r.name, t.Hash(), life))
	c.tokens = append(c.tokens, &joining{replica: r, token: t, hosts: hosts, replace: replace})
}

// newcomers returns up to two hosts that are no members and may become some.
func (c *churn) newcomers(r *replica, m host.Members) (hosts []*machine) {
	for _, h := range c.w.hosts {
		isMember := slices.ContainsFunc(m.All, func(i host.MemberInfo) bool { return i.ID == h.id })
		if !isMember && !slices.Contains(m.Removed, h.id) && !c.onlyByToken(r.id, h.id) && h.alive != nil && h.alive.process != nil {
			hosts = append(hosts, h)
		}
	}
	c.rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	return hosts[:min(len(hosts), 1+c.rng.IntN(2))]
}

// onlyByToken reports whether a host has a token of a group that may still count.
func (c *churn) onlyByToken(group, id uint64) bool {
	return slices.ContainsFunc(c.tokens, func(j *joining) bool {
		return j.replica.id == group && j.replace == 0 && slices.ContainsFunc(j.hosts, func(h *machine) bool { return h.id == id })
	})
}

// pollTokens gives out the tokens that were made, and forgets those that count no longer.
func (c *churn) pollTokens() {
	c.tokens = slices.DeleteFunc(c.tokens, func(j *joining) bool {
		if !j.given {
			return c.give(j)
		}
		c.checkToken(j)
		leads := c.w.leading(j.replica.id)
		if leads == nil {
			return false
		}
		m := leads.group.Members()
		if j.isOpen(m) || m.Plan != "" {
			j.goneAt = 0
			return c.w.nemesis.stopped
		}
		if j.goneAt == 0 {
			j.goneAt = c.w.now
		}
		return c.w.nemesis.stopped || c.w.now > j.goneAt+300*time.Millisecond
	})
}

// isOpen reports whether the token was not used.
func (j *joining) isOpen(m host.Members) (open bool) {
	for _, t := range m.Tokens {
		open = open || t.Hash == j.token.Hash()
	}
	return open
}

// give starts the hosts of a token with it, if it is valid. It reports whether the token is forgotten.
func (c *churn) give(j *joining) (forgotten bool) {
	text, done, err := j.token.Poll()
	switch {
	case !done:
		return j.replica.life.dead || c.w.nemesis.stopped
	case err != nil && !errors.Is(err, outcome.ErrMembersUnchanged) && !errors.Is(err, outcome.ErrStopped):
		c.w.breaks(property.OneConfiguration, "%s: a join token ends with an error of unknown kind: %v", j.replica.name, err)
		return true
	case err != nil || c.w.nemesis.stopped:
		return true
	}
	c.w.count(Tokens)
	j.given = true
	for _, h := range j.hosts {
		h.tokens = append(h.tokens, text)
		h.tokens = h.tokens[max(0, len(h.tokens)-4):]
		if h.alive != nil && h.alive.process != nil {
			h.crash(crashfs.LoseNothing)
			c.w.nemesis.restart(h)
		}
	}
	return false
}

// checkToken: a token that is for no certain member lets one host in, at most.
func (c *churn) checkToken(j *joining) {
	leads := c.w.leading(j.replica.id)
	if leads == nil {
		return
	}
	in := 0
	for _, h := range j.hosts {
		if c.named[memberOf{j.replica.id, h.id}] {
			continue // an operator may have added it
		}
		if slices.ContainsFunc(leads.group.Members().All, func(i host.MemberInfo) bool { return i.ID == h.id }) {
			in++
		}
	}
	if in > 0 && !j.in && j.replace == 0 {
		j.in = true
		c.w.count(Joins)
	}
	if in > 1 && j.replace == 0 {
		c.w.breaks(property.OneConfiguration, "join token %v has let in two hosts, %d and %d", j.token.Hash(), j.hosts[0].id, j.hosts[1].id)
	}
}
