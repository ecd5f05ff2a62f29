package history

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

var rotations = flag.Int("rotations", 1, "how often TestRotations replaces the CA and all certificates")

// pki is the files of three hosts that talk over TLS.
type pki struct {
	*testing.T
	dir string
}

func (p pki) file(id int, name string) string {
	return filepath.Join(p.dir, fmt.Sprintf("%d-%s.pem", id, name))
}

func (p pki) flags(id int) []string {
	return []string{"-cert", p.file(id, "cert"), "-key", p.file(id, "key"), "-ca", p.file(id, "ca")}
}

// replace writes a file as an operator should: beside, and then moved.
func (p pki) replace(path string, text []byte) {
	p.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		p.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.Fatal(err)
	}
}

func (p pki) newCA(name string) *cert.Issuer {
	p.Helper()
	ca, err := cert.NewCA(name, cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)})
	if err != nil {
		p.Fatal(err)
	}
	return ca
}

// certify gives a host a new key and a certificate.
func (p pki) certify(ca *cert.Issuer, id int) {
	p.Helper()
	key, err := cert.NewKey()
	if err != nil {
		p.Fatal(err)
	}
	c, err := ca.Member(uint64(id), key.Public(), cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(500 * time.Hour)})
	if err != nil {
		p.Fatal(err)
	}
	text, err := cert.EncodeKey(key)
	if err != nil {
		p.Fatal(err)
	}
	p.replace(p.file(id, "key"), text)
	p.replace(p.file(id, "cert"), cert.Encode(c))
}

// count returns a metric of a host, -1 if it does not answer.
func (p *process) count(name string) int {
	text, _, _ := strings.Cut(p.metrics("millrace_"+name+"{"), ";")
	_, number, _ := strings.Cut(text, "} ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return n
}

// TestRotations runs three processes that talk over TLS, under load, and replaces the CA and all certificates
// in the three steps of docs/operate/tls.md. No process is restarted. The first two steps end no connection.
// What the clients saw must be linearizable, and nothing that was acknowledged may be lost.
func TestRotations(t *testing.T) {
	p := pki{t, t.TempDir()}
	ca := p.newCA("CA 0")
	for id := 1; id <= 3; id++ {
		p.certify(ca, id)
		p.replace(p.file(id, "ca"), cert.Encode(ca.Certificate))
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	c := startClusterWith(t, binary, p.flags)
	l := startLoad(t, c, loadOptions{clients: 8, sessions: 3, readers: 6, keys: 4, perKey: 150, pace: 5 * time.Millisecond, timeout: 400 * time.Millisecond,
		reads: []read{{}, {query: "consistency=lease"}}})
	l.waitForMore(t, 100, "over TLS")
	sum := func(name string) (n int) {
		for _, h := range c.hosts {
			n += h.count(name)
		}
		return n
	}
	step := func(what string, change func(id int)) {
		t.Helper()
		before := [4]int{}
		for _, h := range c.hosts {
			before[h.id] = h.count("certificate_loads_total")
			change(h.id)
		}
		for _, h := range c.hosts {
			eventually(t, fmt.Sprintf("host %d has loaded: %s", h.id, what), func() error {
				if n := h.count("certificate_loads_total"); n <= before[h.id] {
					return fmt.Errorf("it has loaded %d times", n)
				}
				return nil
			})
		}
		l.waitForMore(t, 100, what)
	}
	first, began := sum("group_leader_changes_total"), time.Now()
	for round := range *rotations {
		next := p.newCA(fmt.Sprintf("CA %d", round+1))
		dials := sum("dials_total")
		step("both CAs are trusted", func(id int) { p.replace(p.file(id, "ca"), cert.Encode(ca.Certificate, next.Certificate)) })
		step("certificates of the new CA", func(id int) { p.certify(next, id) })
		if n := sum("dials_total"); n != dials {
			t.Logf("round %d: %d connections were dialed in the first two steps", round+1, n-dials)
		}
		step("the old CA is removed", func(id int) { p.replace(p.file(id, "ca"), cert.Encode(next.Certificate)) })
		ca = next
	}
	t.Logf("%d rotations of the CA and of all certificates in %v; leaders changed %d times, as counted by the three members", *rotations, time.Since(began).Round(time.Second), sum("group_leader_changes_total")-first)
	l.stop()
	l.check(t, c.hosts)
	judge(t, l)
	for _, h := range c.hosts {
		if h.count("tls_handshakes_total") == 0 {
			t.Errorf("host %d does not talk over TLS", h.id)
		}
		h.terminate(t)
	}
}
