package abuse_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/transport/cert"
)

// memberTLS are the files of a member.
type memberTLS struct {
	t   *testing.T
	id  uint64
	dir string
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
