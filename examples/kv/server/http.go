package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace"
)

// What clients may ask for. Together the bounds limit the memory of changes under way: about 64 MiB.
const (
	MaxKeyBytes   = 1 << 10
	MaxValueBytes = 1 << 20
	maxChanges    = 64 // at a time
	minTTL        = 100 * time.Millisecond
	maxTTL        = 10_000 * time.Hour
	maxWatchers   = 10_000
)

// api answers HTTP on one host.
type api struct {
	id       uint64
	node     *millrace.Node[Command, Result]
	store    Store
	pages    http.Handler  // of package ops
	redirect bool          // changes go to the leader by a redirect, and are not forwarded
	timeout  time.Duration // for a request, from its arrival to its answer
	changes  chan struct{} // holds a token for each change under way
	watchers chan struct{} // and for each client that watches
	serving  context.Context
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /keys/{name}", a.get)
	mux.HandleFunc("PUT /keys/{name}", a.put)
	mux.HandleFunc("DELETE /keys/{name}", a.delete)
	mux.HandleFunc("POST /keys/{name}/add", a.add)
	mux.HandleFunc("GET /changes", a.watch)
	mux.HandleFunc("GET /{$}", a.page)
	mux.HandleFunc("POST /sessions", a.session)
	mux.HandleFunc("GET /status", a.status)
	mux.HandleFunc("GET /members", a.members)
	mux.HandleFunc("POST /members", a.changeMembers)
	mux.HandleFunc("POST /members/token", a.joinToken)
	mux.Handle("GET /explain", a.pages)
	mux.Handle("GET /metrics", a.pages)
	return mux
}

// get answers from this host's state, as new as the query says. ETag is the version of the value. Everything
// through the index in Millrace-Index is in the state.
func (a *api) get(w http.ResponseWriter, r *http.Request) {
	consistency, err := parseConsistency(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.timeout)
	defer cancel()
	var (
		have  Item
		found bool
		at    millrace.ReadAt
	)
	key := r.PathValue("name")
	err = a.node.View(ctx, consistency, func(granted millrace.ReadAt) (err error) {
		have, found, err = a.store.Get(key)
		at = granted
		return err
	})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Millrace-Index", strconv.FormatUint(at.Index, 10))
	if at.Age >= 0 {
		w.Header().Set("Millrace-Age", at.Age.String())
	}
	if !found {
		refuse(w, http.StatusNotFound, "no such key at index %d", at.Index)
		return
	}
	writeItem(w, http.StatusOK, have)
}

// maxLeaseAge and maxLeaseDrift are what consistency=lease stands for: the clocks of two hosts differ in rate
// by less than one part in a hundred.
const (
	maxLeaseAge   = time.Second
	maxLeaseDrift = 0.01
)

// parseConsistency reads the query of a get.
func parseConsistency(r *http.Request) (millrace.Consistency, error) {
	q := r.URL.Query()
	switch word := q.Get("consistency"); word {
	case "", "linearizable":
		return millrace.Linearizable, nil
	case "lease":
		return millrace.Lease(maxLeaseAge, maxLeaseDrift), nil
	case "local":
		return millrace.Local, nil
	case "bounded":
		age, err := time.ParseDuration(q.Get("age"))
		if err != nil || age <= 0 {
			return millrace.Consistency{}, fmt.Errorf("consistency=bounded has age=%.40q, want how old the answer may be, such as age=500ms", q.Get("age"))
		}
		return millrace.Bounded(age), nil
	case "atleast":
		index, err := strconv.ParseUint(q.Get("index"), 10, 64)
		if err != nil {
			return millrace.Consistency{}, fmt.Errorf("consistency=atleast has index=%.40q, want the Millrace-Index of an earlier answer", q.Get("index"))
		}
		return millrace.AtLeast(index), nil
	default:
		return millrace.Consistency{}, fmt.Errorf("consistency=%.40q, want linearizable (the default), lease, bounded with age=500ms, atleast with index=7, or local", word)
	}
}

