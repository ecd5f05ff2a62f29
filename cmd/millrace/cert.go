package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/transport/cert"
)

// millrace cert makes what Config.TLS needs. It has no database: a CA is two files, and so is a member.

var certLong = `cert makes a CA and certificates that name members, for the connections between hosts (Config.TLS), and shows what is in
such files. A CA of your own works as well: docs/operate/tls.md says what a certificate needs, and how to replace certificates and CAs
while hosts run.

Files in --dir: ca.pem, ca-key.pem, member-N.pem, member-N-key.pem. Keys are ECDSA P-256, in files that only their owner can read.
A host needs its own two files and ca.pem. Keep ca-key.pem away from hosts: with it anyone can be any member.

` + certExitHelp()

func newCert(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make and look at the certificates of hosts: ca, member, renew, inspect",
		Long:  certLong,
		Example: `  millrace cert ca --dir pki --name "orders production"
  millrace cert member --dir pki --id 1
  millrace cert inspect pki/*.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCertCA(a), newCertMember(a), newCertRenew(a), newCertInspect(a))
	for _, sub := range append(cmd.Commands(), cmd) {
		sub.Flags().SortFlags = false
	}
	return cmd
}

// pki is a directory with a CA and members, and what all verbs that make certificates are given.
type pki struct {
	dir   string
	id    uint64
	name  string
	key   string
	days  int
	force bool
}

func (p *pki) flags(cmd *cobra.Command, days int) {
	cmd.Flags().StringVar(&p.dir, "dir", "", "`directory` of the CA and the members; made if missing")
	cmd.Flags().IntVar(&p.days, "days", days, "how many days the certificate is valid, 1 to 36500")
}

func (p *pki) idFlag(cmd *cobra.Command) {
	cmd.Flags().Uint64Var(&p.id, "id", 0, "the member's id, Config.ID of its host; not 0")
}

func (p *pki) validate(cmd *cobra.Command, member bool) error {
	switch {
	case p.dir == "":
		return seeHelp(cmd, errors.New("--dir is missing; name the directory of the CA"))
	case p.days < 1 || p.days > 36500:
		return seeHelp(cmd, fmt.Errorf("--days: %d, want 1 to 36500", p.days))
	case member && p.id == 0:
		return seeHelp(cmd, errors.New("--id is missing; name the member, whose id is not 0"))
	}
	return nil
}

// unlessInterrupted does something that takes a moment. An error without a status means that there is no
// answer.
func unlessInterrupted(cmd *cobra.Command, do func() error) error {
	if err := context.Cause(cmd.Context()); err != nil {
		return err
	}
	err := do()
	var own statusError
	if errors.As(err, &own) {
		return err
	}
	return cannot(err)
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) caFile() string    { return p.path("ca.pem") }
func (p *pki) caKeyFile() string { return p.path("ca-key.pem") }

func (p *pki) memberFile() string { return p.path("member-" + strconv.FormatUint(p.id, 10) + ".pem") }
func (p *pki) memberKeyFile() string {
	return p.path("member-" + strconv.FormatUint(p.id, 10) + "-key.pem")
}

// skew lets hosts whose clocks are behind believe a new certificate.
const skew = time.Hour

func (p *pki) span(now time.Time) cert.Span {
	return cert.Span{NotBefore: now.Add(-skew).UTC(), NotAfter: now.AddDate(0, 0, p.days).UTC()}
}

func newCertCA(a app) *cobra.Command {
	p := &pki{}
	cmd := &cobra.Command{
		Use: "ca", Short: "Make a CA: ca.pem and ca-key.pem", Args: cobra.NoArgs,
		Long: `ca makes a CA: a certificate that signs itself, and its key. It may sign members, and no other CA.

Make one for each cluster: every certificate that it signs is believed. Two CAs with different keys may have the same name.

` + certExitHelp(exitOK, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.validate(cmd, false); err != nil {
				return err
			}
			return unlessInterrupted(cmd, func() error { return p.makeCA(a) })
		},
	}
	p.flags(cmd, 3650)
	cmd.Flags().StringVar(&p.name, "name", "", "`name` of the CA, for messages (default \"Millrace CA\" and the date)")
	cmd.Flags().BoolVar(&p.force, "force", false, "replace a CA that exists; the certificates that it has signed are lost with it")
	return cmd
}

func (p *pki) makeCA(a app) error {
	now := time.Now()
	if p.name == "" {
		p.name = "Millrace CA " + now.UTC().Format(time.DateOnly)
	}
	ca, err := cert.NewCA(p.name, p.span(now))
	if err != nil {
		return err
	}
	key, err := cert.EncodeKey(ca.Key)
	if err != nil {
		return err
	}
	if err := p.write(file{p.caKeyFile(), key, 0o600}, file{p.caFile(), cert.Encode(ca.Certificate), 0o644}); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "made  %s   %s, valid until %s\n", p.caFile(), cert.Text(ca.Certificate), ca.Certificate.NotAfter.Format(time.RFC3339))
	fmt.Fprintf(a.stdout, "made  %s   keep it away from hosts: with it anyone can be any member\n", p.caKeyFile())
	return nil
}

func newCertMember(a app) *cobra.Command {
	p := &pki{}
	cmd := &cobra.Command{
		Use: "member", Short: "Make the certificate and the key of a member", Args: cobra.NoArgs,
		Long: `member draws a key for a member, and makes a certificate that names its id, signed by the CA in --dir. It is valid no longer
than the CA.

` + certExitHelp(exitOK, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.validate(cmd, true); err != nil {
				return err
			}
			return unlessInterrupted(cmd, func() error { return p.makeMember(a) })
		},
	}
	p.flags(cmd, 365)
	p.idFlag(cmd)
	cmd.Flags().BoolVar(&p.force, "force", false, "replace a certificate and a key that exist")
	return cmd
}

func (p *pki) makeMember(a app) error {
	key, err := cert.NewKey()
	if err != nil {
		return err
	}
	text, err := cert.EncodeKey(key)
	if err != nil {
		return err
	}
	made, err := p.sign(key.Public())
	if err != nil {
		return err
	}
	if err := p.write(file{p.memberKeyFile(), text, 0o600}, file{p.memberFile(), cert.Encode(made), 0o644}); err != nil {
		return err
	}
	p.say(a, made)
	fmt.Fprintf(a.stdout, "made  %s\n", p.memberKeyFile())
	return nil
}

func newCertRenew(a app) *cobra.Command {
	p := &pki{force: true}
	cmd := &cobra.Command{
		Use: "renew", Short: "Make a new certificate for the key that a member has", Args: cobra.NoArgs,
		Long: `renew makes a new certificate of a member for the key that it has, and replaces member-N.pem. The key stays the same, so what
knows the member by its key still does. With --key and the --dir of another CA, the member moves to that CA with its key.

` + certExitHelp(exitOK, exitCannot, exitUsage, exitInterrupted),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.validate(cmd, true); err != nil {
				return err
			}
			return unlessInterrupted(cmd, func() error { return p.renew(a) })
		},
	}
	p.flags(cmd, 365)
	p.idFlag(cmd)
	cmd.Flags().StringVar(&p.key, "key", "", "`file` with the member's key (default member-N-key.pem in --dir)")
	return cmd
}

func (p *pki) renew(a app) error {
	if p.key == "" {
		p.key = p.memberKeyFile()
	}
	key, err := cert.ReadKey(p.key)
	if err != nil {
		return err
	}
	made, err := p.sign(key.Public())
	if err != nil {
		return err
	}
	if err := p.write(file{p.memberFile(), cert.Encode(made), 0o644}); err != nil {
		return err
	}
	p.say(a, made)
	return nil
}

// sign makes the certificate of a member for a public key.
func (p *pki) sign(public crypto.PublicKey) (*x509.Certificate, error) {
	ca, err := cert.LoadIssuer(p.caFile(), p.caKeyFile())
	if err != nil {
		return nil, fmt.Errorf("%w (millrace cert ca --dir %s makes a CA)", err, p.dir)
	}
	now := time.Now()
	if end := ca.Certificate.NotAfter; !now.Before(end) {
		return nil, fmt.Errorf("%s: the CA %s has expired on %s; make a new one", p.caFile(), cert.Text(ca.Certificate), end.Format(time.RFC3339))
	}
	valid := p.span(now)
	if valid.NotAfter.After(ca.Certificate.NotAfter) {
		valid.NotAfter = ca.Certificate.NotAfter
	}
	if valid.NotBefore.Before(ca.Certificate.NotBefore) {
		valid.NotBefore = ca.Certificate.NotBefore
	}
	return ca.Member(p.id, public, valid)
}

func (p *pki) say(a app, made *x509.Certificate) {
	fmt.Fprintf(a.stdout, "made  %s   names member %d, fingerprint %.16s, valid until %s\n", p.memberFile(), p.id, cert.Fingerprint(made), made.NotAfter.UTC().Format(time.RFC3339))
}

// file is a file that a verb makes.
type file struct {
	path string
	text []byte
	mode fs.FileMode
}

// write makes files, each whole or not at all. Unless force is set, none that exists is replaced.
func (p *pki) write(files ...file) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil && !p.force {
			return fmt.Errorf("%s exists; --force replaces it", f.path)
		}
	}
	for _, f := range files {
		if err := p.writeOne(f); err != nil {
			return err
		}
	}
	return nil
}

func (p *pki) writeOne(f file) (err error) {
	tmp, err := os.CreateTemp(p.dir, filepath.Base(f.path)+".*.tmp") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(f.text)
	err = errors.Join(err, tmp.Chmod(f.mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if p.force {
		err = os.Rename(tmp.Name(), f.path)
	} else if err = os.Link(tmp.Name(), f.path); errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s exists; --force replaces it", f.path)
	}
	return errors.Join(err, syncDir(p.dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
