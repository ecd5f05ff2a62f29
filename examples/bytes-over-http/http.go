package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
)

// What clients may ask for. Together the bounds limit the memory of puts: about 64 MiB.
const (
	maxKeyBytes     = 1 << 10
	maxValueBytes   = 1 << 20
	maxCommandBytes = binary.MaxVarintLen64 + maxKeyBytes + maxValueBytes
	maxPuts         = 64              // at a time
	maxStateBytes   = 1 << 30         // keys and values; puts under way may exceed it by maxPuts values
	requestTimeout  = 5 * time.Second // for a put: from its command to the answer
)

// api answers HTTP on one host.
type api struct {
	id    uint64
	http  map[uint64]string // addresses, by host
	group *host.Group
	store *store
	puts  chan struct{} // holds a token for each put under way
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /keys/{name}", a.put)
	mux.HandleFunc("GET /keys/{name}", a.get)
	mux.HandleFunc("GET /status", a.status)
	return mux
}

// put answers 200 when the value is committed: a majority of the hosts hold it on disk. With 503 it is surely
// not committed. With 504, or without an answer, it may be. A host that does not lead answers 307.
func (a *api) put(w http.ResponseWriter, r *http.Request) {
	select {
	case a.puts <- struct{}{}:
		defer func() { <-a.puts }()
	default:
		refuse(w, http.StatusServiceUnavailable, "%d puts are under way, the most that this host takes; try again", maxPuts)
		return
	}
	key := r.PathValue("name")
	if len(key) > maxKeyBytes {
		refuse(w, http.StatusRequestEntityTooLarge, "the key has %d bytes, at most %d are allowed", len(key), maxKeyBytes)
		return
	}
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValueBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "the value has more than %d bytes", tooLarge.Limit)
		return
	} else if err != nil {
		refuse(w, http.StatusBadRequest, "the value did not arrive whole: %v", err)
		return
	}
	if _, bytes, _ := a.store.size(); bytes+int64(len(key)+len(value)) > maxStateBytes {
		refuse(w, http.StatusInsufficientStorage, "keys and values have %d bytes, at most %d are allowed", bytes, maxStateBytes)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	receipt, err := a.group.Propose(ctx, encodePut(key, value))
	var follower *host.NotLeaderError
	switch {
	case err == nil:
		w.Header().Set("Millrace-Index", strconv.FormatUint(receipt.Index, 10))
	case errors.As(err, &follower) && a.http[follower.Leader] != "" && follower.Leader != a.id:
		w.Header().Set("Millrace-Leader", strconv.FormatUint(follower.Leader, 10))
		http.Redirect(w, r, "http://"+a.http[follower.Leader]+r.URL.EscapedPath(), http.StatusTemporaryRedirect)
	case host.MayHaveCommitted(err):
		refuse(w, http.StatusGatewayTimeout, "%v", err)
	default:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "surely not committed: %v", err)
	}
}

// get answers from this host's own state, which may lack the newest values. Millrace-Applied says through
// which index the answer is true: a client that must see its own put compares it with Millrace-Index.
func (a *api) get(w http.ResponseWriter, r *http.Request) {
	value, found, through := a.store.get(r.PathValue("name"))
	w.Header().Set("Millrace-Applied", strconv.FormatUint(through, 10))
	if !found {
		refuse(w, http.StatusNotFound, "no such key through index %d", through)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(value)
}

// status is the answer to GET /status.
type status struct {
	ID, Term, Leader uint64 // Leader 0: not known
	Role             string // leader, follower, candidate or precandidate
	Committed        uint64 // as far as this host knows
	Durable          uint64 // through which index the log is on this host's disk
	Applied          uint64 // index of the last put in the state
	Keys             int
	Bytes            int64 // of keys and values
}

func (a *api) status(w http.ResponseWriter, _ *http.Request) {
	s := a.group.Status()
	answer := status{
		ID: s.ID, Term: s.Term, Leader: s.Leader, Role: strings.ToLower(strings.TrimPrefix(s.Role.String(), "State")), Committed: s.Committed, Durable: s.Durable,
	}
	answer.Keys, answer.Bytes, answer.Applied = a.store.size()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	http.Error(w, fmt.Sprintf(format, args...), code)
}
