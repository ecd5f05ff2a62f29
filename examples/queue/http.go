package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace"
)

// server answers producers and workers, on any member.
type server struct {
	node    *millrace.Node[command, result]
	queue   *queue
	timeout time.Duration // from a request to its answer
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", s.propose(enqueue, http.StatusInsufficientStorage, "the queue is full"))
	mux.HandleFunc("POST /lease", s.propose(lease, http.StatusNotFound, "no job is ready"))
	mux.HandleFunc("PUT /jobs/{id}", s.propose(renew, http.StatusConflict, "this attempt does not hold the job any more"))
	mux.HandleFunc("DELETE /jobs/{id}", s.propose(ack, http.StatusConflict, "the job is done, or belongs to a later attempt"))
	mux.HandleFunc("POST /sessions", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, s.node.NewSession().ID()) })
	mux.HandleFunc("GET /length", s.length)
	return http.MaxBytesHandler(mux, maxBodyBytes)
}

// propose proposes an action. The code and the reason are for a command that the machine has refused.
func (s *server) propose(do action, code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, options, err := parse(do, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
		defer cancel()
		switch res, err := s.node.Propose(ctx, c, options...); {
		case err != nil:
			refuse(w, err)
		case !res.OK:
			http.Error(w, reason, code)
		default:
			_ = json.NewEncoder(w).Encode(res) // the client has gone
		}
	}
}

// parse makes a command of a request.
func parse(do action, r *http.Request) (c command, options []millrace.ProposeOption, err error) {
	c.Do = do
	if text := r.Header.Get("Idempotency-Key"); text != "" {
		mark, err := millrace.ParseSessionMark(text)
		if err != nil {
			return c, nil, fmt.Errorf("Idempotency-Key: %w; POST /sessions draws a session", err)
		}
		options = append(options, millrace.InSession(mark))
	}
	if do == enqueue {
		body, err := io.ReadAll(r.Body)
		if c.Body = string(body); err != nil {
			return c, nil, fmt.Errorf("the job did not arrive whole: %w; at most %d bytes are taken", err, maxBodyBytes)
		}
	}
	if do == renew || do == ack {
		if c.ID, err = strconv.ParseUint(r.PathValue("id"), 10, 64); err != nil {
			return c, nil, fmt.Errorf("the job is %.20q, want the ID that POST /jobs has returned", r.PathValue("id"))
		}
		if c.Attempt, err = strconv.ParseUint(r.FormValue("attempt"), 10, 64); err != nil {
			return c, nil, fmt.Errorf("attempt is %.20q, want the Attempt that POST /lease has returned", r.FormValue("attempt"))
		}
	}
	if do == lease || do == renew {
		if c.TTL, err = time.ParseDuration(r.FormValue("ttl")); err != nil || c.TTL < minTTL || c.TTL > maxTTL {
			return c, nil, fmt.Errorf("ttl is %.20q, want %v to %v, such as 30s", r.FormValue("ttl"), minTTL, maxTTL)
		}
	}
	return c, options, nil
}

// refuse answers a request whose outcome is no result.
func refuse(w http.ResponseWriter, err error) {
	if millrace.MayHaveCommitted(err) {
		http.Error(w, "it may be done, or not; send it again with its Idempotency-Key: "+err.Error(), http.StatusGatewayTimeout)
		return
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "not done: "+err.Error(), http.StatusServiceUnavailable)
}

// length says how many jobs wait, and how many workers have.
func (s *server) length(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	var jobs, leased int
	if err := s.node.View(ctx, millrace.Linearizable, func(millrace.ReadAt) error { jobs, leased = s.queue.length(); return nil }); err != nil {
		refuse(w, err)
		return
	}
	fmt.Fprintf(w, `{"Ready":%d,"Leased":%d}`+"\n", jobs-leased, leased)
}

func (q *queue) length() (jobs, leased int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.Jobs), q.Leases.Len()
}
