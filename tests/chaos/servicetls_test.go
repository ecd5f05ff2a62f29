//go:build linux

package chaos

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/tests/history/pki"
	"github.com/millrace/millrace/transport/cert"
)

// TLS of an episode of the service. Members prove their ids to each other, and clients and members prove to
// each other that one CA knows them. While faults are under way all members get new files.

// secrets are the certificates of an episode, as files in one directory.
type secrets struct {
	dir    string
	peers  *pki.Files
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	client *tls.Config // of all clients
	http   *http.Client

	mu     sync.Mutex
	serial int64
}

// memberID is the id that a founding member has, as etcd draws it.
func memberID(url string) uint64 {
	sum := sha1.Sum([]byte(url + "etcd-cluster"))
	return binary.BigEndian.Uint64(sum[:8])
}

// newSecrets makes the certificates of hosts, given their peer URLs and where they serve clients.
func newSecrets(dir string, peers map[int]string, clients map[int]string) (s *secrets, err error) {
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s = &secrets{dir: dir}
	members := map[int]uint64{}
	for id, url := range peers {
		members[id] = memberID(url)
	}
	if s.peers, err = pki.NewMembers(dir, members); err != nil {
		return nil, err
	}
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	s.ca, err = s.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "CA of clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, &s.key.PublicKey)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.file("clients-ca.pem"), cert.Encode(s.ca), 0o600); err != nil {
		return nil, err
	}
	for id, address := range clients {
		if err := s.serve(id, address); err != nil {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c, err := s.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, s.ca, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.ca)
	s.client = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}}
	s.http = &http.Client{Timeout: plain.Timeout, Transport: &http.Transport{TLSClientConfig: s.client}}
	return s, nil
}

func (s *secrets) file(name string) string { return filepath.Join(s.dir, name) }

func (s *secrets) sign(c, parent *x509.Certificate, public *ecdsa.PublicKey) (*x509.Certificate, error) {
	s.mu.Lock()
	s.serial++
	c.SerialNumber = big.NewInt(s.serial)
	s.mu.Unlock()
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(100*time.Hour)
	if parent == nil {
		parent = c
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, public, s.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(raw)
}

// serve gives a host a new key and a certificate for its clients.
func (s *secrets) serve(id int, address string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	c, err := s.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: fmt.Sprintf("host %d", id)}, IPAddresses: []net.IP{net.ParseIP(ip)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, s.ca, &key.PublicKey)
	if err != nil {
		return err
	}
	text, err := cert.EncodeKey(key)
	if err != nil {
		return err
	}
	if err := pki.Replace(s.file(fmt.Sprintf("%d-client-key.pem", id)), text); err != nil {
		return err
	}
	return pki.Replace(s.file(fmt.Sprintf("%d-client-cert.pem", id)), cert.Encode(c))
}

// flags name the files of a host.
func (s *secrets) flags(id int) []string {
	return []string{
		"--cert-file=" + s.file(fmt.Sprintf("%d-client-cert.pem", id)), "--key-file=" + s.file(fmt.Sprintf("%d-client-key.pem", id)),
		"--trusted-ca-file=" + s.file("clients-ca.pem"), "--client-cert-auth",
		"--peer-cert-file=" + s.peers.File(id, "cert"), "--peer-key-file=" + s.peers.File(id, "key"), "--peer-trusted-ca-file=" + s.peers.File(id, "ca"),
	}
}

// served returns the serial number of the certificate that a host shows to a new client.
func (s *secrets) served(address string) (int64, error) {
	d := &net.Dialer{Timeout: plain.Timeout}
	c, err := tls.DialWithDialer(d, "tcp", address, s.client)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// makeRenewed gives all members new certificates: for members of the same keys, for clients of new ones. A
// member gets them while it runs, and is not disturbed until it has taken them.
func makeRenewed(e *episode, f fault) error {
	s := e.program.(*service)
	var all sync.WaitGroup
	errs := make([]error, maxHosts+1)
	for _, h := range s.members() {
		all.Go(func() { errs[h.id] = s.renew(h) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	e.hit(f.kind.name)
	return nil
}

// loadedWords are in the line of a member that has taken new certificates for members.
const loadedWords = `msg="certificates were loaded"`

func (s *service) renew(h *host) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	address := s.net.client(h.place)
	before := int64(0)
	err := s.eventually(maxWait, fmt.Sprintf("host %d shows a certificate", h.id), func() (err error) {
		before, err = s.secrets.served(address)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.secrets.serve(h.id, address); err != nil {
		return err
	}
	if err := s.secrets.peers.Renew(h.id); err != nil {
		return err
	}
	return s.eventually(maxWait, fmt.Sprintf("host %d has loaded new files", h.id), func() error {
		now, err := s.secrets.served(address)
		switch {
		case err != nil:
			return err
		case now == before:
			return fmt.Errorf("it shows certificate %d to clients", now)
		case h.says(loadedWords) == "":
			return errors.New("it has not loaded its certificate for members")
		}
		return nil
	})
}
