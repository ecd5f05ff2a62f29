// Package pki has the certificates of hosts that talk over TLS, as files that a test replaces under them
// while they run, as docs/operate/tls.md tells an operator to do it.
package pki

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

// Files are a key, a certificate and the trusted CAs for each of some hosts, in one directory. They are not
// safe for concurrent use.
type Files struct {
	dir     string
	members map[int]uint64 // what the certificates call the hosts
	ca      *cert.Issuer   // which signs the certificates
	cas     int            // how many CAs there were
}

// New makes a CA and the files of the hosts with these ids.
func New(dir string, ids ...int) (*Files, error) {
	members := map[int]uint64{}
	for _, id := range ids {
		members[id] = uint64(id)
	}
	return NewMembers(dir, members)
}

// NewMembers makes a CA and the files of hosts whose member ids differ from the ids in file names.
func NewMembers(dir string, members map[int]uint64) (*Files, error) {
	f := &Files{dir: dir, members: members}
	if err := f.newCA(); err != nil {
		return nil, err
	}
	for id := range members {
		if err := f.certify(id); err != nil {
			return nil, err
		}
		if err := f.trust(id, f.ca); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Step is one step of a rotation. All hosts must have loaded what a step has written before the next one.
type Step struct {
	Name  string
	Write func(id int) error // the files of one host
}

// Rotation begins a rotation of the CA and of all certificates and keys. Its steps must be made in order,
// each for all hosts.
func (f *Files) Rotation() ([]Step, error) {
	old := f.ca
	if err := f.newCA(); err != nil {
		return nil, err
	}
	next := f.ca
	return []Step{
		{"both CAs are trusted", func(id int) error { return f.trust(id, old, next) }},
		{"certificates of the new CA", f.certify},
		{"the old CA is removed", func(id int) error { return f.trust(id, next) }},
	}, nil
}

// Flags are the flags of a program of examples that name the files of a host.
func (f *Files) Flags(id int) []string {
	return []string{"-cert", f.File(id, "cert"), "-key", f.File(id, "key"), "-ca", f.File(id, "ca")}
}

// File returns the path of a file of a host: cert, key or ca.
func (f *Files) File(id int, name string) string {
	return filepath.Join(f.dir, fmt.Sprintf("%d-%s.pem", id, name))
}

func valid(hours int) cert.Span {
	return cert.Span{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Duration(hours) * time.Hour)}
}

func (f *Files) newCA() (err error) {
	f.ca, err = cert.NewCA(fmt.Sprintf("CA %d", f.cas), valid(1000))
	f.cas++
	return err
}

func (f *Files) trust(id int, cas ...*cert.Issuer) error {
	var text []byte
	for _, ca := range cas {
		text = append(text, cert.Encode(ca.Certificate)...)
	}
	return Replace(f.File(id, "ca"), text)
}

// certify gives a host a new key and a certificate.
func (f *Files) certify(id int) error {
	key, err := cert.NewKey()
	if err != nil {
		return err
	}
	c, err := f.ca.Member(f.members[id], key.Public(), valid(500))
	if err != nil {
		return err
	}
	text, err := cert.EncodeKey(key)
	if err != nil {
		return err
	}
	if err := Replace(f.File(id, "key"), text); err != nil {
		return err
	}
	return Replace(f.File(id, "cert"), cert.Encode(c))
}

// Renew gives a host a new certificate for the key that it has. Hosts may be renewed at the same time.
func (f *Files) Renew(id int) error {
	key, err := cert.ReadKey(f.File(id, "key"))
	if err != nil {
		return err
	}
	c, err := f.ca.Member(f.members[id], key.Public(), valid(500))
	if err != nil {
		return err
	}
	return Replace(f.File(id, "cert"), cert.Encode(c))
}

// Replace writes a file as an operator should: beside, and then moved.
func Replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
