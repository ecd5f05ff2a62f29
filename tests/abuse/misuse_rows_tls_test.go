package abuse_test

import (
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/transport/cert"
)

// valid is how long a good certificate is valid.
const valid = time.Hour

// pki is a CA of a scene, and where its files are.
type pki struct {
	*scene
	ca *cert.Issuer
}

// pki returns a new CA.
func (s *scene) pki() *pki {
	s.T.Helper()
	ca, err := cert.NewCA("orders production", cert.Span{NotBefore: time.Now().Add(-1000 * time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)})
	if err != nil {
		s.Fatal(err)
	}
	return &pki{s, ca}
}

// member returns the files of a member, whose certificate began an hour ago.
func (p *pki) member(id uint64, valid time.Duration) *host.TLS {
	return p.memberBetween(id, -time.Hour, valid)
}

func (p *pki) memberBetween(id uint64, from, through time.Duration) *host.TLS {
	p.T.Helper()
	m := memberTLS{p.T, id, p.TempDir()}
	p.label(m.dir, "<files>")
	m.issue(p.ca)
	key, err := cert.ReadKey(m.tls().KeyFile)
	if err != nil {
		p.Fatal(err)
	}
	c, err := p.ca.Member(id, key.Public(), cert.Span{NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(through)})
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(m.tls().CertFile, cert.Encode(c), 0o600); err != nil {
		p.Fatal(err)
	}
	return m.tls()
}

// secure opens hosts that found theGroup, each with its files. It does not wait for anything.
func (s *scene) secure(files *host.TLS, a *actor, others ...*actor) {
	s.T.Helper()
	c := a.config(addresses(append(others, a)...))
	c.TLS = files
	a.start(c).serve(host.GroupConfig{})
	if len(others) == 0 {
		s.work("first", a)
	}
}

// clock returns files with a clock that is wrong.
func clock(files *host.TLS, by time.Duration) *host.TLS {
	files.Now = func() time.Time { return time.Now().Add(by) }
	return files
}

// Mistakes with certificates.
var tlsMisuses = []misuse{
	{
		name:   "An expired certificate at the start",
		done:   "The certificate of host 1 has expired, and host 1 starts.",
		advice: []string{"renew it"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.fails("Host 1, Open", a.tryTLS(s.pki().member(1, -time.Minute), b))
		},
	},
	{
		name:   "An expired certificate of another host",
		done:   "The certificate of host 2 has expired. Host 2 has not noticed, because its clock is a day late.",
		advice: []string{"renew it", "renew the certificate of host 2, or make this host trust its CA; no restart is needed"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			p := s.pki()
			s.secure(p.memberBetween(1, -50*time.Hour, valid), a, b)
			s.secure(clock(p.memberBetween(2, -50*time.Hour, -time.Hour), -24*time.Hour), b, a)
			a.logs("from=2", "refused a connection", "has expired")
			b.logs("cannot connect to a peer", "peer=1", "has expired")
			a.explains(diagnosis.CodeCertificateRefused, "this host refuses", "says that it is", "has expired")
			b.explains(diagnosis.CodeCertificateRefused, "host 1 refuses", "the dialing host refuses this one", "has expired")
		},
	},
	{
		name:   "A certificate that is not valid yet",
		done:   "The certificate of host 1 begins tomorrow.",
		advice: []string{"compare the clocks"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.fails("Host 1, Open", a.tryTLS(s.pki().memberBetween(1, 24*time.Hour, 48*time.Hour), b))
		},
	},
	{
		name:   "A clock that is wrong",
		done:   "The clock of host 1 is two days late, and the certificate of host 2 was made an hour ago.",
		advice: []string{"compare the clocks"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			p := s.pki()
			s.secure(clock(p.memberBetween(1, -72*time.Hour, valid), -48*time.Hour), a, b)
			s.secure(p.member(2, valid), b, a)
			a.logs("from=2", "refused a connection", "is not valid before")
			b.logs("cannot connect to a peer", "peer=1", "is not valid before")
		},
	},
	{
		name:   "The certificate of another member",
		done:   "Host 1 is started with the certificate of host 2.",
		advice: []string{"give each host its own certificate"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.fails("Host 1, Open", a.tryTLS(s.pki().member(2, valid), b))
		},
	},
	{
		name:   "A certificate of another CA",
		done:   "The certificate of host 2, and the CA that it trusts, are those of another cluster.",
		advice: []string{"give both hosts certificates of one CA, or add the other CA to the file of CAs"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.secure(s.pki().member(1, valid), a, b)
			s.secure(s.pki().member(2, valid), b, a)
			a.logs("cannot connect to a peer", "peer=2", "leads to no CA")
			b.logs("cannot connect to a peer", "peer=1", "leads to no CA")
			a.explains(diagnosis.CodeCertificateRefused, "host 1 has dialed", "leads to no CA")
			b.explains(diagnosis.CodeCertificateRefused, "host 2 has dialed", "leads to no CA")
		},
	},
	{
		name:   "A host with TLS and one without",
		done:   "Host 1 has `Config.TLS`, and host 2 has not.",
		advice: []string{"configure TLS on both, or on none"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.secure(s.pki().member(1, valid), a, b)
			b.up(a, b)
			a.logs("refused a connection", "speaks plain TCP")
			a.logs("cannot connect to a peer", "peer=2", "the other host speaks plain TCP")
			b.logs("refused a connection", "speaks TLS")
			b.logs("cannot connect to a peer", "peer=1", "refused: host 2 speaks plain TCP")
		},
	},
	{
		name:   "The key of another certificate",
		done:   "`KeyFile` of host 1 is not the key of its certificate.",
		advice: []string{"the two files must belong together"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			p := s.pki()
			files := p.member(1, valid)
			files.KeyFile = p.member(1, valid).KeyFile
			s.fails("Host 1, Open", a.tryTLS(files, b))
		},
	},
	{
		name:   "A file that is not there",
		done:   "`KeyFile` of host 1 names a file that does not exist.",
		advice: []string{"correct the path in Config.TLS, or the rights of the file"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			files := s.pki().member(1, valid)
			files.KeyFile += ".old"
			s.fails("Host 1, Open", a.tryTLS(files, b))
		},
	},
	{
		name:   "A certificate in the place of the CA",
		done:   "`CAFile` of host 1 is its own certificate.",
		advice: []string{"put the certificate of the CA into this file"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			files := s.pki().member(1, valid)
			files.CAFile = files.CertFile
			s.fails("Host 1, Open", a.tryTLS(files, b))
		},
	},
	{
		name:   "Wrong files while a host runs",
		done:   "The certificate of host 1 is replaced, while it runs, by that of host 2.",
		advice: []string{"new certificates cannot be used; the host keeps the ones that it has", "give each host its own certificate"},
		make: func(s *scene) {
			a := s.host(1)
			p := s.pki()
			files, other := p.member(1, valid), p.member(2, valid)
			s.secure(files, a)
			p.put(files, other)
			a.logs("new certificates cannot be used", "names member 2")
		},
	},
}

