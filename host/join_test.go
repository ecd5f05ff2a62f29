package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/transport/cert"
	"go.uber.org/goleak"
)

// token makes a join token on a host.
func (p *party) token(o host.JoinTokenOptions) string {
	p.t.Helper()
	text, err := p.Group(theGroup).NewJoinToken(deadline(p.t), o)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// join opens the host, on an empty directory, with a token and the address of one member.
func (p *party) join(token string, seed *party, tls *host.TLS) {
	p.t.Helper()
	c := p.config(listOf(seed, p))
	c.JoinTokens, c.TLS = []string{token}, tls
	p.openConfig(c)
	p.openGroup()
}

// waitUntil waits for what no event of this host may say.
func (p *party) waitUntil(what string, is func() bool) {
	p.t.Helper()
	ctx, again := deadline(p.t), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-ctx.Done():
			p.t.Fatalf("host %d: no %s", p.id, what)
		}
	}
}

// refusedJoin waits until the host is told that it is not made a member, and why.
func (p *party) refusedJoin(want string) {
	p.t.Helper()
	p.waitEvent("a refusal of its token: "+want, func(e event.Event) bool {
		r, is := e.(event.JoinRefused)
		return is && r.By != 0 && strings.Contains(r.Err.Error(), want)
	})
}

// A host with an empty directory, a token and the address of one member becomes a member. The token counts
// once; another host that comes with it is told so. A token for a member replaces its wiped directory.
func TestHostJoinsByToken(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 6)
	founded(t, ps[:3]...)
	token := ps[1].token(host.JoinTokenOptions{})
	ps[3].join(token, ps[2], nil)
	ps[3].waitMembers([]uint64{1, 2, 3, 4}, nil)
	write(t, ps[:4], "with host 4")

	ps[4].join(token, ps[0], nil)
	ps[4].refusedJoin("is not known: it was used")
	ps[4].waitUntil("cause that it was not added", func() bool {
		d := ps[4].Group(theGroup).Explain()
		return slices.ContainsFunc(d.Causes, func(c diagnosis.Cause) bool {
			return c.Code == diagnosis.CodeNotAdded && strings.Contains(c.Evidence, "is not known: it was used")
		})
	})
	ps[4].close()
	if err := os.RemoveAll(filepath.Join(ps[4].dir, "data")); err != nil {
		t.Fatal(err)
	}
	ps[4].join(ps[3].token(host.JoinTokenOptions{Learner: true, Member: 5}), ps[0], nil)
	ps[4].waitMembers([]uint64{1, 2, 3, 4}, []uint64{5})

	ps[5].join(ps[0].token(host.JoinTokenOptions{Member: 7}), ps[0], nil)
	ps[5].refusedJoin("is for host 7, and host 6 comes with it")
	ps[5].close()

	ps[2].wipe()
	ps[2].join(ps[0].token(host.JoinTokenOptions{Member: 3}), ps[3], nil)
	ps[2].waitMembers([]uint64{1, 2, 3, 4}, []uint64{5})
	write(t, ps[:5], "with host 3 again")
	for _, p := range ps[:5] {
		p.close()
	}
}

