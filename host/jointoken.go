package host

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
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

// Prove implements transport.Prover: this host has the tokens of groups that have not added it yet.
func (h *inbound) Prove(channel [32]byte) (proof []byte) {
	self := h.trust.admission.Self()
	return h.trust.tokens.Prove(self.ID, self.Incarnation, channel, func(group uint64) bool {
		g := h.groups.get(group)
		return g != nil && g.members.IsBound()
	})
}