func (a *actor) tryTLS(files *host.TLS, others ...*actor) error {
	c := a.config(addresses(append(others, a)...))
	c.TLS = files
	return a.try(c)
}

// Mistakes with the keys to which members are bound.
var keyMisuses = []misuse{
	{
		name:   "A second certificate with another key",
		done:   "Host 2 was down, and its certificate was made again with another key of the same CA.",
		advice: []string{"if the certificate is the right one, accept it on this host (Host.AcceptKey), or else put the old one back"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			p := s.pki()
			s.secure(p.member(1, valid), a, b)
			s.secure(p.member(2, valid), b, a)
			s.bound(a, 1, 2)
			b.close()
			s.secure(p.member(2, valid), b, a)
			a.logs("refused a connection", "from=2", "has bound it to the key")
			b.logs("cannot connect to a peer", "peer=1", "has bound it to the key")
			a.explains(diagnosis.CodeIdentityRefused, "has bound it to the key")
		},
	},
	{
		name:   "A key is accepted that was not refused",
		done:   "An operator calls `Host.AcceptKey(2)` on host 1, which has not refused host 2.",
		advice: []string{"call it on the host whose log says that it refuses the key"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			a.up(a, b)
			s.fails("Host 1, AcceptKey(2)", a.AcceptKey(2))
		},
	},
	{
		name:   "A new host with the key of a member",
		done:   "The certificates of hosts 1 and 2 name the right ids, and were made for the same key. Host 2 comes with a join token.",
		advice: []string{"make one for each host"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			p := s.pki()
			one := p.member(1, valid)
			s.secure(one, a)
			s.bound(a, 1)
			b.joins(a.token(host.JoinTokenOptions{}), a, p.sameKey(2, one))
			a.logs("is not made a member", "is that of member 1")
			b.logs("is not made a member", "is that of member 1")
		},
	},
	{
		name:   "A member gets the key of another one",
		done:   "The certificate of host 2 is replaced, while it runs, by one for the key of host 1.",
		advice: []string{"make one for each host"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			p := s.pki()
			one, two := p.member(1, valid), p.member(2, valid)
			s.secure(one, a, b)
			s.secure(two, b, a)
			s.bound(a, 1, 2)
			wrong := p.sameKey(2, one)
			p.put(two, wrong)
			b.logs("the key of a member is not bound", "is that of member 1")
			s.leaderLogs("the key of a member is not bound", "is that of member 1")
		},
	},
}

// put replaces the files of a host that runs by those of another certificate, which stay.
func (p *pki) put(to, from *host.TLS) {
	p.T.Helper()
	for to, from := range map[string]string{to.CertFile: from.CertFile, to.KeyFile: from.KeyFile} {
		text, err := os.ReadFile(from)
		if err != nil {
			p.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			p.Fatal(err)
		}
	}
}

// sameKey returns the files of a member whose certificate is for the key of another one.
func (p *pki) sameKey(id uint64, other *host.TLS) *host.TLS {
	p.T.Helper()
	key, err := cert.ReadKey(other.KeyFile)
	if err != nil {
		p.Fatal(err)
	}
	c, err := p.ca.Member(id, key.Public(), cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid)})
	if err != nil {
		p.Fatal(err)
	}
	files := *other
	dir := p.TempDir()
	p.label(dir, "<files>")
	files.CertFile = filepath.Join(dir, "cert.pem")
	if err := os.WriteFile(files.CertFile, cert.Encode(c), 0o600); err != nil {
		p.Fatal(err)
	}
	return &files
}

// bound waits until these members are bound to keys.
func (s *scene) bound(a *actor, ids ...uint64) {
	s.T.Helper()
	a.until("keys of all members", func() bool {
		n := 0
		for _, m := range a.group().Members().All {
			if m.Key != [32]byte{} {
				n++
			}
		}
		return n == len(ids)
	})
}
