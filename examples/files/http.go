package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace"
)

const (
	maxNameBytes = 1 << 10
	// answerTimeout is how long a client waits for the group, transfers of files not counted.
	answerTimeout = 5 * time.Second
	// idleTimeout is how long a transfer may stand still. A transfer as a whole may take any time.
	idleTimeout = 30 * time.Second
)

// server answers clients of one host.
type server struct {
	options
	node  *millrace.Node[command, bool]
	store *store
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.list)
	mux.HandleFunc("GET /{name...}", s.get) // and HEAD
	mux.HandleFunc("PUT /{name...}", s.put)
	mux.HandleFunc("DELETE /{name...}", s.delete)
	return mux
}

// put stores a body as an object, which costs the log nothing, and then makes the name refer to it. If the
// second step does not come, the object goes when its life has passed.
func (s *server) put(w http.ResponseWriter, r *http.Request) {
	if name := r.PathValue("name"); name == "" || len(name) > maxNameBytes {
		refuse(w, http.StatusBadRequest, "not stored: the name has %d bytes, want 1 to %d", len(name), maxNameBytes)
		return
	}
	if r.ContentLength > s.maxBytes {
		refuse(w, http.StatusRequestEntityTooLarge, "not stored: the file has %d bytes, at most %d are allowed", r.ContentLength, s.maxBytes)
		return
	}
	from := body{http.MaxBytesReader(w, r.Body, s.maxBytes), http.NewResponseController(w)}
	stored, err := s.node.Upload(r.Context(), from, millrace.UploadOptions{Life: s.life})
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "not stored: the file has more than %d bytes, the most that are allowed", s.maxBytes)
	case errors.Is(err, io.ErrUnexpectedEOF):
		refuse(w, http.StatusBadRequest, "not stored: the file did not arrive whole: %v", err)
	case err != nil: // whatever it is, no name refers to the object
		unavailable(w, err, "not stored")
	default:
		s.change(w, r, &file{Object: stored.ID, Bytes: stored.Bytes, Hash: stored.Hash[:], Modified: time.Now().UTC()})
	}
}

// delete removes a name.
func (s *server) delete(w http.ResponseWriter, r *http.Request) { s.change(w, r, nil) }

// change makes the name of a request refer to a file, or to none.
func (s *server) change(w http.ResponseWriter, r *http.Request, f *file) {
	var named []millrace.ProposeOption
	if f != nil {
		named = append(named, millrace.WithObjects(f.Object))
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	existed, err := s.node.Propose(ctx, command{Name: r.PathValue("name"), File: f}, named...)
	switch {
	case millrace.MayHaveCommitted(err):
		refuse(w, http.StatusGatewayTimeout, "it may be done, or not; look before you repeat it: %v", err)
	case err != nil:
		unavailable(w, err, "not done")
	case f == nil && !existed:
		refuse(w, http.StatusNotFound, "no file has this name")
	case f == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("ETag", f.etag())
		if !existed {
			w.WriteHeader(http.StatusCreated)
		}
	}
}

// get sends a file, or ranges of it. Every block is checked on its way from the disk: a damaged file ends the
// connection before its end.
func (s *server) get(w http.ResponseWriter, r *http.Request) {
	if !s.mayRead(w, r) {
		return
	}
	name := r.PathValue("name")
	f, found := s.store.get(name)
	if !found {
		refuse(w, http.StatusNotFound, "no file has this name")
		return
	}
	object, err := s.node.OpenObject(f.Object)
	if err != nil { // after a stale read, or of a damaged file: the bytes come from another member
		unavailable(w, err, "not read")
		return
	}
	defer object.Close()
	w.Header().Set("ETag", f.etag())
	from := content{object, http.NewResponseController(w)}
	http.ServeContent(w, r, name, f.Modified, io.NewSectionReader(from, 0, object.Size()))
}

// listed is a file in the list.
type listed struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	ETag  string `json:"etag"`
}

// list answers with all names, sorted.
func (s *server) list(w http.ResponseWriter, r *http.Request) {
	if !s.mayRead(w, r) {
		return
	}
	files, answer := s.store.all(), []listed{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		answer = append(answer, listed{name, f.Bytes, f.etag()})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client has gone
}

// mayRead waits until the state of this host has everything that was answered before, by any host; with
// ?stale it is read as it is. Otherwise mayRead says why not, and returns false.
func (s *server) mayRead(w http.ResponseWriter, r *http.Request) bool {
	consistency := millrace.Linearizable
	if r.URL.Query().Has("stale") {
		consistency = millrace.Local
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	if _, err := s.node.Read(ctx, consistency); err != nil {
		unavailable(w, err, "not read")
		return false
	}
	return true
}

// body is the body of a request. It fails when nothing comes for idleTimeout.
type body struct {
	io.Reader
	control *http.ResponseController
}

func (b body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(idleTimeout))
	n, err := b.Reader.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{}) // the wait for the other members has none
	}
	return n, err
}

// content is the content of a file. It fails when a client takes nothing for idleTimeout.
type content struct {
	io.ReaderAt
	control *http.ResponseController
}

func (c content) ReadAt(p []byte, off int64) (int, error) {
	_ = c.control.SetWriteDeadline(time.Now().Add(idleTimeout))
	return c.ReaderAt.ReadAt(p, off)
}

// unavailable answers a request that has changed nothing: the group has no place for the file, or this host
// cannot answer now.
func unavailable(w http.ResponseWriter, err error, what string) {
	if errors.Is(err, millrace.ErrObjectSpace) || errors.Is(err, millrace.ErrObjectRefused) {
		refuse(w, http.StatusInsufficientStorage, "%s: %v", what, err)
		return
	}
	after, _ := millrace.RetryAfter(err) // 0: it does not say
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)+1))
	refuse(w, http.StatusServiceUnavailable, "%s: %v", what, err)
}

func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	http.Error(w, fmt.Sprintf(format, args...), code)
}
