package plans

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

func aToken() Token {
	return Token{Cluster: 3, Group: 7, CA: [32]byte{1}, Secret: [secretBytes]byte{2}, Expires: time.Hour}
}

// The text of a token is read back, whatever is around it. One that was changed anywhere is refused.
func TestTextOfAToken(t *testing.T) {
	text := aToken().String()
	if again, err := ParseToken(" " + text + "\n"); err != nil || again != aToken() {
		t.Errorf("%+v, %v", again, err)
	}
	for i := range text {
		changed := text[:i] + string(text[i]^1) + text[i+1:]
		if again, err := ParseToken(changed); err == nil && again != aToken() {
			t.Errorf("with character %d changed it is %+v", i, again)
		} else if err != nil && !errors.Is(err, errBadToken) {
			t.Error(err)
		}
	}
	if _, err := ParseToken(text[:len(text)-1]); !isRefused(err, "copy the whole text") {
		t.Errorf("a token without its last character: %v", err)
	}
}

// A host proves its tokens on a connection. What was proved is worth nothing on another one, and for another
// host or directory.
func TestProof(t *testing.T) {
	tokens := Tokens{aToken(), {Cluster: 3, Group: 8}}
	channel := [32]byte{5}
	proof := tokens.Prove(4, directory(4), channel, func(group uint64) bool { return group == 8 })
	peer := transport.Introduction{ID: 4, Incarnation: directory(4), Addr: "four", Channel: channel, Proof: proof}
	all, err := ReadProof(3, peer)
	if err != nil || len(all) != 1 || all[0].Group != 7 || all[0].Hash != aToken().Hash() || all[0].Addr != "four" {
		t.Fatalf("%+v, %v", all, err)
	}
	for name, change := range map[string]func(*transport.Introduction){
		"connection": func(p *transport.Introduction) { p.Channel[0]++ },
		"host":       func(p *transport.Introduction) { p.ID++ },
		"directory":  func(p *transport.Introduction) { p.Incarnation[0]++ },
		"length":     func(p *transport.Introduction) { p.Proof = p.Proof[1:] },
	} {
		other := peer
		if change(&other); other.Proof == nil {
			t.Fatal("no proof")
		}
		if _, err := ReadProof(3, other); err == nil {
			t.Errorf("the proof counts with another %s", name)
		}
	}
	if _, err := ReadProof(2, peer); err == nil {
		t.Error("the proof counts in another cluster")
	}
	if _, ok := tokens.Of(9); ok {
		t.Error("a token for group 9")
	}
}

// A leader makes a token once, in its log time.
func TestGrant(t *testing.T) {
	r := founded(3)
	q := RequestOf(2, EncodeGrant(membership.Grant{Life: time.Minute, Token: membership.Token{Hash: aToken().Hash()}}))
	data, err := q.Grant(r, time.Hour)
	if err != nil || data[0] != entry.GrantKind {
		t.Fatalf("%x, %v", data, err)
	}
	grant, err := membership.DecodeGrant(data[1:])
	if err != nil || grant.Time != time.Hour {
		t.Fatalf("%+v, %v", grant, err)
	}
	open, err := r.Grant(4, grant)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := q.Grant(open, time.Hour); data != nil || err != nil {
		t.Errorf("an open token is made again: %x, %v", data, err)
	}
}

// Applicants come, are told once why they must wait, and are told again when they ask.
func TestApplicants(t *testing.T) {
	var c Applicants
	a := Applicant{Group: 7, Hash: aToken().Hash(), Incarnation: directory(4)}
	if groups, err := c.Record(4, []Applicant{a}); err != nil || !slices.Equal(groups, []uint64{7}) || !c.Any() || !c.Has(4) || !c.WaitFor(7) || c.WaitFor(8) {
		t.Fatalf("%v, %v", groups, err)
	}
	if !c.MayBeTold(4, 10, 4) || c.MayBeTold(4, 13, 4) || !c.MayBeTold(4, 14, 4) {
		t.Error("the others hear where it is once in 4 ticks")
	}
	demand := func(when string, news, waits bool) {
		t.Helper()
		if n, w := c.Tell(4, 7, "no"); n != news || w != waits {
			t.Errorf("%s: news %t, waits %t", when, n, w)
		}
	}
	demand("first", true, true)
	demand("again", false, false)
	if !c.Asks(4, 7) || c.Asks(5, 7) {
		t.Error("applicant 4 asks, and 5 is none")
	}
	demand("after it has asked", false, true)
	if _, err := c.Record(4, []Applicant{a}); err != nil {
		t.Fatal(err)
	}
	if ids, all := c.List(7); !slices.Equal(ids, []uint64{4}) || all[0].Refusal != "no" {
		t.Errorf("it comes again: %v, %+v", ids, all)
	}
	demand("after it has come again", false, true)
	if c.Drop(4, 7); c.Any() || c.Has(4) || len(c.Last(4)) > 0 {
		t.Error("it is a member, and an applicant")
	}
	for id := range uint64(identity.MaxHosts) {
		if _, err := c.Record(id+1, []Applicant{a}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Record(1<<20, []Applicant{a}); !errors.Is(err, identity.ErrTooManyHosts) {
		t.Errorf("one more: %v", err)
	}
}

// A host joins by a token that is open. Two leaders make the same plan of it.
func TestJoinPlan(t *testing.T) {
	r, err := founded(3).Grant(4, membership.Grant{Life: time.Minute, Token: membership.Token{Hash: aToken().Hash()}})
	if err != nil {
		t.Fatal(err)
	}
	c := Applicant{Group: 7, Hash: aToken().Hash(), Incarnation: directory(4), Addr: "four"}
	p, err := JoinPlan(r, 4, c, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Begin(5, p); err != nil {
		t.Error(err)
	}
	if again, err := JoinPlan(r, 4, c, 2*time.Second); err != nil || again.ID != p.ID {
		t.Errorf("plan %v, and then %v, %v", p.ID, again.ID, err)
	}
	if _, err := JoinPlan(r, 4, c, time.Hour); !isRefused(err, "expired") {
		t.Errorf("an expired token: %v", err)
	}
	c.Hash[0]++
	if _, err := JoinPlan(r, 4, c, time.Second); !isRefused(err, "is not known") {
		t.Errorf("an unknown token: %v", err)
	}
}