// A token that is used wrongly is refused before a file is written, or a host is dialed.
func TestTokensAreRefused(t *testing.T) {
	ps := parties(t, 2)
	founded(t, ps[:1]...)
	token := ps[0].token(host.JoinTokenOptions{})
	changed := []byte(token)
	if changed[40]++; changed[40] == 'z'+1 || changed[40] == 'Z'+1 || changed[40] == '9'+1 {
		changed[40] = 'a'
	}
	for _, row := range []struct {
		what, want string
		change     func(*host.Config)
	}{
		{"no token", `join token 1: it is no join token: it does not begin with "millrace-join-1."`, func(c *host.Config) { c.JoinTokens = []string{"secret"} }},
		{"a part", "characters after", func(c *host.Config) { c.JoinTokens = []string{token[:60]} }},
		{"a typo", "its checksum is wrong, so a character was changed", func(c *host.Config) { c.JoinTokens = []string{string(changed)} }},
		{"another cluster", "is for cluster", func(c *host.Config) { c.Cluster = 99 }},
		{"too many", "want at most 8", func(c *host.Config) { c.JoinTokens = strings.Split(strings.Repeat(token+" ", 9), " ")[:9] }},
		{"not this machine", "cannot be used without TLS, because 10.0.0.1:7000 is not on this machine", func(c *host.Config) { c.Members = map[uint64]string{1: "10.0.0.1:7000", 2: ps[1].addr} }},
		{"TLS", "is of a cluster without TLS, and Config.TLS is set", func(c *host.Config) { c.TLS = newMemberTLS(t, 2, testAuthority(t, "ours")).tls() }},
	} {
		c := ps[1].config(listOf(ps...))
		c.JoinTokens = []string{token}
		row.change(&c)
		_, err := host.Open(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.what, err, row.want)
		}
		if err != nil && strings.Contains(err.Error(), token[20:]) {
			t.Errorf("%s: the error has the secret", row.what)
		}
		if _, err := os.Stat(c.Dir); err == nil {
			t.Errorf("%s: something was written", row.what)
		}
	}
	for _, life := range []time.Duration{-1, 31 * 24 * time.Hour} {
		if _, err := ps[0].Group(theGroup).NewJoinToken(t.Context(), host.JoinTokenOptions{Life: life}); err == nil {
			t.Errorf("a token for %v", life)
		}
	}
	ps[0].close()
}

// authority is a CA of a test.
func testAuthority(t *testing.T, name string) *cert.Issuer {
	t.Helper()
	ca, err := cert.NewCA(name, cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// memberTLS are the files of a member.
type memberTLS struct {
	t   *testing.T
	id  uint64
	dir string
}

func newMemberTLS(t *testing.T, id uint64, ca *cert.Issuer) memberTLS {
	m := memberTLS{t, id, t.TempDir()}
	m.issue(ca)
	return m
}

func (m memberTLS) tls() *host.TLS {
	return &host.TLS{CertFile: filepath.Join(m.dir, "cert.pem"), KeyFile: filepath.Join(m.dir, "key.pem"), CAFile: filepath.Join(m.dir, "ca.pem")}
}

// issue writes a certificate with a new key.
func (m memberTLS) issue(ca *cert.Issuer) {
	m.t.Helper()
	key, err := cert.NewKey()
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := ca.Member(m.id, key.Public(), cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)})
	if err != nil {
		m.t.Fatal(err)
	}
	text, err := cert.EncodeKey(key)
	if err != nil {
		m.t.Fatal(err)
	}
	files := m.tls()
	for path, b := range map[string][]byte{files.CertFile: cert.Encode(c), files.KeyFile: text, files.CAFile: cert.Encode(ca.Certificate)} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

// With TLS members are bound to their keys. A host that comes back with a certificate of another key is
// refused, although the CA has signed it, until an operator accepts the key; then it is bound.
func TestMembersAreBoundToKeys(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ca := testAuthority(t, "ours")
	ps := parties(t, 4)
	files := map[uint64]memberTLS{}
	for _, p := range ps {
		files[p.id] = newMemberTLS(t, p.id, ca)
	}
	open := func(p *party) {
		c := p.config(listOf(ps[:3]...))
		c.TLS = files[p.id].tls()
		p.openConfig(c)
		p.openGroup()
	}
	for _, p := range ps[:3] {
		open(p)
	}
	bound := func(id uint64) (key [32]byte) {
		for _, m := range ps[0].Group(theGroup).Members().All {
			if m.ID == id {
				key = m.Key
			}
		}
		return key
	}
	none := [32]byte{}
	ps[0].waitUntil("keys of all members", func() bool { return bound(1) != none && bound(2) != none && bound(3) != none })

	foreign := newMemberTLS(t, 4, testAuthority(t, "theirs")).tls()
	token := ps[2].token(host.JoinTokenOptions{})
	c := ps[3].config(listOf(ps[0], ps[3]))
	c.JoinTokens, c.TLS = []string{token}, foreign
	if _, err := host.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is of a cluster whose CA has the key") {
		t.Errorf("a host of another CA joins: %v", err)
	}
	ps[3].join(token, ps[0], files[4].tls())
	ps[3].waitMembers([]uint64{1, 2, 3, 4}, nil)
	if bound(4) == none {
		t.Error("a host that joined by a token is bound to no key")
	}

	before := bound(3)
	ps[2].close()
	files[3].issue(ca)
	open(ps[2])
	for _, p := range []*party{ps[0], ps[1], ps[3]} {
		p.waitEvent("a refusal of host 3", func(e event.Event) bool {
			r, is := e.(event.HostRefused)
			return is && r.Host == 3 && strings.Contains(r.Err.Error(), "has bound it to the key")
		})
	}
	if err := ps[0].AcceptKey(2); err == nil {
		t.Error("a key is accepted of a host that was not refused")
	}
	for _, p := range []*party{ps[0], ps[1], ps[3]} {
		if err := p.AcceptKey(3); err != nil {
			t.Fatal(err)
		}
	}
	ps[0].waitUntil("the new key of host 3", func() bool { return bound(3) != before })
	write(t, ps, "with host 3 and its new key")
	for _, p := range ps {
		p.close()
	}
}

