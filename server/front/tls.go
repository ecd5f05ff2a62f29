package front

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/server/config"
)

// reloader has the configuration of TLS, made of files that are read again when they change: the
// certificate, its key, the CAs of clients, and the revocation list. New files that are not valid are
// told in the log, and the old ones stay in force.
type reloader struct {
	c      config.ClientTLS
	logger *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	stamps  []stamp
	current *tls.Config
	refused string // the error that was told last
}

// stamp tells whether a file has changed.
type stamp struct {
	modified time.Time
	size     int64
}

// lookInterval is how long files are believed to be unchanged.
const lookInterval = time.Second

// newReloader reads the files for the first time.
func newReloader(c config.ClientTLS, logger *slog.Logger) (*reloader, error) {
	r := &reloader{c: c, logger: logger}
	r.looked, r.stamps = time.Now(), r.look()
	var err error
	r.current, err = r.read()
	return r, err
}

// config returns a configuration that looks at the files for each client.
func (r *reloader) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		t := r.latest().Clone()
		// The offer decides. A browser offers both; it gets HTTP/1.1, and gRPC needs no net/http.
		switch {
		case slices.Contains(h.SupportedProtos, "http/1.1"):
			t.NextProtos = []string{"http/1.1"}
		case slices.Contains(h.SupportedProtos, "h2"):
			t.NextProtos = []string{"h2"}
		}
		return t, nil
	}}
}

// latest returns what the files say.
func (r *reloader) latest() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < lookInterval {
		return r.current
	}
	r.looked = time.Now()
	stamps := r.look()
	if slices.Equal(stamps, r.stamps) {
		return r.current
	}
	t, err := r.read()
	if err != nil {
		if err.Error() != r.refused {
			r.refused = err.Error()
			r.logger.Warn("the new TLS files are not valid; the old ones stay in force", "error", err)
		}
		return r.current // and looks again: the other file of a pair may still come
	}
	r.current, r.stamps, r.refused = t, stamps, ""
	r.logger.Info("TLS files reloaded", "certificate", r.c.CertFile)
	return t
}

func (r *reloader) look() (stamps []stamp) {
	for _, path := range []string{r.c.CertFile, r.c.KeyFile, r.c.CAFile, r.c.CRLFile} {
		var s stamp
		if i, err := os.Stat(path); err == nil {
			s = stamp{i.ModTime(), i.Size()}
		}
		stamps = append(stamps, s)
	}
	return stamps
}

// read makes a configuration of the files.
func (r *reloader) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(r.c.CertFile, r.c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("the certificate for clients: %w", err)
	}
	t := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: max(r.c.Min, tls.VersionTLS12), MaxVersion: r.c.Max,
		CipherSuites: r.c.CipherSuites,
	}
	if r.c.CAFile != "" {
		b, err := os.ReadFile(r.c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the CAs of clients: %w", err)
		}
		t.ClientCAs = x509.NewCertPool()
		if !t.ClientCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("the CAs of clients: %s has no certificate in PEM form", r.c.CAFile)
		}
		t.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if r.c.ClientAuth {
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	revoked, err := readCRL(r.c.CRLFile)
	if err != nil {
		return nil, err
	}
	t.VerifyConnection = func(s tls.ConnectionState) error { return r.verify(s, revoked) }
	return t, nil
}

// verify checks the certificate of a client beyond its chain.
func (r *reloader) verify(s tls.ConnectionState, revoked map[string]bool) error {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	for _, c := range s.PeerCertificates {
		if revoked[serial(c.RawIssuer, c.SerialNumber.Bytes())] {
			return fmt.Errorf("the certificate with serial number %x is revoked", c.SerialNumber)
		}
	}
	if len(r.c.AllowedHostnames) == 0 {
		return nil
	}
	for _, name := range r.c.AllowedHostnames {
		if s.PeerCertificates[0].VerifyHostname(name) == nil {
			return nil
		}
	}
	return errors.New("the certificate has none of the names of --client-cert-allowed-hostname")
}

func serial(issuer, number []byte) string { return string(issuer) + "\x00" + string(number) }

// readCRL returns the revoked certificates of a list in PEM or DER form.
func readCRL(path string) (map[string]bool, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the revocation list: %w", err)
	}
	if block, _ := pem.Decode(bytes.TrimSpace(b)); block != nil {
		b = block.Bytes
	}
	l, err := x509.ParseRevocationList(b)
	if err != nil {
		return nil, fmt.Errorf("the revocation list %s: %w", path, err)
	}
	revoked := map[string]bool{}
	for _, e := range l.RevokedCertificateEntries {
		revoked[serial(l.RawIssuer, e.SerialNumber.Bytes())] = true
	}
	return revoked, nil
}
