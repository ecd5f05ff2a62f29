package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/transport/cert"
)

// ResultServer serves the runs in one directory, those of earlier loads too. It only reads.
type ResultServer struct {
	dir     string
	most    time.Duration // after the load has ended
	server  *ClientServer
	ended   atomic.Bool // the load has
	once    sync.Once
	fetched chan struct{}
}

// ResultServing says whether and how long a load serves its results.
type ResultServing struct {
	Serve    string        // address; "": it does not
	ServeFor time.Duration // after the load has ended
}

const maxServing = 30 * 24 * time.Hour

// Validate returns the first reason why results cannot be served. secured says that there are certificates.
func (o ResultServing) Validate(out string, secured bool) error {
	switch {
	case o.Serve == "":
		return nil
	case out == "":
		return lab.Invalid("Serve", "there is nothing to serve: give {Out}, too")
	case !secured && !IsLoopback(o.Serve):
		return lab.Invalid("Serve", "%s can be reached from other machines: give {Certificates}, or an address that begins with 127.0.0.1", o.Serve)
	case o.ServeFor <= 0 || o.ServeFor > maxServing:
		return lab.Invalid("ServeFor", "%v is not between 1ns and %v", o.ServeFor, maxServing)
	}
	return nil
}

// ServeResults begins to serve the directory that holds the directories of runs.
func ServeResults(o ResultServing, dir string, own *cert.Credentials) (*ResultServer, error) {
	s := &ResultServer{dir: dir, most: o.ServeFor, fetched: make(chan struct{})}
	serving := ClientServing{Addr: o.Serve, Handle: s.handle, Large: func(Request) bool { return true }}
	if own != nil {
		serving.Wrap = AcceptTrusted(own)
	}
	var err error
	if s.server, err = ServeClientsAs(serving); err != nil {
		return nil, lab.Cannot("Serve", "%v", err)
	}
	return s, nil
}

// Addr is where the runs are served.
func (s *ResultServer) Addr() string { return s.server.Addr() }

// Await says that the load has ended, and waits until its results were collected, ctx ends, or it took more
// than Serving.ServeFor, which is an error.
func (s *ResultServer) Await(ctx context.Context) error {
	s.ended.Store(true)
	timer := time.NewTimer(s.most)
	defer timer.Stop()
	select {
	case <-s.fetched:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("the results were not collected within %v; they are in %s", s.most, s.dir)
	}
}

// Close ends it.
func (s *ResultServer) Close() error { return s.server.Close() }

func (s *ResultServer) handle(_ context.Context, r Request) (Status, string) {
	request := r.Value
	if r.Kind != Opaque || len(request) == 0 {
		return Failed, "an empty request"
	}
	switch request[0] {
	case kindList:
		l, err := s.list()
		if err != nil {
			return Failed, err.Error()
		}
		text, err := json.Marshal(l)
		if err != nil {
			return Failed, err.Error()
		}
		return Done, string(text)
	case kindPiece:
		return s.piece(request[1:])
	case kindDone:
		if !s.ended.Load() {
			return Failed, "the load goes on"
		}
		s.once.Do(func() { close(s.fetched) })
		return Done, ""
	}
	return Failed, fmt.Sprintf("a request of the kind %q is not known", request[0])
}

func (s *ResultServer) list() (l Listing, err error) {
	l.Running = !s.ended.Load()
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil // the load has not made it yet
	}
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		dir := filepath.Join(s.dir, e.Name())
		if !e.IsDir() || !plainName.MatchString(e.Name()) || !isRun(dir) {
			continue
		}
		r := CollectedRun{Name: e.Name()}
		files, err := os.ReadDir(dir)
		if err != nil {
			return l, err
		}
		for _, f := range files {
			info, err := f.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was replaced
			}
			if err != nil {
				return l, err
			}
			if info.Mode().IsRegular() && plainName.MatchString(f.Name()) && filepath.Ext(f.Name()) != ".pending" {
				r.Files = append(r.Files, File{Name: f.Name(), Bytes: info.Size(), Changed: info.ModTime().UnixNano()})
			}
		}
		if l.Runs = append(l.Runs, r); len(l.Runs) > maxRuns || len(r.Files) > maxFiles {
			return l, fmt.Errorf("there are %d runs, and %d files in %s: at most %d and %d are served", len(l.Runs), len(r.Files), r.Name, maxRuns, maxFiles)
		}
	}
	return l, nil
}

// isRun reports whether a directory has the results of a run. Others are not served: keys may be beside them.
func isRun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, archive.ResultFile))
	return err == nil
}

// piece reads a part of a file.
func (s *ResultServer) piece(request []byte) (Status, string) {
	var p piece
	if err := json.Unmarshal(request, &p); err != nil || !plainName.MatchString(p.Run) || !plainName.MatchString(p.File) || p.Offset < 0 {
		return Failed, fmt.Sprintf("%.200q names no piece of a run", request)
	}
	dir := filepath.Join(s.dir, p.Run)
	if !isRun(dir) {
		return NotTaken, ""
	}
	f, err := os.Open(filepath.Join(dir, p.File))
	if errors.Is(err, fs.ErrNotExist) {
		return NotTaken, ""
	}
	if err != nil {
		return Failed, err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Failed, err.Error()
	}
	if !info.Mode().IsRegular() || info.Size() != p.Bytes || info.ModTime().UnixNano() != p.Changed {
		return NotTaken, ""
	}
	b := make([]byte, min(pieceBytes, max(0, p.Bytes-p.Offset)))
	if _, err := f.ReadAt(b, p.Offset); err != nil && err != io.EOF {
		return Failed, err.Error()
	}
	return Done, string(b)
}
