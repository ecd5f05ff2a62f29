package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/vfs"
)

// JoinTokenOptions say what a join token allows. The zero value lets any new host become a voter within an
// hour.
type JoinTokenOptions struct {
	// Life is how long the token is valid, in log time, which stands still while the group has no leader;
	// default an hour, at most 30 days.
	Life time.Duration
	// Member is the only id that may use it. If that is the id of a member, the token replaces the directory
	// of that member: it was wiped or lost. Default 0: any id that no member has had.
	Member uint64
	// Learner makes the new member a learner for good.
	Learner bool
}

// JoinToken is a join token on its way (Group.StartJoinToken).
type JoinToken struct {
	token     plans.Token
	expires   atomic.Int64 // log time
	execution *Execution
}

// NewJoinToken makes a join token for this group, and returns its text when this member has applied the entry
// that makes it valid. The text is a secret: who has it may become a member. It is not kept anywhere, and can
// be used once: Config.JoinTokens of the new host. An error that wraps ErrMembersUnchanged says why there is
// none; a group has at most 64 that are open. Any member may be called. It is safe for concurrent use.
func (g *Group) NewJoinToken(ctx context.Context, o JoinTokenOptions) (string, error) {
	j, err := g.StartJoinToken(o)
	if err != nil {
		return "", err
	}
	if err := j.execution.wait(ctx); err != nil {
		return "", err
	}
	return j.text(), nil
}

// StartJoinToken is NewJoinToken without waiting: ask Poll whether the token is valid.
func (g *Group) StartJoinToken(o JoinTokenOptions) (*JoinToken, error) {
	if o.Life == 0 {
		o.Life = time.Hour
	}
	if o.Life < 0 || o.Life > membership.MaxTokenLife {
		return nil, fmt.Errorf("millrace: JoinTokenOptions.Life is %v, want more than nothing and at most %v", o.Life, membership.MaxTokenLife)
	}
	if g.roster() == nil {
		return nil, g.notFounded()
	}
	ca, err := g.host.issuer()
	if err != nil {
		return nil, fmt.Errorf("millrace: group %d: a join token names the CA of this host, whose certificate cannot be read now: %w", g.id, err)
	}
	j := &JoinToken{token: plans.Token{Cluster: g.host.Cluster(), Group: g.id, CA: ca}}
	if _, err := io.ReadFull(g.host.secrets(), j.token.Secret[:]); err != nil {
		return nil, fmt.Errorf("millrace: group %d: draw the secret of a join token: %w", g.id, err)
	}
	grant := membership.Grant{Life: o.Life, Token: membership.Token{Hash: j.token.Hash(), Member: o.Member, Learner: o.Learner}}
	j.execution = g.execution(plans.EncodeGrant(grant), "join token %v", grant.Token.Hash)
	j.execution.way.Outcome = func(r *membership.Roster) (done bool, err error) {
		t, open := r.Token(grant.Token.Hash)
		if open {
			j.expires.Store(int64(t.Expires))
		}
		return open, nil
	}
	j.execution.start()
	return j, nil
}

// Poll returns the text of the token when this member has applied the entry that makes it valid. It never
// waits.
func (j *JoinToken) Poll() (text string, done bool, err error) {
	if done, err = j.execution.Poll(); !done || err != nil {
		return "", done, err
	}
	return j.text(), true, nil
}

// Hash names the token in logs, and in Members.Tokens. It is no secret.
func (j *JoinToken) Hash() membership.TokenHash { return j.token.Hash() }

func (j *JoinToken) text() string {
	t := j.token
	t.Expires = time.Duration(j.expires.Load())
	return t.String()
}

// parseJoinTokens reads the tokens of the configuration, and completes it with what they say.
func (c *Config) parseJoinTokens() (t plans.Tokens, err error) {
	if len(c.JoinTokens) > plans.MaxTokens {
		return t, fmt.Errorf("millrace: JoinTokens has %d tokens, want at most %d", len(c.JoinTokens), plans.MaxTokens)
	}
	for i, text := range c.JoinTokens {
		j, err := plans.ParseToken(text)
		if err != nil {
			return t, fmt.Errorf("millrace: join token %d: %w", i+1, err)
		}
		if c.Cluster != 0 && c.Cluster != j.Cluster {
			return t, fmt.Errorf("millrace: join token %d is for cluster %d, and Config.Cluster, or another token, is for cluster %d; leave Config.Cluster out, and give a host tokens of one cluster only", i+1, j.Cluster, c.Cluster)
		}
		c.Cluster, c.Joins = j.Cluster, true
		t = append(t, j)
	}
	return t, nil
}

// rejectTokens says why the tokens cannot be used as this host is configured, or returns nil.
func (c Config) rejectTokens(t plans.Tokens) error {
	for i, j := range t {
		switch pinned := j.CA != [32]byte{}; {
		case c.TLS == nil && pinned:
			return fmt.Errorf("millrace: join token %d is of a cluster that uses TLS, and Config.TLS is not set; give this host a certificate (millrace cert)", i+1)
		case c.TLS != nil && !pinned:
			return fmt.Errorf("millrace: join token %d is of a cluster without TLS, and Config.TLS is set; leave it out, or make the token on a member with TLS", i+1)
		case c.TLS != nil:
			found, err := c.TLS.load()
			if err != nil {
				return fmt.Errorf("millrace: Config.TLS of host %d: %w", c.ID, err)
			}
			if !found.Trusts(j.CA) {
				return fmt.Errorf("millrace: join token %d is of a cluster whose CA has the key %x, and Config.TLS trusts %s; the CA file is that of another cluster, or the token was made before the CA was replaced; use the CA of the cluster, or make another token", i+1, j.CA[:8], found.RootsText())
			}
		}
		if addr, is := c.exposed(); is && c.TLS == nil {
			return fmt.Errorf("millrace: join token %d cannot be used without TLS, because %s is not on this machine: who listens there could join in place of this host; set Config.TLS", i+1, addr)
		}
	}
	return nil
}

// dropSpent leaves out tokens that cannot be used as this host is configured, because of rejected, if they
// have done their work: the directory has started in the cluster of the tokens. A token may stay set for
// years, while a cluster gets TLS, or replaces its CA. Otherwise dropSpent returns rejected. given is the
// configuration without what the tokens say.
func (c Config) dropSpent(given Config, fsys vfs.FS, rejected error) (Config, error) {
	have, found, err := identity.Read(fsys, c.Dir)
	if err != nil || !found || have.Cluster != c.Cluster {
		return c, rejected
	}
	if started, err := identity.HasStarted(fsys, identity.LogDir(c.Dir)); err != nil || !started {
		return c, errors.Join(rejected, err)
	}
	c.Joins = given.Joins
	return c, nil
}

// Prove implements transport.Prover: this host has the tokens of groups that have not added it yet.
func (h *inbound) Prove(channel [32]byte) (proof []byte) {
	self := h.trust.admission.Self()
	return h.trust.tokens.Prove(self.ID, self.Incarnation, channel, func(group uint64) bool {
		g := h.groups.get(group)
		return g != nil && g.isBoundHere()
	})
}

// isBoundHere reports whether this member's roster has its directory.
func (g *Group) isBoundHere() bool {
	r := g.roster()
	if r == nil {
		return false
	}
	m, ok := r.Member(g.self)
	return ok && m.Incarnation == g.host.incarnation()
}
