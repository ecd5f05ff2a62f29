// Collect brings results from where a load ran to where a person looks at them. The process of the
// load serves the directory with its runs (Server) over the protocol of a Client, with TLS in both
// directions if it has certificates; Collect copies them. A pod of Kubernetes is the reason: when it has
// ended, its files can be read by no other means than another pod, and an image with nothing but this program
// has no tar, which kubectl cp needs. So the load stays until its results were collected.
//
//	request   kind u8, rest
//	l         answer: a Listing, as JSON
//	g         rest: a piece, as JSON; answer: its bytes
//	d         the results were collected: the server may end

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/transport/cert"
)

const (
	kindList  = 'l'
	kindPiece = 'g'
	kindDone  = 'd'
)

// Bounds of what is served, and of what is taken.
const (
	maxRuns    = 1000
	maxFiles   = 10_000
	pieceBytes = 4 << 20
)

// Listing is what a server has.
type Listing struct {
	Running bool // the load goes on
	Runs    []CollectedRun
}

// CollectedRun is the directory of one run.
type CollectedRun struct {
	Name  string
	Files []File
}

// File is one file of it.
type File struct {
	Name    string
	Bytes   int64
	Changed int64 // nanoseconds since 1970
}

// piece is a part of a file. The file must still be what the listing said.
type piece struct {
	Run, File string
	Offset    int64
	Bytes     int64
	Changed   int64
}

// plainName is a name that is no path, and that no shell and no terminal takes for something else.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+=-]{0,199}$`)

// Collecting say what Collect does.
type Collecting struct {
	From        string            // address of the server
	Credentials *cert.Credentials // of a load; nil: plain TCP
	Out         string            // directory for the runs; made if missing
	Wait        time.Duration     // for a load that goes on, or does not serve yet; 0: what it has by now is taken
	Keep        bool              // the server is not told that it may end
	Say         func(format string, args ...any)
}

const (
	collectDialTimeout = 5 * time.Second
	askTimeout         = 30 * time.Second
	waitInterval       = time.Second
	maxTries           = 5 // of a run whose files change meanwhile
)

// errChanged is the error of a file that is no longer what the listing said.
var errChanged = errors.New("a file has changed meanwhile")

// Collect copies all runs of a server, verifies them, and then tells it that it may end. A run that is
// complete in Out already is left alone. It returns the directories of all runs.
func Collect(ctx context.Context, o Collecting) (dirs []string, err error) {
	c, l, err := reach(ctx, o)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if len(l.Runs) == 0 {
		return nil, lab.Cannot("From", "%s has no results yet", o.From)
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return nil, lab.Cannot("Out", "cannot make %s: %v", o.Out, lab.Cause(err))
	}
	for _, r := range l.Runs {
		dir, err := collectRun(ctx, c, o, r)
		if err != nil {
			return dirs, fmt.Errorf("%s: %w", r.Name, explain(ctx, o, err))
		}
		dirs = append(dirs, dir)
	}
	switch {
	case l.Running:
		o.Say("the load goes on: collect again when it has ended")
	case !o.Keep:
		// The load may end before its answer has come.
		if _, err = ask(ctx, c, kindDone, nil); errors.Is(err, ErrIndeterminate) {
			err = nil
		}
	}
	return dirs, err
}

// reach connects, and waits until the load has ended, for as long as the options say. Meanwhile a connection
// that cannot be made, or breaks, is made again: the load may not be there yet, or a tunnel has ended.
func reach(ctx context.Context, o Collecting) (c *Conn, l Listing, err error) {
	dialing := Dialing{Timeout: collectDialTimeout, Silence: askTimeout}
	if o.Credentials != nil {
		dialing.Wrap = DialTrusted(o.Credentials, func(chain []*x509.Certificate) error {
			return VerifyLoad(chain, o.Credentials.Roots, cert.Accepting, time.Now())
		})
	}
	end, told := time.Now().Add(o.Wait), map[string]bool{}
	waits := func(why string) {
		if !told[why] {
			told[why] = true
			o.Say("%s; waiting %v at most", why, o.Wait)
		}
	}
	for {
		c, err = DialConn(ctx, o.From, dialing)
		again := comesLater(err)
		if err != nil && ctx.Err() == nil {
			err = lab.Cannot("From", "%s cannot be reached: %v", o.From, err)
		}
		if err == nil {
			if l, err = await(ctx, c, end, func() { waits("the load goes on") }); err == nil {
				return c, l, nil
			}
			c.Close()
			again = (errors.Is(err, ErrNotSent) || errors.Is(err, ErrIndeterminate)) && comesLater(err)
			err = explain(ctx, o, err)
		}
		if !again || ctx.Err() != nil || time.Now().After(end) {
			return nil, l, err
		}
		waits(o.From + " does not serve results")
		if err := lab.Sleep(ctx, waitInterval); err != nil {
			return nil, l, err
		}
	}
}