func writeItem(w http.ResponseWriter, code int, i Item) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", etag(i.Version))
	w.WriteHeader(code)
	_, _ = w.Write(i.Value)
}

func etag(version uint64) string { return `"` + strconv.FormatUint(version, 10) + `"` }

// put sets a key.
func (a *api) put(w http.ResponseWriter, r *http.Request) {
	if !a.admit(w) {
		return
	}
	defer a.release()
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxValueBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "the value has more than %d bytes", tooLarge.Limit)
		return
	} else if err != nil {
		refuse(w, http.StatusBadRequest, "the value did not arrive whole: %v", err)
		return
	}
	c := Command{Op: Put, Value: value}
	if text := r.URL.Query().Get("ttl"); text != "" {
		c.Op = PutFor
		if c.TTL, err = time.ParseDuration(text); err != nil || c.TTL < minTTL || c.TTL > maxTTL {
			refuse(w, http.StatusBadRequest, "ttl=%.40q, want %v to %v, such as ttl=10m", text, minTTL, maxTTL)
			return
		}
	}
	a.change(w, r, c)
}

// delete removes a key.
func (a *api) delete(w http.ResponseWriter, r *http.Request) {
	if !a.admit(w) {
		return
	}
	defer a.release()
	a.change(w, r, Command{Op: Delete})
}

// add adds to a number, and answers with the sum.
func (a *api) add(w http.ResponseWriter, r *http.Request) {
	if !a.admit(w) {
		return
	}
	defer a.release()
	by, err := int64(1), error(nil)
	if text := r.URL.Query().Get("by"); text != "" {
		by, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "by=%.40q, want a number, such as by=-3; default 1", r.URL.Query().Get("by"))
		return
	}
	a.change(w, r, Command{Op: Add, Delta: by})
}

// admit takes a token for a change, or answers that there is none.
func (a *api) admit(w http.ResponseWriter) bool {
	select {
	case a.changes <- struct{}{}:
		return true
	default:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "not applied: %d changes are under way, the most that this host takes", maxChanges)
		return false
	}
}

func (a *api) release() { <-a.changes }

// change proposes a command, and answers with its result.
func (a *api) change(w http.ResponseWriter, r *http.Request, c Command) {
	if c.Key = r.PathValue("name"); len(c.Key) > MaxKeyBytes {
		refuse(w, http.StatusRequestEntityTooLarge, "the key has %d bytes, at most %d are allowed", len(c.Key), MaxKeyBytes)
		return
	}
	var err error
	if c.When, c.Version, err = parseCondition(r); err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	var receipt millrace.Receipt
	options := []millrace.ProposeOption{millrace.WithReceipt(&receipt)}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		mark, err := millrace.ParseSessionMark(key)
		if err != nil {
			refuse(w, http.StatusBadRequest, "Idempotency-Key: %v; POST /sessions draws a session", err)
			return
		}
		options = append(options, millrace.InSession(mark))
	}
	if a.redirect {
		options = append(options, millrace.IfLeader())
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.timeout)
	defer cancel()
	done, err := a.node.Propose(ctx, c, options...)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Millrace-Index", strconv.FormatUint(receipt.Index, 10))
	if receipt.Pos > 0 {
		w.Header().Set("Millrace-Pos", strconv.FormatUint(uint64(receipt.Pos), 10))
	}
	answer(w, done)
}

