package membership

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// Token is a join token as the group knows it. A host that has the secret may become a member, once. The
// step that adds the member uses the token up, in the same entry. So no crash and no second leader lets it
// count twice. The group knows only a hash of what the secret makes, so a log, a snapshot or a backup lets
// no host in.
type Token struct {
	Hash TokenHash
	// Expires is the log time from which on no plan may begin that uses the token. A plan under way is
	// carried out.
	Expires time.Duration
	// Member is the only id that the token is for. If it is the id of a member, the token replaces the
	// member's directory. 0: any id that was never given.
	Member uint64
	// Learner makes the new member a learner for good.
	Learner bool
}

// TokenHash is the SHA-256 of the public key that the secret of a token makes.
type TokenHash [32]byte

// IsZero reports whether it is no token's.
func (h TokenHash) IsZero() bool { return h == TokenHash{} }

func (h TokenHash) String() string { return hex.EncodeToString(h[:4]) }

// The bounds of tokens.
const (
	MaxTokens    = 64
	MaxTokenLife = 30 * 24 * time.Hour
	maxTime      = 1<<63 - 1
)

// Grant is an entry that makes a token.
type Grant struct {
	// Time is the log time at which it was proposed, and Life how long the token is valid from then on.
	Time, Life time.Duration
	// Token has no Expires.
	Token Token
}

// Grant returns the roster after an entry that makes a token, or why the entry changes nothing.
func (r *Roster) Grant(index uint64, g Grant) (*Roster, error) {
	next := *r
	next.Time = max(r.Time, g.Time)
	next.Tokens = slices.DeleteFunc(slices.Clone(r.Tokens), func(t Token) bool { return next.isVoid(t) })
	t := g.Token
	switch {
	case t.Hash.IsZero():
		return nil, refuse("a join token has no hash")
	case g.Life <= 0 || g.Life > MaxTokenLife:
		return nil, refuse("a join token is valid for %v, want more than nothing and at most %v", g.Life, MaxTokenLife)
	case slices.ContainsFunc(next.Tokens, func(o Token) bool { return o.Hash == t.Hash }):
		return nil, refuse("join token %v is there already", t.Hash)
	case len(next.Tokens) >= MaxTokens:
		return nil, refuse("%d join tokens are open, the most that a group has; use one, or wait until one expires", len(next.Tokens))
	case next.Time > maxTime-g.Life:
		return nil, refuse("the log time %v is too high for a join token", next.Time)
	}
	next.Version = index
	t.Expires = next.Time + g.Life
	next.Tokens = append(next.Tokens, t)
	return &next, nil
}

// isVoid reports whether a token has expired and no plan under way uses it.
func (r *Roster) isVoid(t Token) bool { return t.Expires <= r.Time && !r.Plan.uses(t.Hash) }

// uses reports whether a plan adds a member by a token.
func (p *Plan) uses(h TokenHash) bool {
	return p != nil && slices.ContainsFunc(p.Stages, func(steps []Step) bool {
		return slices.ContainsFunc(steps, func(s Step) bool { return s.Token == h })
	})
}

// Token returns a token that was not used.
func (r *Roster) Token(h TokenHash) (t Token, ok bool) {
	i := slices.IndexFunc(r.Tokens, func(t Token) bool { return t.Hash == h })
	if h.IsZero() || i < 0 {
		return t, false
	}
	return r.Tokens[i], true
}

// RejectToken says why a host must not become member id by a token at a log time, or returns nil.
func (r *Roster) RejectToken(h TokenHash, id uint64, now time.Duration) error {
	t, ok := r.Token(h)
	switch now = max(now, r.Time); {
	case !ok:
		return refuse("join token %v is not known: it was used, it was cancelled, it expired long ago, or it is for another group; make another one", h)
	case t.Expires <= now:
		return refuse("join token %v has expired, at log time %v; make another one", h, t.Expires)
	case t.Member != 0 && t.Member != id:
		return refuse("join token %v is for host %d, and host %d comes with it; start host %d with it, or make another one for host %d", h, t.Member, id, t.Member, id)
	case t.Member == 0 && r.Role(id) != None:
		return refuse("member %d is there already, as a %v; to give its id to another directory, make a join token for host %d", id, r.Role(id), id)
	}
	return nil
}

// rejectTokens says why a plan with tokens may not begin now, or returns nil.
func (r *Roster) rejectTokens(stages [][]Step) error {
	for _, steps := range stages {
		for _, s := range steps {
			if s.Token.IsZero() {
				continue
			}
			if err := r.RejectToken(s.Token, s.ID, r.Time); err != nil {
				return err
			}
		}
	}
	return nil
}

// rejectToken says why a step cannot use its token, or returns nil. When the plan began the token had not
// expired.
func (r *Roster) rejectToken(s Step) error {
	if s.Token.IsZero() {
		return nil
	}
	if t, ok := r.Token(s.Token); !ok || t.Member != 0 && t.Member != s.ID {
		return refuse("join token %v is not there for host %d", s.Token, s.ID)
	}
	return nil
}

// without returns the tokens that steps do not use.
func without(tokens []Token, steps []Step) []Token {
	used := func(t Token) bool {
		return slices.ContainsFunc(steps, func(s Step) bool { return s.Token == t.Hash })
	}
	if !slices.ContainsFunc(tokens, used) {
		return tokens
	}
	return slices.DeleteFunc(slices.Clone(tokens), used)
}

// withoutTokensOf returns the tokens that a plan does not use.
func (r *Roster) withoutTokensOf(p *Plan) []Token {
	return without(r.Tokens, slices.Concat(p.Stages...))
}

func (t Token) appendTo(b []byte) []byte {
	b = append(b, t.Hash[:]...)
	b = binary.AppendUvarint(b, uint64(t.Expires))
	b = binary.AppendUvarint(b, t.Member)
	return append(b, boolByte(t.Learner))
}

func (r *reader) token() (t Token) {
	copy(t.Hash[:], r.bytes(len(t.Hash)))
	t.Expires, t.Member, t.Learner = r.time(), r.uvarint(^uint64(0)), r.boolean()
	return t
}

// Encode returns the bytes of a grant:
//
//	version │ time │ life │ the token, without the time when it expires
func (g Grant) Encode() []byte {
	b := binary.AppendUvarint([]byte{version}, uint64(g.Time))
	b = binary.AppendUvarint(b, uint64(g.Life))
	g.Token.Expires = 0
	return g.Token.appendTo(b)
}

// DecodeGrant decodes a grant. It is canonical: Encode returns the same bytes.
func DecodeGrant(data []byte) (g Grant, err error) {
	r := newReader(data)
	g.Time, g.Life, g.Token = r.time(), r.time(), r.token()
	if err := r.end("a join token"); err != nil {
		return Grant{}, err
	}
	if g.Token.Expires != 0 {
		return Grant{}, fmt.Errorf("%w: a join token is granted that expires already", ErrFormat)
	}
	return g, nil
}
