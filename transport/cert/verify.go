package cert

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Role is what a host does in a connection. Its certificate must allow it.
type Role int

const (
	Dialing   Role = iota // the certificate must allow clientAuth
	Accepting             // the certificate must allow serverAuth
)

func (r Role) usage() (x509.ExtKeyUsage, string) {
	if r == Accepting {
		return x509.ExtKeyUsageServerAuth, "serverAuth"
	}
	return x509.ExtKeyUsageClientAuth, "clientAuth"
}

// MaxChain bounds the certificates that a host presents: its own, and those between it and the CA. Checking a
// chain costs processor time for each, before the host is known.
const MaxChain = 4

// ErrRefused is wrapped by every error of Verify.
var ErrRefused = errors.New("the certificate is refused")

// Verify checks the certificate that a host presents, chain[0], which may bring the certificates between it
// and a CA. It must be valid now, lead to one of roots, allow role, and name member id. The error says what
// is wrong, who signed the certificate, and what to do.
func Verify(chain, roots []*x509.Certificate, id uint64, role Role, now time.Time) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: there is none; give the host a certificate that names member %d", ErrRefused, id)
	}
	if len(chain) > MaxChain {
		return fmt.Errorf("%w: it comes with %d certificates, want at most %d", ErrRefused, len(chain), MaxChain)
	}
	c := chain[0]
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s, signed by %.80q, %w", ErrRefused, Text(c), nameOf(c.Issuer.String()), fmt.Errorf(format, args...))
	}
	if err := verifyChain(chain, roots, role, now, refuse); err != nil {
		return err
	}
	named, err := MemberID(c)
	switch {
	case err != nil:
		return refuse("%w", err)
	case named != id:
		return refuse("names member %d, not member %d; give each host its own certificate", named, id)
	}
	return nil
}

// verifyChain checks times, signatures and usage.
func verifyChain(chain, roots []*x509.Certificate, role Role, now time.Time, refuse func(string, ...any) error) error {
	c := chain[0]
	if now.Before(c.NotBefore) {
		return refuse("is not valid before %s, and this host's clock shows %s; compare the clocks", date(c.NotBefore), date(now))
	}
	if now.After(c.NotAfter) {
		return refuse("has expired: it was valid until %s, and this host's clock shows %s; renew it", date(c.NotAfter), date(now))
	}
	usage, usageName := role.usage()
	_, err := c.Verify(x509.VerifyOptions{Roots: poolOf(roots), Intermediates: poolOf(chain[1:]), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err == nil {
		return nil
	}
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return refuse("does not allow %s; a member needs clientAuth and serverAuth", usageName)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return refuse("leads to %s, which is valid from %s to %s only, and this host's clock shows %s; renew that one",
			Text(invalid.Cert), date(invalid.Cert.NotBefore), date(invalid.Cert.NotAfter), date(now))
	case errors.As(err, &unknown):
		return refuse("leads to no CA that this host trusts: %s; give both hosts certificates of one CA, or add the other CA to the file of CAs", rootsText(roots))
	}
	return refuse("is not valid: %w", err)
}

func poolOf(certificates []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}

// rootsText lists CAs in a sentence, at most a few.
func rootsText(roots []*x509.Certificate) string {
	const most = 3
	var texts []string
	for i, c := range roots {
		if i == most {
			texts = append(texts, fmt.Sprintf("and %d more", len(roots)-most))
			break
		}
		texts = append(texts, Text(c))
	}
	if texts == nil {
		return "it trusts none"
	}
	return strings.Join(texts, ", ")
}