// answer writes the result of a command.
func answer(w http.ResponseWriter, r Result) {
	have := Item{Value: r.Value, Version: r.Version}
	switch r.Verdict {
	case Done:
		if r.Version == 0 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		writeItem(w, http.StatusOK, have)
	case Mismatch:
		if r.Version == 0 {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		writeItem(w, http.StatusPreconditionFailed, have)
	case Missing:
		refuse(w, http.StatusNotFound, "no such key")
	case NoNumber:
		refuse(w, http.StatusConflict, "the value is no decimal number of 64 bits, or the sum would not be")
	case Full:
		refuse(w, http.StatusInsufficientStorage, "the group would hold more than %d bytes of keys and values; delete some", MaxStateBytes)
	}
}

// parseCondition reads If-Match and If-None-Match.
func parseCondition(r *http.Request) (Condition, uint64, error) {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case match == "" && none == "":
		return Always, 0, nil
	case match == "" && none == "*":
		return IfAbsent, 0, nil
	case match == "":
		return 0, 0, fmt.Errorf("If-None-Match is %.40q, want *: only if the key does not exist", none)
	case none != "":
		return 0, 0, errors.New("If-Match and If-None-Match exclude each other; send one of them")
	}
	version, err := strconv.ParseUint(strings.Trim(match, `"`), 10, 64)
	if err != nil || version == 0 {
		return 0, 0, fmt.Errorf("If-Match is %.40q, want the ETag of an earlier answer", match)
	}
	return IfVersion, version, nil
}

// session draws a session for a client that may send a change more than once.
func (a *api) session(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, a.node.NewSession().ID())
}

// fail answers a request that has failed. Millrace-Outcome is "none" if a change was not applied and never
// will be, and "unknown" if it may be applied, now or later.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var leader *millrace.NotLeaderError
	outcome := "none"
	if millrace.MayHaveCommitted(err) {
		outcome = "unknown"
	}
	w.Header().Set("Millrace-Outcome", outcome)
	switch {
	case errors.As(err, &leader) && leader.ClientAddr != "" && leader.Leader != a.id:
		w.Header().Set("Millrace-Leader", strconv.FormatUint(leader.Leader, 10))
		http.Redirect(w, r, "http://"+leader.ClientAddr+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	case errors.Is(err, millrace.ErrTooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "%v", err)
	case errors.Is(err, millrace.ErrAlreadyApplied):
		refuse(w, http.StatusConflict, "%v", err)
	case errors.Is(err, millrace.ErrSessionExpired):
		refuse(w, http.StatusGone, "%v", err)
	case outcome == "unknown":
		refuse(w, http.StatusGatewayTimeout, "%v", err)
	default: // no leader, no space, no time, or this host is closing
		w.Header().Set("Retry-After", retryAfter(err))
		refuse(w, http.StatusServiceUnavailable, "not applied: %v", err)
	}
}

// retryAfter returns the whole seconds after which a refused request may be sent again.
func retryAfter(err error) string {
	after, _ := millrace.RetryAfter(err) // 0: it does not say
	return strconv.Itoa(max(1, int(math.Ceil(after.Seconds()))))
}

// Status is the answer to GET /status.
type Status struct {
	ID, Term, Leader uint64 // Leader 0: not known
	Role             string // leader, follower, candidate or pre-candidate
	Cluster          string // its number, for hosts that join; readers of JSON round such numbers
	Committed        uint64 // as far as this host knows
	Durable          uint64 // through which index the log is on this host's disk
	Applied          uint64 // index of the last command in the state
	Keys             int
	Bytes            int64 // of keys and values
	// DuplicatesSuppressed counts changes of sessions that came again and were not applied again, since this
	// host was started: what it applies again of its log then counts again.
	DuplicatesSuppressed uint64
}

func (a *api) status(w http.ResponseWriter, _ *http.Request) {
	s := a.node.Status()
	answer := Status{
		ID: s.ID, Term: s.Term, Leader: s.Leader, Role: s.Role.String(),
		Cluster: a.node.Cluster(), Committed: s.Committed, Durable: s.Durable, Applied: s.Applied, DuplicatesSuppressed: s.DuplicatesSuppressed,
	}
	t := a.store.Totals()
	answer.Keys, answer.Bytes = t.Keys, t.Bytes
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	http.Error(w, fmt.Sprintf(format, args...), code)
}
