package membership

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// grant makes a token, in the log time of another leader than before: it may be earlier.
func (h *history) grant() {
	h.drawn++
	g := Grant{Time: time.Duration(rapid.IntRange(0, 100).Draw(h.t, "time")), Life: time.Duration(rapid.IntRange(1, 50).Draw(h.t, "life"))}
	g.Token = Token{Hash: TokenHash{byte(h.drawn), byte(h.drawn >> 8), 1}, Learner: rapid.Bool().Draw(h.t, "learner token")}
	if rapid.Bool().Draw(h.t, "for one host") {
		g.Token.Member = rapid.Uint64Range(1, 7).Draw(h.t, "host")
	}
	if again, err := DecodeGrant(g.Encode()); err != nil || again != g {
		h.t.Fatalf("%+v comes back as %+v, %v", g, again, err)
	}
	before := h.now.Changed
	h.index++
	h.enter(h.now.Grant(h.index, g))
	if h.now.Changed != before {
		h.t.Fatal("a token voids the plans that were made before it")
	}
	if _, err := h.now.Grant(h.index+1, g); !errors.Is(err, ErrRefused) {
		h.t.Fatalf("one token is made twice: %v", err)
	}
}

// rekey gives a member a key.
func (h *history) rekey() {
	m := h.now.Members[rapid.IntRange(0, len(h.now.Members)-1).Draw(h.t, "member")]
	k := Rekey{ID: m.ID, Incarnation: m.Incarnation, Key: Key{byte(rapid.IntRange(1, 9).Draw(h.t, "key")), byte(m.ID)}}
	next, err := h.now.Rekey(h.index+1, k)
	if err != nil {
		return // it has it
	}
	h.index++
	h.enter(next, nil)
	if now, _ := next.Member(m.ID); now.Keys[0] != k.Key || !now.Keys.Accepts(k.Key) || now.Keys[1] != m.Keys[0] && now.Keys[1] != (Key{}) {
		h.t.Fatalf("keys %v after %v, with key %v", now.Keys, m.Keys, k.Key)
	}
}

// tokenOf returns a token that a plan uses.
func tokenOf(p Plan) (used TokenHash) {
	for _, steps := range p.Stages {
		for _, s := range steps {
			if !s.Token.IsZero() {
				used = s.Token
			}
		}
	}
	return used
}

// A token makes one member. It is used up by the entry that adds it, and void when it has expired, when it is
// for another host, and when the plan that uses it was cancelled.
func TestTokenMakesOneMember(t *testing.T) {
	hash := TokenHash{7}
	grant := func(member uint64) *Roster {
		r, err := three().Grant(4, Grant{Time: time.Minute, Life: time.Hour, Token: Token{Hash: hash, Member: member}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	begin := func(r *Roster, id uint64, at time.Duration, replace bool) (*Roster, error) {
		t.Helper()
		stages, err := r.Make([]Want{{Op: Add, Member: Member{ID: id, Incarnation: directory(int(id) + 50)}, Token: hash, Replace: replace}})
		if err != nil {
			return nil, err
		}
		return r.Begin(5, Plan{ID: PlanID{1}, Base: r.Changed, Time: at, Stages: stages})
	}
	for _, row := range []struct {
		what    string
		granted uint64
		id      uint64
		at      time.Duration
		replace bool
		want    string
	}{
		{"in time", 0, 4, time.Hour, false, ""},
		{"expired", 0, 4, time.Hour + time.Minute, false, "has expired, at log time 1h1m0s"},
		{"for another host", 5, 4, 0, false, "is not there for host 4"},
		{"for this host", 4, 4, 0, false, ""},
		{"the id of a member", 0, 3, 0, true, "make a join token for host 3"},
		{"replaces a member", 3, 3, 0, true, ""},
	} {
		_, err := begin(grant(row.granted), row.id, row.at, row.replace)
		if row.want == "" && err != nil || row.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v", row.what, err)
		}
	}

	r, err := begin(grant(0), 4, time.Hour, false)
	if err != nil {
		t.Fatal(err)
	}
	cancelled, err := r.Cancel(6, PlanID{1})
	if err != nil || len(cancelled.Tokens) != 0 {
		t.Errorf("after the plan was cancelled there are tokens %v, %v", cancelled.Tokens, err)
	}
	later, err := r.Grant(6, Grant{Time: 5 * time.Hour, Life: time.Hour, Token: Token{Hash: TokenHash{8}}})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := later.NextStage()
	added, err := later.Next(7, c.Entry())
	if err != nil || added.Role(4) != Learner || len(added.Tokens) != 1 {
		t.Fatalf("a plan under way keeps its token: %v; tokens %v", err, added)
	}
	if err := added.RejectToken(hash, 5, 0); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "it was used") {
		t.Errorf("the token is used twice: %v", err)
	}
}

// The tokens of a group are bounded, and expired ones make space.
func TestTokensAreBounded(t *testing.T) {
	r := three()
	var err error
	grant := func(i int, at time.Duration) error {
		next, err := r.Grant(uint64(i+1), Grant{Time: at, Life: time.Hour, Token: Token{Hash: TokenHash{byte(i + 1)}}})
		if err == nil {
			r = next
		}
		return err
	}
	for i := range MaxTokens {
		if err = grant(i, time.Duration(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err = grant(MaxTokens, time.Minute); !errors.Is(err, ErrRefused) {
		t.Errorf("one more: %v", err)
	}
	if err = grant(MaxTokens, time.Hour); err != nil || len(r.Tokens) != MaxTokens {
		t.Errorf("one has expired: %v; %d tokens", err, len(r.Tokens))
	}
	if _, err := r.Grant(99, Grant{Life: MaxTokenLife + 1, Token: Token{Hash: TokenHash{99}}}); !errors.Is(err, ErrRefused) {
		t.Errorf("a token for too long: %v", err)
	}
}

// A member's earlier key counts until the member says its new key a second time. No two members have one key.
func TestRekey(t *testing.T) {
	r, one, two := three(), Key{1}, Key{2}
	say := func(id uint64, k Key) error {
		next, err := r.Rekey(r.Version+1, Rekey{ID: id, Incarnation: directory(int(id)), Key: k})
		if err == nil {
			r = next
		}
		return err
	}
	if m, _ := r.Member(1); !m.Keys.Accepts(one) {
		t.Error("a member without keys may come with any")
	}
	for _, row := range []struct {
		key  Key
		want Keys
	}{{one, Keys{one}}, {two, Keys{two, one}}, {two, Keys{two}}, {one, Keys{one, two}}, {two, Keys{two, one}}} {
		if err := say(1, row.key); err != nil {
			t.Fatal(err)
		}
		if m, _ := r.Member(1); m.Keys != row.want {
			t.Fatalf("keys %v, want %v", m.Keys, row.want)
		}
	}
	if m, _ := r.Member(1); m.Keys.Accepts(Key{3}) || m.Keys.Accepts(Key{}) {
		t.Error("another key is accepted, or none")
	}
	if err := say(2, one); !errors.Is(err, ErrRefused) {
		t.Errorf("two members have one key: %v", err)
	}
	if _, err := r.Rekey(9, Rekey{ID: 1, Incarnation: directory(9), Key: Key{4}}); !errors.Is(err, ErrRefused) {
		t.Errorf("another directory names a key: %v", err)
	}
	k := Rekey{ID: 3, Incarnation: directory(3), Key: Key{9}}
	if again, err := DecodeRekey(k.Encode()); err != nil || again != k || !bytes.Equal(again.Encode(), k.Encode()) {
		t.Errorf("%v comes back as %v, %v", k, again, err)
	}
}
