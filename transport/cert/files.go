package cert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

// Files name the files, in PEM, with the credentials of a host.
type Files struct {
	Cert string // the host's certificate, then those between it and the CA
	Key  string // the private key, not encrypted
	CA   string // the certificates of all CAs that are trusted, at most MaxRoots
}

const (
	// MaxRoots bounds the CAs that a host trusts. Two are enough while one replaces the other.
	MaxRoots = 64
	// maxPairBytes bounds the file of a certificate, and that of a key.
	maxPairBytes = 64 << 10
	maxCABytes   = 256 << 10
)

// Load reads the files. It does not remember anything: a caller that reads them again from time to time keeps
// the credentials that it has if the new ones are not valid. Load does not check what Validate does.
func (f Files) Load() (*Credentials, error) {
	certificate, err := readFile(f.Cert, maxPairBytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate: %w", err)
	}
	key, err := readFile(f.Key, maxPairBytes)
	if err != nil {
		return nil, fmt.Errorf("the key: %w", err)
	}
	ca, err := readFile(f.CA, maxCABytes)
	if err != nil {
		return nil, fmt.Errorf("the CA: %w", err)
	}
	return f.parse(certificate, key, ca)
}

func (f Files) parse(certificate, key, ca []byte) (*Credentials, error) {
	if _, err := Parse(certificate, MaxChain); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w; the two files must belong together, and the key must not be encrypted", f.Cert, f.Key, err)
	}
	roots, err := Parse(ca, MaxRoots)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.CA, err)
	}
	for _, root := range roots {
		if !root.IsCA || !root.BasicConstraintsValid {
			return nil, fmt.Errorf("%s: %s is not the certificate of a CA, and cannot name members; put the certificate of the CA into this file", f.CA, Text(root))
		}
	}
	return &Credentials{Certificate: pair, Roots: roots, CertFrom: f.Cert, CAFrom: f.CA}, nil
}

// Parse reads certificates in PEM, 1 to most. Anything but certificates between BEGIN and END is an error, as
// is a block that is cut off: the file may be half written.
func Parse(text []byte, most int) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("block %d is %.40q, want only CERTIFICATE", len(all)+1, block.Type)
		}
		if len(all) == most {
			return nil, fmt.Errorf("there are more than %d certificates", most)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, fmt.Errorf("what follows %d certificates is cut off or damaged", len(all))
	case len(all) == 0:
		return nil, errors.New("there is no certificate in PEM (-----BEGIN CERTIFICATE-----)")
	}
	return all, nil
}

// ReadFile reads a file that may hold certificates or a key, at most 256 KiB.
func ReadFile(path string) ([]byte, error) { return readFile(path, maxCABytes) }

// readFile reads a regular file, at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a named pipe would wait for a writer
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return text, err
}