// comesLater reports whether an error of a connection may go away by itself. That the two ends do not trust
// each other does not.
func comesLater(err error) bool {
	var refusal *Refusal
	var plain tls.RecordHeaderError
	return !errors.Is(err, cert.ErrRefused) && !errors.As(err, &refusal) && !errors.As(err, &plain)
}

// explain says what an error of the connection means.
func explain(ctx context.Context, o Collecting, err error) error {
	var refusal *Refusal
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &refusal):
		return lab.Cannot("From", "%v", refusal)
	case errors.Is(err, ErrNotSent) || errors.Is(err, ErrIndeterminate):
		return lab.Cannot("From", "%s has closed the connection: it has ended, serves no results, or only one side has certificates", o.From)
	}
	return err
}

func ask(ctx context.Context, c *Conn, kind byte, rest []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, text, err := c.Ask(ctx, []byte{kind}, rest)
	switch {
	case err != nil:
		return nil, err
	case status == NotTaken:
		return nil, errChanged
	case status != Done:
		return nil, errors.New(string(text))
	}
	return text, nil
}

func list(ctx context.Context, c *Conn) (l Listing, err error) {
	text, err := ask(ctx, c, kindList, nil)
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		return l, err
	}
	for _, r := range l.Runs {
		if !plainName.MatchString(r.Name) {
			return l, fmt.Errorf("a run is called %q, which is no name", r.Name)
		}
		for _, f := range r.Files {
			if !plainName.MatchString(f.Name) || f.Bytes < 0 {
				return l, fmt.Errorf("run %s has a file of %d bytes called %q, which is no name", r.Name, f.Bytes, f.Name)
			}
		}
	}
	return l, nil
}

// await waits until the load has ended, or the end. It calls waits if that takes long.
func await(ctx context.Context, c *Conn, end time.Time, waits func()) (l Listing, err error) {
	for {
		if l, err = list(ctx, c); err != nil || !l.Running || time.Now().After(end) {
			return l, err
		}
		waits()
		if err := lab.Sleep(ctx, waitInterval); err != nil {
			return l, err
		}
	}
}

// collectRun copies one run beside its place, reads it, and moves it there.
func collectRun(ctx context.Context, c *Conn, o Collecting, r CollectedRun) (dir string, err error) {
	dir = filepath.Join(o.Out, r.Name)
	have, err := archive.Read(dir)
	if err == nil && !have.Run.Partial {
		o.Say("%s is there already", dir)
		return dir, nil
	}
	if _, statErr := os.Stat(dir); err != nil && !errors.Is(statErr, fs.ErrNotExist) {
		return dir, lab.Cannot("Out", "%s exists, and is no run that could be replaced: %v", dir, err)
	}
	pending := filepath.Join(o.Out, "."+r.Name+".pending")
	defer func() { err = errors.Join(err, os.RemoveAll(pending)) }()
	for try := 1; ; try++ {
		if err := os.RemoveAll(pending); err != nil {
			return dir, err
		}
		err := copyRun(ctx, c, pending, r)
		if err == nil {
			have, err = archive.Read(pending)
		}
		if err == nil {
			break
		}
		if try == maxTries || ctx.Err() != nil || !errors.Is(err, errChanged) && !errors.Is(err, archive.ErrDamaged) {
			return dir, err
		}
		if r, err = again(ctx, c, r.Name); err != nil {
			return dir, err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return dir, err
	}
	if err := os.Rename(pending, dir); err != nil {
		return dir, err
	}
	o.Say("collected %s: %d points%s", dir, len(have.Run.Points), map[bool]string{true: ", PARTIAL"}[have.Run.Partial])
	return dir, nil
}

// again lists a run again.
func again(ctx context.Context, c *Conn, name string) (CollectedRun, error) {
	l, err := list(ctx, c)
	if err != nil {
		return CollectedRun{}, err
	}
	for _, r := range l.Runs {
		if r.Name == name {
			return r, nil
		}
	}
	return CollectedRun{}, errors.New("it is gone")
}

func copyRun(ctx context.Context, c *Conn, to string, r CollectedRun) error {
	if err := os.Mkdir(to, 0o777); err != nil {
		return err
	}
	for _, f := range r.Files {
		if err := copyFile(ctx, c, filepath.Join(to, f.Name), r.Name, f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

func copyFile(ctx context.Context, c *Conn, to, run string, f File) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for offset := int64(0); offset < f.Bytes; {
		request, err := json.Marshal(piece{Run: run, File: f.Name, Offset: offset, Bytes: f.Bytes, Changed: f.Changed})
		if err != nil {
			return err
		}
		text, err := ask(ctx, c, kindPiece, request)
		if err != nil {
			return err
		}
		if len(text) == 0 || int64(len(text)) > f.Bytes-offset {
			return fmt.Errorf("a piece of %d bytes at %d of %d", len(text), offset, f.Bytes)
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
		offset += int64(len(text))
	}
	return nil
}