// A token that has done its work may stay set, also when the cluster gets TLS: the host is a member, and
// the token is not looked at. On a directory that has not started it is refused as before.
func TestASpentTokenMayStay(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 2)
	founded(t, ps[0])
	token := ps[0].token(host.JoinTokenOptions{})
	ps[1].join(token, ps[0], nil)
	ps[1].waitMembers([]uint64{1, 2}, nil)
	authority := testAuthority(t, "ours")
	for _, p := range ps {
		p.close()
	}
	for _, p := range ps {
		c := p.config(listOf(ps...))
		c.TLS = newMemberTLS(t, p.id, authority).tls()
		if p == ps[1] {
			c.JoinTokens = []string{token}
		}
		p.openConfig(c)
		p.openGroup(1)
	}
	write(t, ps, "over TLS")
	for _, p := range ps {
		p.close()
	}
}

// A host that was wiped, and has moved, joins by a token with the address of a member that does not lead and
// refuses its directory: that one tells the leader where it is.
func TestWipedHostMovesAndJoinsByToken(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 4)
	founded(t, ps[:3]...)
	leader := ps[0].Group(theGroup).Status().Leader
	lost, seed := ps[leader%3], ps[(leader+1)%3] // neither of them leads
	token := seed.token(host.JoinTokenOptions{Member: lost.id})
	lost.wipe()
	lost.addr = ps[3].addr
	lost.join(token, seed, nil)
	lost.waitMembers([]uint64{1, 2, 3}, nil)
	write(t, ps[:3], "with the host that has moved")
	for _, p := range ps[:3] {
		p.close()
	}
}

// A host that comes with a token for any new host, and the id of a member, learns why it is not made one,
// whichever member it dials. Its operator reads that in Explain, on that host.
func TestRefusedTokenIsToldWhereItCame(t *testing.T) {
	t.Run("by the leader", func(t *testing.T) { bringWrongToken(t, 0) })
	t.Run("by a follower", func(t *testing.T) { bringWrongToken(t, 1) })
}

// bringWrongToken wipes host 3 of three, of which host 1 leads, and starts it with such a token and the
// address of one member only.
func bringWrongToken(t *testing.T, dials int) {
	ps := parties(t, 3)
	founded(t, ps...)
	lead := ps[0].Group(theGroup)
	if err := lead.TransferLeadership(deadline(t), 1); err != nil {
		t.Fatal(err)
	}
	token := ps[0].token(host.JoinTokenOptions{})
	ps[2].wipe()
	ps[2].join(token, ps[dials], nil)
	ps[2].waitUntil("sentence about its directory and its token", func() bool {
		d := ps[2].Group(theGroup).Explain()
		at := slices.IndexFunc(d.Causes, func(c diagnosis.Cause) bool { return c.Code == diagnosis.CodeNotAdded })
		if at < 0 {
			return false
		}
		_, said, _ := strings.Cut(d.Causes[at].Evidence, fmt.Sprintf("host %d refuses this host: ", ps[dials].id))
		said, _, _ = strings.Cut(said, " refuses this host: ")
		return strings.Contains(said, "another directory") && strings.Contains(said, "its join token does not make it a member: ")
	})
	for _, p := range ps {
		p.close()
	}
}
