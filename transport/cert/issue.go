package cert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"
)

// Making certificates. Keys are ECDSA on the curve P-256: every tool and hardware module that issues
// certificates has it, it is allowed where only FIPS algorithms are, and it is not slower than Ed25519 in Go.
// Hosts accept whatever crypto/tls does, so a CA of one's own may use other keys.

// Issuer is a CA with its private key.
type Issuer struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// Span is a time in which a certificate is valid, both ends included.
type Span struct{ NotBefore, NotAfter time.Time }

// NewKey draws a private key.
func NewKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// NewCA makes a CA that signs itself. It may sign certificates of members, and not of other CAs.
func NewCA(name string, valid Span) (*Issuer, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	c, err := sign(&x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: valid.NotBefore, NotAfter: valid.NotAfter,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}, nil, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Issuer{Certificate: c, Key: key}, nil
}

// Member makes the certificate of member id for the public key.
func (ca *Issuer) Member(id uint64, key crypto.PublicKey, valid Span) (*x509.Certificate, error) {
	if id == 0 {
		return nil, errors.New("cert: 0 is no member id")
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	return sign(&x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("Millrace member %d", id)},
		NotBefore: valid.NotBefore, NotAfter: valid.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{MemberURI(id)},
	}, ca.Certificate, key, ca.Key)
}

// sign signs a certificate with the parent's key, or with its own if there is no parent.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("cert: %w", err)
	}
	return x509.ParseCertificate(der)
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}

// EncodeKey returns a private key in PEM.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ReadKey reads a private key in PEM that is not encrypted: PKCS #8, PKCS #1 or SEC 1.
func ReadKey(path string) (crypto.Signer, error) {
	text, err := readFile(path, maxPairBytes)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// ParseKey is ReadKey for a text.
func ParseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	for block != nil && block.Type == "EC PARAMETERS" { // openssl writes them first
		block, text = pem.Decode(text)
	}
	if block == nil {
		return nil, errors.New("there is no key in PEM (-----BEGIN PRIVATE KEY-----)")
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, fmt.Errorf("the key cannot sign (%T)", key)
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	return nil, fmt.Errorf("the block %.40q holds no key that can be read; it must not be encrypted", block.Type)
}

// Encode returns certificates in PEM.
func Encode(certificates ...*x509.Certificate) []byte {
	var text []byte
	for _, c := range certificates {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}

// LoadIssuer reads a CA and its private key from files in PEM.
func LoadIssuer(certFile, keyFile string) (*Issuer, error) {
	found, err := Files{Cert: certFile, Key: keyFile, CA: certFile}.Load()
	if err != nil {
		return nil, err
	}
	key, ok := found.Certificate.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: the key cannot sign", keyFile)
	}
	return &Issuer{Certificate: found.Roots[0], Key: key}, nil
}
