package cert_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

// now is the time of all tests: certificates are checked against the time that a caller gives.
var now = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

func year() cert.Span {
	return cert.Span{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour)}
}

func newCA(t testing.TB, name string, valid cert.Span) *cert.Issuer {
	t.Helper()
	ca, err := cert.NewCA(name, valid)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func member(t testing.TB, ca *cert.Issuer, id uint64, valid cert.Span) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := cert.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ca.Member(id, key.Public(), valid)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

func TestVerify(t *testing.T) {
	ca, other := newCA(t, "here", year()), newCA(t, "elsewhere", year())
	old := newCA(t, "old", cert.Span{NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-time.Hour)})
	good, _ := member(t, ca, 7, year())
	foreign, _ := member(t, other, 7, year())
	expired, _ := member(t, ca, 7, cert.Span{NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-time.Minute)})
	future, _ := member(t, ca, 7, cert.Span{NotBefore: now.Add(time.Minute), NotAfter: now.Add(time.Hour)})
	ofOld, _ := member(t, old, 7, year())
	self := other.Certificate
	roots := []*x509.Certificate{ca.Certificate}
	for _, row := range []struct {
		name  string
		chain []*x509.Certificate
		roots []*x509.Certificate
		id    uint64
		want  string // in the error; "" is none
	}{
		{"good", []*x509.Certificate{good}, roots, 7, ""},
		{"one of two CAs", []*x509.Certificate{foreign}, []*x509.Certificate{ca.Certificate, other.Certificate}, 7, ""},
		{"none", nil, roots, 7, "give the host a certificate that names member 7"},
		{"too many", []*x509.Certificate{good, good, good, good, good}, roots, 7, "comes with 5 certificates, want at most 4"},
		{"another member", []*x509.Certificate{good}, roots, 8, "names member 7, not member 8"},
		{"another CA", []*x509.Certificate{foreign}, roots, 7, `signed by "CN=elsewhere", leads to no CA that this host trusts: "CN=here"`},
		{"no CA", []*x509.Certificate{good}, nil, 7, "it trusts none"},
		{"signs itself", []*x509.Certificate{self}, roots, 7, "leads to no CA"},
		{"expired", []*x509.Certificate{expired}, roots, 7, "has expired: it was valid until 2030-06-01T11:59:00Z, and this host's clock shows 2030-06-01T12:00:00Z"},
		{"not yet valid", []*x509.Certificate{future}, roots, 7, "is not valid before 2030-06-01T12:01:00Z, and this host's clock shows 2030-06-01T12:00:00Z; compare the clocks"},
		{"of an expired CA", []*x509.Certificate{ofOld}, []*x509.Certificate{old.Certificate}, 7, `leads to "CN=old"`},
	} {
		err := cert.Verify(row.chain, row.roots, row.id, cert.Dialing, now)
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", row.name, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

func TestUsageIsChecked(t *testing.T) {
	ca := newCA(t, "here", year())
	c, _ := member(t, ca, 7, year())
	if err := cert.Verify([]*x509.Certificate{c}, []*x509.Certificate{ca.Certificate}, 7, cert.Accepting, now); err != nil {
		t.Error(err)
	}
	dialOnly := *c
	dialOnly.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if err := cert.Verify([]*x509.Certificate{&dialOnly}, []*x509.Certificate{ca.Certificate}, 7, cert.Accepting, now); err == nil || !strings.Contains(err.Error(), "does not allow serverAuth") {
		t.Errorf("have %v", err)
	}
}

func TestMemberID(t *testing.T) {
	for text, want := range map[string]uint64{
		"millrace://member/7":                        7,
		"millrace://member/18446744073709551615":     1<<64 - 1,
		"spiffe://x/y millrace://member/3":           3,
		"millrace://member/0":                        0,
		"millrace://member/07":                       0,
		"millrace://member/7?x":                      0,
		"millrace://member/7#x":                      0,
		"millrace://member/7/":                       0,
		"millrace://a@member/7":                      0,
		"millrace://member:80/7":                     0,
		"millrace:member/7":                          0,
		"millrace://client/7":                        0,
		"MILLRACE://member/7 millrace://member/8":    0,
		"millrace://member/7 millrace://client/x":    0,
		"millrace://member/18446744073709551616":     0,
		"https://member/7":                           0,
		"millrace://member/-7 millrace://member/%37": 0,
	} {
		c := &x509.Certificate{}
		for _, one := range strings.Fields(text) {
			u, err := url.Parse(one)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		if id, err := cert.MemberID(c); id != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %d, %v, want %d", text, id, err, want)
		}
	}
}

// files writes credentials, and returns where they are.
func files(t testing.TB, ca *cert.Issuer, id uint64) cert.Files {
	t.Helper()
	c, key := member(t, ca, id, year())
	pem, err := cert.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := cert.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	write(t, f.Cert, cert.Encode(c))
	write(t, f.Key, pem)
	write(t, f.CA, cert.Encode(ca.Certificate))
	return f
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoad(t *testing.T) {
	ca := newCA(t, "here", year())
	f := files(t, ca, 7)
	have, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := have.Validate(7, now); err != nil {
		t.Error(err)
	}
	if err := have.Validate(8, now); err == nil || !strings.Contains(err.Error(), f.Cert+": ") || !strings.Contains(err.Error(), "names member 7, not member 8") {
		t.Errorf("member 8: %v", err)
	}
	if n := len(have.Expiries()); n != 2 {
		t.Errorf("%d ends, want that of the certificate and of the CA", n)
	}
	again, err := f.Load()
	if err != nil || !again.Equal(have) {
		t.Errorf("loaded twice: %v, %v", again, err)
	}
	have.Certificate.PrivateKey = nil
	if err := have.Validate(7, now); err == nil || !strings.Contains(err.Error(), "private key is missing") {
		t.Errorf("without a key: %v", err)
	}
}

func TestLoadRefusals(t *testing.T) {
	ca := newCA(t, "here", year())
	text := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, row := range map[string]struct {
		change func(f, other cert.Files)
		want   string
	}{
		"no certificate":   {func(f, _ cert.Files) { os.Remove(f.Cert) }, "the certificate: stat "},
		"no key":           {func(f, _ cert.Files) { os.Remove(f.Key) }, "the key: stat "},
		"no CA":            {func(f, _ cert.Files) { os.Remove(f.CA) }, "the CA: stat "},
		"a directory":      {func(f, _ cert.Files) { os.Remove(f.CA); _ = os.Mkdir(f.CA, 0o700) }, "ca.pem is not a regular file"},
		"another key":      {func(f, other cert.Files) { write(t, f.Key, text(other.Key)) }, "the two files must belong together"},
		"empty":            {func(f, _ cert.Files) { write(t, f.Cert, nil) }, "there is no certificate in PEM"},
		"half written":     {func(f, _ cert.Files) { write(t, f.Cert, text(f.Cert)[:200]) }, "is cut off or damaged"},
		"half of two CAs":  {func(f, _ cert.Files) { b := text(f.CA); write(t, f.CA, append(b, b[:100]...)) }, "what follows 1 certificates is cut off"},
		"key in the CA":    {func(f, _ cert.Files) { write(t, f.CA, text(f.Key)) }, `block 1 is "PRIVATE KEY", want only CERTIFICATE`},
		"member as CA":     {func(f, _ cert.Files) { write(t, f.CA, text(f.Cert)) }, "is not the certificate of a CA"},
		"too large":        {func(f, _ cert.Files) { write(t, f.CA, make([]byte, 256<<10+1)) }, "has more than 262144 bytes"},
		"too many of them": {func(f, _ cert.Files) { write(t, f.Cert, []byte(strings.Repeat(string(text(f.Cert)), 5))) }, "there are more than 4 certificates"},
		"garbage inside": {func(f, _ cert.Files) {
			write(t, f.CA, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
		}, "certificate 1 cannot be read"},
	} {
		f := files(t, ca, 7)
		row.change(f, files(t, ca, 7))
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func TestValidateRefusals(t *testing.T) {
	ca := newCA(t, "here", year())
	have, err := files(t, ca, 7).Load()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(c *cert.Credentials){
		"there is no certificate": func(c *cert.Credentials) { c.Certificate = tls.Certificate{} },
		"want at most 4": func(c *cert.Credentials) {
			for range 4 {
				c.Certificate.Certificate = append(c.Certificate.Certificate, c.Certificate.Certificate[0])
			}
		},
		"certificate 2 of the chain cannot":       func(c *cert.Credentials) { c.Certificate.Certificate = append(c.Certificate.Certificate, []byte("x")) },
		"without one no host is trusted":          func(c *cert.Credentials) { c.Roots = nil },
		"there are 65 CAs":                        func(c *cert.Credentials) { c.Roots = make([]*x509.Certificate, 65) },
		"does not belong to the certificate":      func(c *cert.Credentials) { c.Certificate.PrivateKey, _ = cert.NewKey() },
		"leads to no CA that this host trusts":    func(c *cert.Credentials) { c.Roots = []*x509.Certificate{newCA(t, "b", year()).Certificate} },
		"its private key is missing, or cannot s": func(c *cert.Credentials) { c.Certificate.PrivateKey = "x" },
	} {
		c := *have
		c.Certificate.Certificate = append([][]byte{}, have.Certificate.Certificate...)
		change(&c)
		if err := c.Validate(7, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The hash of the key survives a renewal, and not a new key.
func TestKeyHash(t *testing.T) {
	ca := newCA(t, "here", year())
	c, key := member(t, ca, 7, year())
	renewed, err := ca.Member(7, key.Public(), year())
	if err != nil {
		t.Fatal(err)
	}
	other, _ := member(t, ca, 7, year())
	if cert.KeyHash(c) != cert.KeyHash(renewed) || cert.KeyHash(c) == cert.KeyHash(other) || cert.Fingerprint(c) == cert.Fingerprint(renewed) {
		t.Error("the hash is not of the key, or the fingerprint not of the certificate")
	}
}

// FuzzLoad: no content of the three files makes loading panic, and what is loaded can be checked.
func FuzzLoad(f *testing.F) {
	ca := newCA(f, "here", year())
	c, key := member(f, ca, 7, year())
	pem, err := cert.EncodeKey(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cert.Encode(c), pem, cert.Encode(ca.Certificate, ca.Certificate))
	f.Add(cert.Encode(c)[:100], pem[:50], []byte("-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----"))
	f.Add([]byte{}, []byte{0xff}, []byte("-----BEGIN"))
	f.Fuzz(func(t *testing.T, certificate, key, roots []byte) {
		have, err := cert.Parsed(certificate, key, roots)
		if err != nil {
			return
		}
		_ = have.Validate(7, now)
		_ = have.Expiries()
		if len(have.Roots) == 0 || len(have.Certificate.Certificate) == 0 {
			t.Error("loaded without certificates")
		}
	})
}
