// A load and the members of a lab's cluster prove to each other that they belong together: over TLS
// 1.3, with a certificate on both sides, of one CA. Members present the certificates with which they prove
// their ids to each other (package cert). A load is no member, and must not pass as one, so its certificate
// has a URI of its own:
//
//	millrace://lab/load
//
// All files are in one directory, with the names that millrace cert gives them:
//
//	ca.pem            the CA
//	member-N.pem      the certificate of member N, and member-N-key.pem its key
//	load.pem          the certificate of loads, and load-key.pem its key

package remote

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

// CAFile is the file of the CA.
const CAFile = "ca.pem"

// LoadFiles returns the names of the files of a load.
func LoadFiles() (certificate, key string) { return "load.pem", "load-key.pem" }

// MemberFiles returns the names of the files of a member.
func MemberFiles(id uint64) (certificate, key string) {
	return fmt.Sprintf("member-%d.pem", id), fmt.Sprintf("member-%d-key.pem", id)
}

func loadURI() *url.URL { return &url.URL{Scheme: "millrace", Host: "lab", Path: "/load"} }

// NewLoad makes the certificate of a load for a public key.
func NewLoad(ca *cert.Issuer, key crypto.PublicKey, valid cert.Span) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Millrace lab load"},
		NotBefore: valid.NotBefore, NotAfter: valid.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{loadURI()},
	}, ca.Certificate, key, ca.Key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// made is a file with its content.
type made struct {
	name string
	text []byte
	mode os.FileMode
}

// MakeCertificates makes a CA, the certificates of members 1 to n and the certificate of loads. It makes
// the directory for them, too, and returns the names of the files. The key of the CA is forgotten: a user
// who needs more makes all again. No file is replaced.
func MakeCertificates(dir, name string, members int, valid time.Duration) (names []string, err error) {
	const skew = time.Hour // of clocks
	now := time.Now()
	span := cert.Span{NotBefore: now.Add(-skew).UTC(), NotAfter: now.Add(valid).UTC()}
	ca, err := cert.NewCA(name, span)
	if err != nil {
		return nil, err
	}
	all := []made{{CAFile, cert.Encode(ca.Certificate), 0o644}}
	add := func(certificateFile, keyFile string, issue func(crypto.PublicKey) (*x509.Certificate, error)) error {
		key, err := cert.NewKey()
		if err != nil {
			return err
		}
		c, err := issue(key.Public())
		if err != nil {
			return err
		}
		text, err := cert.EncodeKey(key)
		all = append(all, made{certificateFile, cert.Encode(c), 0o644}, made{keyFile, text, 0o600})
		return err
	}
	for id := range uint64(members) {
		c, k := MemberFiles(id + 1)
		if err := add(c, k, func(key crypto.PublicKey) (*x509.Certificate, error) { return ca.Member(id+1, key, span) }); err != nil {
			return nil, err
		}
	}
	c, k := LoadFiles()
	if err := add(c, k, func(key crypto.PublicKey) (*x509.Certificate, error) { return NewLoad(ca, key, span) }); err != nil {
		return nil, err
	}
	return writeAll(dir, all)
}

// writeAll writes new files. If one cannot be written, those before it are removed again.
func writeAll(dir string, all []made) (names []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, name := range names {
				err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
			}
		}
	}()
	for _, m := range all {
		f, err := os.OpenFile(filepath.Join(dir, m.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.mode)
		if err != nil {
			return names, err
		}
		names = append(names, m.name)
		_, err = f.Write(m.text)
		if err := errors.Join(err, f.Close()); err != nil {
			return names, err
		}
	}
	return names, nil
}

// MemberCredentials reads the credentials of a member from a directory, and checks that other members would
// take them.
func MemberCredentials(dir string, id uint64) (*cert.Credentials, error) {
	c, err := readCredentials(dir, func() (string, string) { return MemberFiles(id) })
	if err == nil {
		err = c.Validate(id, time.Now())
	}
	return c, err
}

// LoadCredentials reads the credentials of a load from a directory, and checks that members would take them.
func LoadCredentials(dir string) (*cert.Credentials, error) {
	c, err := readCredentials(dir, LoadFiles)
	if err != nil {
		return nil, err
	}
	chain, err := c.Chain()
	if err == nil {
		err = VerifyLoad(chain, c.Roots, cert.Dialing, time.Now())
	}
	return c, err
}

func readCredentials(dir string, names func() (certificate, key string)) (*cert.Credentials, error) {
	certificate, key := names()
	return cert.Files{Cert: filepath.Join(dir, certificate), Key: filepath.Join(dir, key), CA: filepath.Join(dir, CAFile)}.Load()
}

// VerifyLoad checks the certificate that the other end of a connection presents as a load.
func VerifyLoad(chain, roots []*x509.Certificate, role cert.Role, now time.Time) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: there is none; give the load one that `millrace lab certificates` makes", cert.ErrRefused)
	}
	if len(chain) > cert.MaxChain {
		return fmt.Errorf("%w: it comes with %d certificates, want at most %d", cert.ErrRefused, len(chain), cert.MaxChain)
	}
	c, usage := chain[0], x509.ExtKeyUsageClientAuth
	if role == cert.Accepting {
		usage = x509.ExtKeyUsageServerAuth
	}
	trusted, between := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range roots {
		trusted.AddCert(root)
	}
	for _, further := range chain[1:] {
		between.AddCert(further)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return fmt.Errorf("%w: %s, signed by %.80q, is not valid here: %w; give the load a certificate of the CA of the members", cert.ErrRefused, cert.Text(c), c.Issuer.String(), err)
	}
	if len(c.URIs) != 1 || c.URIs[0].String() != loadURI().String() {
		return fmt.Errorf("%w: %s does not name a load (%s); `millrace lab certificates` makes one that does", cert.ErrRefused, cert.Text(c), loadURI())
	}
	return nil
}

// AcceptTrusted returns what turns accepted connections into ones over TLS, whose other end is a load. A
// refusal comes with the connection, so that the other end can be told why.
func AcceptTrusted(own *cert.Credentials) func(context.Context, net.Conn) (net.Conn, error) {
	config := settings(own)
	config.ClientAuth = tls.RequireAnyClientCert
	return func(ctx context.Context, c net.Conn) (net.Conn, error) {
		secured := tls.Server(c, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		return secured, VerifyLoad(secured.ConnectionState().PeerCertificates, own.Roots, cert.Dialing, time.Now())
	}
}

// DialTrusted returns what turns dialed connections into ones over TLS. verify checks the certificates of
// the other end.
func DialTrusted(own *cert.Credentials, verify func(chain []*x509.Certificate) error) func(context.Context, net.Conn) (net.Conn, error) {
	config := settings(own)
	config.InsecureSkipVerify = true // names of hosts are not compared: verify does all
	config.VerifyConnection = func(s tls.ConnectionState) error { return verify(s.PeerCertificates) }
	return func(ctx context.Context, c net.Conn) (net.Conn, error) {
		secured := tls.Client(c, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("the TLS handshake failed: %w", err)
		}
		return secured, nil
	}
}

func settings(own *cert.Credentials) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own.Certificate}, SessionTicketsDisabled: true}
}

// IsLoopback reports whether an address, HOST:PORT, can be reached from this machine only.
func IsLoopback(addr string) bool {
	name, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}
