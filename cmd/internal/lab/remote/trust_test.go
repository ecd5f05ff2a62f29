package remote_test

import (
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/transport/cert"
)

// What Make makes is what members and loads take; files that exist are not replaced, and nothing half is
// left.
func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	names, err := remote.MakeCertificates(dir, "test", 2, time.Hour)
	if want := []string{"ca.pem", "member-1.pem", "member-1-key.pem", "member-2.pem", "member-2-key.pem", "load.pem", "load-key.pem"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || strings.HasSuffix(name, "-key.pem") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	member, err := remote.MemberCredentials(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	load, err := remote.LoadCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.MemberCredentials(dir, 3); err == nil {
		t.Error("a member without files has credentials")
	}
	now := time.Now()
	chain := func(c *cert.Credentials) []*x509.Certificate {
		all, err := c.Chain()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, tc := range []struct {
		what string
		err  error
		want string
	}{
		{"a load as a load", remote.VerifyLoad(chain(load), member.Roots, cert.Dialing, now), ""},
		{"a load that accepts", remote.VerifyLoad(chain(load), member.Roots, cert.Accepting, now), ""},
		{"a member as a load", remote.VerifyLoad(chain(member), member.Roots, cert.Dialing, now), "does not name a load"},
		{"nothing", remote.VerifyLoad(nil, member.Roots, cert.Dialing, now), "there is none"},
		{"later", remote.VerifyLoad(chain(load), member.Roots, cert.Dialing, now.Add(2*time.Hour)), "expired"},
		{"no CA", remote.VerifyLoad(chain(load), nil, cert.Dialing, now), "is not valid here"},
		{"too many", remote.VerifyLoad(slices.Repeat(chain(load), 5), member.Roots, cert.Dialing, now), "it comes with 5 certificates"},
		{"a load as a member", cert.Verify(chain(load), member.Roots, 1, cert.Dialing, now), "names"},
	} {
		if tc.want == "" && tc.err != nil || tc.want != "" && (!errors.Is(tc.err, cert.ErrRefused) || !strings.Contains(tc.err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.what, tc.err, tc.want)
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.MakeCertificates(dir, "test", 1, time.Hour); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "ca.pem")); err != nil || string(after) != string(before) {
		t.Errorf("a file was replaced (%v)", err)
	}
	// One file that blocks the last: those made before it are removed.
	blocked := t.TempDir()
	if err := os.WriteFile(filepath.Join(blocked, "load-key.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = remote.MakeCertificates(blocked, "test", 1, time.Hour)
	if left, readErr := os.ReadDir(blocked); err == nil || readErr != nil || len(left) != 1 {
		t.Errorf("%v, %v are left", err, left)
	}
}

// Both sides speak over a connection that Dial and Accept have turned into TLS; a peer that speaks no TLS
// fails.
func TestConnections(t *testing.T) {
	dir := t.TempDir()
	if _, err := remote.MakeCertificates(dir, "test", 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	member, err := remote.MemberCredentials(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	load, err := remote.LoadCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		as   *cert.Credentials
		want bool
	}{{load, true}, {member, false}} {
		a, b := net.Pipe()
		accepted := make(chan error, 1)
		go func() {
			c, err := remote.AcceptTrusted(member)(t.Context(), b)
			if err == nil {
				_, err = c.Write([]byte("x"))
			}
			b.Close()
			accepted <- err
		}()
		c, err := remote.DialTrusted(tc.as, func(chain []*x509.Certificate) error {
			return cert.Verify(chain, load.Roots, 1, cert.Accepting, time.Now())
		})(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		_, readErr := c.Read(one)
		if err := <-accepted; (err == nil) != tc.want || (readErr == nil) != tc.want {
			t.Errorf("%v, %v", err, readErr)
		}
		a.Close()
	}
}
