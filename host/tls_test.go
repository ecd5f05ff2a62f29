package host

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/transport/tcp"
)

// testCA is a CA of a test.
func testCA(t *testing.T, name string) *cert.Issuer {
	t.Helper()
	ca, err := cert.NewCA(name, cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func testMember(t *testing.T, ca *cert.Issuer, id uint64, valid time.Duration) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := cert.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ca.Member(id, key.Public(), cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid)})
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

// tlsFiles writes the files of a member.
func tlsFiles(t *testing.T, ca *cert.Issuer, id uint64, valid time.Duration) *TLS {
	t.Helper()
	dir := t.TempDir()
	c, key := testMember(t, ca, id, valid)
	pem, err := cert.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s := &TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CAFile: filepath.Join(dir, "ca.pem")}
	for path, text := range map[string][]byte{s.CertFile: cert.Encode(c), s.KeyFile: pem, s.CAFile: cert.Encode(ca.Certificate)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Open refuses what other hosts would refuse, before it writes or listens.
func TestTLSIsCheckedByOpen(t *testing.T) {
	ca, other := testCA(t, "ours"), testCA(t, "theirs")
	good := tlsFiles(t, ca, 1, time.Hour)
	foreign := *good
	foreign.CAFile = tlsFiles(t, other, 1, time.Hour).CAFile
	exchanged := *good
	exchanged.KeyFile = tlsFiles(t, ca, 1, time.Hour).KeyFile
	nameless, key := testMember(t, ca, 1, time.Hour)
	nameless.URIs = nil
	for _, row := range []struct {
		name string
		tls  *TLS
		want string
	}{
		{"nothing", &TLS{}, "millrace: Config.TLS.CertFile is empty; TLS needs CertFile, KeyFile and CAFile (millrace cert makes them), or leave Config.TLS out"},
		{"no key", &TLS{CertFile: "a", CAFile: "b"}, "millrace: Config.TLS.KeyFile is empty"},
		{"no CA", &TLS{CertFile: "a", KeyFile: "b"}, "millrace: Config.TLS.CAFile is empty"},
		{"both", &TLS{CertFile: "a", Source: func() (*cert.Credentials, error) { return nil, nil }}, "has a Source and names a file in CertFile; want one of them"},
		{"no such file", &TLS{CertFile: "/does/not/exist", KeyFile: good.KeyFile, CAFile: good.CAFile}, "millrace: Config.TLS of host 1: the certificate: stat /does/not/exist: no such file or directory"},
		{"the source fails", &TLS{Source: func() (*cert.Credentials, error) { return nil, errors.New("no store") }}, "millrace: Config.TLS of host 1: no store"},
		{"the source is empty", &TLS{Source: func() (*cert.Credentials, error) { return nil, nil }}, "has returned no credentials"},
		{"another member", tlsFiles(t, ca, 2, time.Hour), "names member 2, not member 1; give each host its own certificate"},
		{"expired", tlsFiles(t, ca, 1, -time.Minute), "has expired: it was valid until"},
		{"another CA", &foreign, "leads to no CA that this host trusts"},
		{"another key", &exchanged, "the two files must belong together"},
		{"no id", &TLS{Source: func() (*cert.Credentials, error) {
			return &cert.Credentials{Certificate: tls.Certificate{Certificate: [][]byte{withoutURI(t, ca, key)}, PrivateKey: key}, Roots: []*x509.Certificate{ca.Certificate}}, nil
		}}, "it names no member: it has no URI like millrace://member/1"},
	} {
		dir := filepath.Join(t.TempDir(), "host")
		h, err := Open(t.Context(), Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"}, TLS: row.tls}, WithLogger(quiet))
		if err == nil {
			h.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: refused, and the directory exists: %v", row.name, err)
		}
	}
	if _, err := Open(t.Context(), Config{ID: 1, Dir: t.TempDir(), Members: map[uint64]string{1: "x"}, TLS: good}, WithTransport(&recordingTransport{}), WithLogger(quiet)); err == nil || !strings.Contains(err.Error(), "WithTransport replaces it") {
		t.Errorf("beside another transport: %v", err)
	}
}

// withoutURI returns a certificate of the CA that names no member.
func withoutURI(t *testing.T, ca *cert.Issuer, key crypto.Signer) []byte {
	t.Helper()
	template := *ca.Certificate
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = false, false, x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, &template, ca.Certificate, key.Public(), ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// openSecured opens hosts that reach each other over TLS, each with theGroup.
func openSecured(t *testing.T, secured []*TLS, options ...Option) []*Host {
	t.Helper()
	var hosts []*Host
	peers := map[uint64]string{}
	for i := range secured {
		peers[uint64(i+1)] = fmt.Sprintf("127.0.0.1:%d", i+1)
	}
	for i, s := range secured {
		c := Config{ID: uint64(i + 1), Dir: scratch.Dir(t), Members: peers, Listen: "127.0.0.1:0", TLS: s, HeartbeatInterval: 20 * time.Millisecond, SegmentBytes: 1 << 20}
		h, err := openOne(c, &commands{}, append([]Option{WithLogger(quiet)}, options...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close(context.Background()) })
		hosts = append(hosts, h)
	}
	for _, h := range hosts {
		for i, other := range hosts {
			h.network.transport.(*tcp.Transport).SetPeer(uint64(i+1), other.Addr())
		}
	}
	return hosts
}

func proposeSecured(t *testing.T, hosts []*Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := 0; ; i++ {
		g := hosts[i%len(hosts)].Group(theGroup)
		if _, err := g.Propose(ctx, []byte("x")); err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("no command was committed")
		}
		_, _ = g.WaitLeader(ctx)
	}
}

// The files are read again, also when they are replaced one by one.
func TestTLSFilesAreReadAgain(t *testing.T) {
	ca := testCA(t, "ours")
	s := tlsFiles(t, ca, 1, time.Hour)
	first, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	next := tlsFiles(t, ca, 1, time.Hour)
	replace := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	replace(next.CertFile, s.CertFile)
	if _, err := s.load(); err == nil || !strings.Contains(err.Error(), "the two files must belong together") {
		t.Errorf("half of a pair: %v", err)
	}
	replace(next.KeyFile, s.KeyFile)
	if second, err := s.load(); err != nil || second.Equal(first) || second.Validate(1, time.Now()) != nil {
		t.Errorf("the new pair: %v", err)
	}
}

// Three hosts with files commit over TLS, and keys reach no place where a plain connection has none.
func TestHostsTalkOverTLS(t *testing.T) {
	ca := testCA(t, "ours")
	hosts := openSecured(t, []*TLS{tlsFiles(t, ca, 1, time.Hour), tlsFiles(t, ca, 2, time.Hour), tlsFiles(t, ca, 3, time.Hour)})
	proposeSecured(t, hosts)
	for _, h := range hosts {
		if s := h.Metrics().Transport.TLS; s.Handshakes == 0 || s.Failures > 0 || s.Expires.IsZero() {
			t.Errorf("%+v", s)
		}
	}
}

// A host with the certificate of another CA is refused; both ends have an event, and the others go on.
func TestCertificateRefusedIsAnEvent(t *testing.T) {
	ours, theirs := testCA(t, "ours"), testCA(t, "theirs")
	refused := make(chan tcp.CertificateRefused, 1000)
	hosts := openSecured(t, []*TLS{tlsFiles(t, ours, 1, time.Hour), tlsFiles(t, ours, 2, time.Hour), tlsFiles(t, theirs, 3, time.Hour)}, WithEvents(func(e event.Event) {
		if v, ok := e.(event.TLSEvent); ok {
			if r, ok := v.TLSEvent.(tcp.CertificateRefused); ok {
				select {
				case refused <- r:
				default:
				}
			}
		}
	}))
	seen := map[bool]bool{}
	for deadline := time.After(30 * time.Second); len(seen) < 2; {
		select {
		case r := <-refused:
			seen[r.ByPeer] = true
			if !strings.Contains(r.Err.Error(), "leads to no CA that this host trusts") {
				t.Errorf("%v", r.Err)
			}
		case <-deadline:
			t.Fatalf("events of both ends, want; have by the peer or not: %v", seen)
		}
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for _, h := range hosts { // host 3 says so of both others, and they say so of it
		for deadline := time.After(30 * time.Second); !h.Group(theGroup).Explain().Has(diagnosis.CodeCertificateRefused); {
			select {
			case <-again.C:
			case <-deadline:
				t.Fatalf("Explain does not say it:\n%v", h.Group(theGroup).Explain())
			}
		}
	}
	for _, h := range hosts {
		if h.network.transport.(*tcp.Transport).Stats().Kinds[0].Received > 0 && h.config.ID == 3 {
			t.Error("the stranger has received messages")
		}
	}
}

// Plain TCP beyond this machine is used, and said.
func TestPlainTCPWarns(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, ":0": true, "0.0.0.0:0": true} {
		var log strings.Builder
		h, err := Open(t.Context(), Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:1"}, Listen: addr}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if have := strings.Contains(log.String(), "neither encrypted nor authenticated"); have != want {
			t.Errorf("%s: warned: %v\n%s", addr, have, &log)
		}
	}
}
