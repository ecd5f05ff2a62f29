// Package cert has the certificates with which hosts prove who they are. It says what is in a certificate,
// how files become credentials, and how the certificate of another host is checked. Package transport/tcp
// uses it for each connection, millrace cert makes certificates with it.
//
// A certificate proves a member id, and nothing else. The id is in a URI among its alternative names:
//
//	millrace://member/7
//
// There is exactly one such URI in the certificate of a member. Names of hosts and addresses in a
// certificate are not compared with anything. An id keeps its meaning when the machine gets another
// address, and a member may be reached under any address. Common names are not compared either. Other URIs
// of the scheme millrace make a certificate invalid for a member, so that a certificate for another purpose
// never passes as one.
//
// Which CAs may name members is a list that each host is given (Credentials.Roots). Every certificate that
// they sign is believed, so a CA is a trust domain: for a cluster, or for clusters whose operators trust
// each other. The cluster itself is not in the certificate: its number is drawn when the cluster is
// founded, and changes with a restore. The hash of the key (KeyHash) binds a certificate to it.
//
// Decision 0020 says why.
package cert

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	scheme     = "millrace"
	memberRole = "member"
)

// MemberURI returns the URI that names member id in a certificate.
func MemberURI(id uint64) *url.URL {
	return &url.URL{Scheme: scheme, Host: memberRole, Path: "/" + strconv.FormatUint(id, 10)}
}

// ErrNoMember is wrapped by the error of MemberID for a certificate without a URI of the scheme millrace.
var ErrNoMember = errors.New("it names no member")

// MemberID returns the id of the member that c names.
func MemberID(c *x509.Certificate) (uint64, error) {
	var id uint64
	for _, u := range c.URIs {
		if !strings.EqualFold(u.Scheme, scheme) {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(u.Path, "/"), 10, 64)
		switch {
		case err != nil || n == 0 || u.String() != MemberURI(n).String():
			return 0, fmt.Errorf("its URI %.80q names no member; want %s", u, MemberURI(1))
		case id != 0:
			return 0, fmt.Errorf("it names two members, %d and %d; want one", id, n)
		}
		id = n
	}
	if id == 0 {
		return 0, fmt.Errorf("%w: it has no URI like %s among its alternative names (it has %s)", ErrNoMember, MemberURI(1), namesText(c))
	}
	return id, nil
}

// namesText lists the alternative names of c, at most a few.
func namesText(c *x509.Certificate) string {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.120q", strings.Join(names[:min(len(names), 4)], " "))
}

// KeyHash returns the SHA-256 of the public key of c, as it is encoded in c (SubjectPublicKeyInfo). It stays
// the same when a certificate is renewed for the same key.
func KeyHash(c *x509.Certificate) [32]byte { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// Fingerprint returns the SHA-256 of c in hexadecimal digits, 64 of them.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Text names a certificate in a sentence: its subject, and the first digits of its fingerprint.
func Text(c *x509.Certificate) string {
	return fmt.Sprintf("%.80q (fingerprint %.16s)", nameOf(c.Subject.String()), Fingerprint(c))
}

func nameOf(subject string) string {
	if subject == "" {
		return "no subject"
	}
	return subject
}

// date writes a time as certificates have it: to the second, in UTC.
func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
