package main

import (
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/wal/inspect"
)

var certInspectLong = `inspect shows what is in files of certificates and keys, and what is wrong with them: whom they name, until when they are valid,
which of the given CAs has signed them, which of the given keys belongs to them. The CAs are the CA certificates among the files; without
one, signatures are not checked.

JSON: valid, files [{file, kind (certificates, key), key_hash, problems, certificates [{kind (CA, member, other), member, subject,
issuer, fingerprint, key_hash, not_before, not_after, signed_by, key_file, problems}]}]. key_hash is the SHA-256 of the public key.

` + certExitHelp()

func newCertInspect(a app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "inspect FILE...", Short: "What is in files of certificates and keys, and what is wrong", Long: certInspectLong,
		Example: `  millrace cert inspect pki/*.pem
  millrace cert inspect --json member-2.pem ca.pem`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("want one file or more, have none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return unlessInterrupted(cmd, func() error {
				answered, err := lookAtCertificates(args, time.Now())
				if err != nil {
					return err
				}
				return answer(a, answered, asJSON)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// certificates is the answer of inspect. The names of its JSON form stay as they are.
type certificates struct {
	Valid bool        `json:"valid"`
	Files []certsFile `json:"files"`
}

type certsFile struct {
	File         string      `json:"file"`
	Kind         string      `json:"kind,omitempty"`
	KeyHash      string      `json:"key_hash,omitempty"`
	Problems     []string    `json:"problems,omitempty"`
	Certificates []certFound `json:"certificates,omitempty"`
}

type certFound struct {
	Kind        string    `json:"kind"`
	Member      uint64    `json:"member,omitempty"`
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Fingerprint string    `json:"fingerprint"`
	KeyHash     string    `json:"key_hash"`
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
	SignedBy    string    `json:"signed_by,omitempty"` // the fingerprint of the CA
	KeyFile     string    `json:"key_file,omitempty"`
	Problems    []string  `json:"problems,omitempty"`
}

// parsedFile is a file before it is compared with the others.
type parsedFile struct {
	certsFile
	parsed []*x509.Certificate
}

func lookAtCertificates(paths []string, now time.Time) (inspect.Answer, error) {
	var files []parsedFile
	var roots []*x509.Certificate
	keys := map[string]string{} // hash of a public key: the file with the private one
	for _, path := range paths {
		text, err := cert.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f := parseCertsFile(path, text)
		if f.KeyHash != "" {
			keys[f.KeyHash] = path
		}
		for _, c := range f.parsed {
			if c.IsCA {
				roots = append(roots, c)
			}
		}
		files = append(files, f)
	}
	found := &certificates{Valid: true, Files: []certsFile{}}
	for _, f := range files {
		chain := f.parsed
		for i, c := range f.parsed {
			f.Certificates = append(f.Certificates, describeCertificate(c, chain[i:], roots, keys, now))
		}
		found.Valid = found.Valid && len(f.Problems) == 0
		for _, c := range f.Certificates {
			found.Valid = found.Valid && len(c.Problems) == 0
		}
		found.Files = append(found.Files, f.certsFile)
	}
	return found, nil
}

// parseCertsFile reads certificates or a key.
func parseCertsFile(path string, text []byte) parsedFile {
	f := parsedFile{certsFile: certsFile{File: path}}
	if !strings.Contains(string(text), "PRIVATE KEY-----") {
		f.Kind = "certificates"
		parsed, err := cert.Parse(text, cert.MaxRoots)
		if err != nil {
			f.Problems = append(f.Problems, err.Error())
		}
		f.parsed = parsed
		return f
	}
	f.Kind = "key"
	key, err := cert.ParseKey(text)
	if err != nil {
		f.Problems = append(f.Problems, err.Error())
		return f
	}
	f.KeyHash = hashOf(key.Public())
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o007 != 0 {
		f.Problems = append(f.Problems, fmt.Sprintf("its mode is %#o: every user of this machine can read or change the key; want 0600", info.Mode().Perm()))
	}
	return f
}

func hashOf(public crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return ""
	}
	hash := cert.KeyHash(&x509.Certificate{RawSubjectPublicKeyInfo: der})
	return hex.EncodeToString(hash[:])
}

func describeCertificate(c *x509.Certificate, chain, roots []*x509.Certificate, keys map[string]string, now time.Time) certFound {
	hash := cert.KeyHash(c)
	d := certFound{
		Kind: "other", Subject: c.Subject.String(), Issuer: c.Issuer.String(), Fingerprint: cert.Fingerprint(c), KeyHash: hex.EncodeToString(hash[:]),
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
	}
	d.KeyFile = keys[d.KeyHash]
	for _, root := range roots {
		if c.CheckSignatureFrom(root) == nil {
			d.SignedBy = cert.Fingerprint(root)
		}
	}
	if c.IsCA {
		d.Kind = "CA"
		if now.After(c.NotAfter) || now.Before(c.NotBefore) {
			d.Problems = append(d.Problems, fmt.Sprintf("it is not valid now: the clock shows %s", now.UTC().Format(time.RFC3339)))
		}
		return d
	}
	id, err := cert.MemberID(c)
	if err != nil {
		d.Problems = append(d.Problems, err.Error())
		return d
	}
	d.Kind, d.Member = "member", id
	if len(roots) == 0 { // its signature cannot be checked; the rest can
		roots = []*x509.Certificate{c}
	}
	for _, role := range []cert.Role{cert.Dialing, cert.Accepting} {
		if err := cert.Verify(chain, roots, id, role, now); err != nil {
			d.Problems = append(d.Problems, err.Error())
			break
		}
	}
	return d
}

// Exit implements inspect.Answer.
func (s *certificates) Exit() int {
	if !s.Valid {
		return exitDamaged
	}
	return exitOK
}

// WriteText implements inspect.Answer.
func (s *certificates) WriteText(w io.Writer) error {
	var b strings.Builder
	problems := func(all []string) {
		for _, p := range all {
			fmt.Fprintf(&b, "  wrong: %s\n", p)
		}
	}
	for _, f := range s.Files {
		fmt.Fprintf(&b, "%s: %s\n", f.File, f.Kind)
		if f.KeyHash != "" {
			fmt.Fprintf(&b, "  key hash     %s\n", f.KeyHash)
		}
		problems(f.Problems)
		for _, c := range f.Certificates {
			what := c.Kind
			if c.Kind == "member" {
				what = fmt.Sprintf("member %d", c.Member)
			}
			fmt.Fprintf(&b, "  %s  %q\n", what, c.Subject)
			fmt.Fprintf(&b, "  valid        %s to %s\n", c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339))
			fmt.Fprintf(&b, "  fingerprint  %s\n  key hash     %s\n", c.Fingerprint, c.KeyHash)
			signed := "by none of these files"
			if c.SignedBy != "" {
				signed = fmt.Sprintf("by the CA with the fingerprint %.16s", c.SignedBy)
			}
			fmt.Fprintf(&b, "  signed       %s (%q)\n", signed, c.Issuer)
			if c.KeyFile != "" {
				fmt.Fprintf(&b, "  key          %s\n", c.KeyFile)
			}
			problems(c.Problems)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
