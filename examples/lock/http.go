package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace"
)

// server answers clients of one host.
type server struct {
	node    *millrace.Node[command, result]
	locks   *locks
	timeout time.Duration // from a request to its answer
}

// answer is what a client gets.
type answer struct {
	Held  bool   `json:"held"`
	Owner string `json:"owner,omitempty"`
	Token uint64 `json:"token,omitempty"`
}

// maxBodyBytes bounds what is read of a request: parameters may come as a form.
const maxBodyBytes = 4 << 10

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /locks/{name}", s.propose(acquire))
	mux.HandleFunc("PUT /locks/{name}", s.propose(renew))
	mux.HandleFunc("DELETE /locks/{name}", s.propose(release))
	mux.HandleFunc("GET /locks/{name}", s.read)
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, s.node.Explain()) })
	return http.MaxBytesHandler(mux, maxBodyBytes)
}

// propose proposes an action. Any host takes it.
func (s *server) propose(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := parse(do, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
		defer cancel()
		res, err := s.node.Propose(ctx, c)
		switch {
		case err != nil:
			refuse(w, err)
		case !res.Held:
			reply(w, http.StatusConflict, answer{Owner: res.Owner})
		default:
			reply(w, http.StatusOK, answer{true, res.Owner, res.Token})
		}
	}
}

// read says who holds a lock. A lease that has ended is gone some milliseconds later, by a tick.
func (s *server) read(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	var held lease
	err := s.node.ViewExclusive(ctx, millrace.Linearizable, func() error { held = s.locks.Locks[r.PathValue("name")]; return nil })
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, http.StatusOK, answer{held.Token > 0, held.Owner, held.Token})
}

// parse makes a command of a request.
func parse(do action, r *http.Request) (c command, err error) {
	err = r.ParseForm() // its error alone: ParseMultipartForm hides it
	if multipart := r.ParseMultipartForm(maxBodyBytes); err == nil && !errors.Is(multipart, http.ErrNotMultipart) {
		err = multipart
	}
	if err != nil {
		return c, fmt.Errorf("the form does not parse: %w; at most %d bytes are read", err, maxBodyBytes)
	}
	c = command{Do: do, Name: r.PathValue("name"), Owner: r.FormValue("owner")}
	if text := r.FormValue("token"); text != "" {
		if c.Token, err = strconv.ParseUint(text, 10, 64); err != nil {
			return c, fmt.Errorf("token is %.20q, want the number that acquire has returned", text)
		}
	}
	if text := r.FormValue("ttl"); text != "" {
		if c.TTL, err = time.ParseDuration(text); err != nil {
			return c, fmt.Errorf("ttl is %.20q, want a time such as 10s", text)
		}
	}
	return c, c.validate()
}

// refuse answers a request whose outcome is no result. A client repeats it: acquire by the owner that holds
// the lock, renew and release do the same when they are done twice.
func refuse(w http.ResponseWriter, err error) {
	if millrace.MayHaveCommitted(err) {
		http.Error(w, "it may be done, or not; ask again: "+err.Error(), http.StatusGatewayTimeout)
		return
	}
	if after, ok := millrace.RetryAfter(err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)+1))
	}
	http.Error(w, "not done: "+err.Error(), http.StatusServiceUnavailable)
}

func reply(w http.ResponseWriter, code int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(a) // the client has gone
}
