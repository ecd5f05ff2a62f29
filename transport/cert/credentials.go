package cert

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Credentials are what a host presents, and which CAs it trusts. They are not changed after they were made.
type Credentials struct {
	// Certificate is the certificate of the host, first, with those between it and a CA, and the private key.
	Certificate tls.Certificate
	// Roots are the CAs that may name members.
	Roots []*x509.Certificate
	// From says where the certificate and the CAs come from, for messages: files.
	CertFrom, CAFrom string
}

// maxChainBytes bounds what a host sends to be recognized.
const maxChainBytes = 16 << 10

// Chain returns the parsed certificates that the host presents, its own first.
func (c *Credentials) Chain() ([]*x509.Certificate, error) {
	chain, size := []*x509.Certificate{}, 0
	for _, der := range c.Certificate.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the chain cannot be read: %w", len(chain)+1, err)
		}
		chain, size = append(chain, parsed), size+len(der)
	}
	switch {
	case len(chain) == 0:
		return nil, errors.New("there is no certificate")
	case len(chain) > MaxChain:
		return nil, fmt.Errorf("there are %d certificates, want at most %d: the host's, and those between it and the CA", len(chain), MaxChain)
	case size > maxChainBytes:
		return nil, fmt.Errorf("the certificates have %d bytes, want at most %d", size, maxChainBytes)
	}
	return chain, nil
}

// Validate reports in a sentence why other hosts with the same CAs would refuse the credentials for member
// id at the time now.
func (c *Credentials) Validate(id uint64, now time.Time) error {
	from := c.CertFrom
	if from == "" {
		from = "the host's certificate"
	}
	chain, err := c.Chain()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if len(c.Roots) == 0 {
		return errors.New("there is no CA; without one no host is trusted")
	}
	if len(c.Roots) > MaxRoots {
		return fmt.Errorf("there are %d CAs, want at most %d", len(c.Roots), MaxRoots)
	}
	if err := fits(c.Certificate.PrivateKey, chain[0]); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, role := range []Role{Dialing, Accepting} {
		if err := Verify(chain, c.Roots, id, role, now); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	return nil
}

// fits reports whether key is the private key of the certificate.
func fits(key crypto.PrivateKey, c *x509.Certificate) error {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return fmt.Errorf("its private key is missing, or cannot sign (%T)", key)
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(c.PublicKey) {
		return errors.New("the private key does not belong to the certificate")
	}
	return nil
}

// Key returns the hash of the host's public key, zero if the certificate cannot be read.
func (c *Credentials) Key() (key [32]byte) {
	if chain, err := c.Chain(); err == nil {
		key = KeyHash(chain[0])
	}
	return key
}

// Trusts reports whether one of the CAs has a key with this hash.
func (c *Credentials) Trusts(ca [32]byte) bool {
	return slices.ContainsFunc(c.Roots, func(root *x509.Certificate) bool { return KeyHash(root) == ca })
}

// Issuer returns the hash of the key of the CA that the host's certificate leads to, zero if it leads to none
// at the time now.
func (c *Credentials) Issuer(now time.Time) (ca [32]byte) {
	chain, err := c.Chain()
	if err != nil {
		return ca
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{Roots: poolOf(c.Roots), Intermediates: poolOf(chain[1:]), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil || len(paths) == 0 {
		return ca
	}
	return KeyHash(paths[0][len(paths[0])-1])
}

// RootsText lists the CAs in a sentence.
func (c *Credentials) RootsText() string { return rootsText(c.Roots) }

// Equal reports whether two credentials have the same certificates and CAs. The same certificate has the same
// key.
func (c *Credentials) Equal(other *Credentials) bool {
	return slices.EqualFunc(c.Certificate.Certificate, other.Certificate.Certificate, bytes.Equal) &&
		slices.EqualFunc(c.Roots, other.Roots, (*x509.Certificate).Equal)
}

// Expiry is a certificate of this host, or a CA that it trusts, and until when it is valid.
type Expiry struct {
	Certificate *x509.Certificate
	From        string // where it comes from: a file
	IsCA        bool
}

// Expiries returns all certificates of c with their ends. Certificates that cannot be read are left out.
func (c *Credentials) Expiries() []Expiry {
	var all []Expiry
	chain, _ := c.Chain()
	for _, own := range chain {
		all = append(all, Expiry{Certificate: own, From: c.CertFrom})
	}
	for _, root := range c.Roots {
		all = append(all, Expiry{Certificate: root, From: c.CAFrom, IsCA: true})
	}
	return all
}
