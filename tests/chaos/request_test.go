//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/tests/history"
)

// What one request of a client is, how it is sent, and what its answer means.

// request is what a client wants to have done.
type request struct {
	method, key, body string
	query             string // consistency of a read
	header            [2]string
}

// answer is what the client knows then.
type answer struct {
	outcome    history.Outcome
	code       int
	body, etag string
	index      uint64 // place in the log, 0 if it is not said
	lost       bool   // the change was applied, and its result is lost
}

// send sends a request, and a change of a session again until it is answered or the load ends.
func (k *client) send(r request) answer {
	if k.session == "" || r.method == http.MethodGet {
		return k.once(r, "")
	}
	k.number++
	id := fmt.Sprintf("%s:%d", k.session, k.number)
	outcome := history.Refused
	for {
		a := k.once(r, id)
		if a.outcome == history.Answered || a.lost {
			return a
		}
		if a.outcome == history.Unknown {
			outcome = history.Unknown
		}
		if k.isOver() {
			return answer{outcome: outcome}
		}
		k.retries.Add(1)
		again := time.NewTimer(time.Duration(1+k.rng.IntN(30)) * time.Millisecond) // not to turn in a circle while no host answers
		select {
		case <-again.C:
		case <-k.done:
		}
		again.Stop()
	}
}

// host is the id of the host to ask: the one that answered last, and one in fifty times any.
func (k *client) host() int {
	ids := k.e.memberIDs()
	if !slices.Contains(ids, k.at) || k.rng.IntN(50) == 0 {
		k.at = ids[k.rng.IntN(len(ids))]
	}
	return k.at
}

// once sends a request to one host. After a failure the client goes to another one.
func (k *client) once(r request, id string) (a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	if id == "" && r.method != http.MethodGet && k.rng.IntN(100) == 0 {
		// A client that gives up early, at any point of the way of its change.
		ctx, cancel = context.WithTimeout(ctx, time.Duration(k.rng.IntN(3000))*time.Microsecond)
		defer cancel()
	}
	if a = k.ask(ctx, k.host(), r, id); a.outcome != history.Answered {
		k.at = 0
	}
	return a
}

// ask sends a request to a host and waits until it answers or ctx ends.
func (k *client) ask(ctx context.Context, host int, r request, id string) answer {
	q, err := http.NewRequestWithContext(ctx, r.method, "http://"+k.e.net.client(host)+"/keys/"+r.key+r.query, strings.NewReader(r.body))
	if err != nil {
		k.e.fail(err)
		return answer{outcome: history.Refused}
	}
	if r.header[0] != "" {
		q.Header.Set(r.header[0], r.header[1])
	}
	if id != "" {
		q.Header.Set("Idempotency-Key", id)
	}
	w, err := k.http.Do(q)
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return answer{outcome: history.Refused} // no host has the request
	} else if err != nil {
		return answer{outcome: history.Unknown}
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	a := answer{outcome: history.Answered, code: w.StatusCode, body: string(body), etag: w.Header.Get("ETag")}
	a.index, _ = strconv.ParseUint(w.Header.Get("Millrace-Index"), 10, 64)
	switch outcome := w.Header.Get("Millrace-Outcome"); {
	case w.StatusCode == http.StatusServiceUnavailable && (outcome == "none" || outcome == "" && strings.HasPrefix(a.body, "not applied")):
		a.outcome = history.Refused
	case w.StatusCode == http.StatusGatewayTimeout && outcome == "unknown", err != nil:
		a.outcome = history.Unknown
	case w.StatusCode == http.StatusConflict && outcome == "unknown" && id != "":
		a.outcome, a.lost = history.Unknown, true
		k.lost.Add(1)
	case outcome != "":
		k.e.fail(fmt.Errorf("%s %s %s: %s (outcome %s): %.200s", r.method, q.URL, id, w.Status, outcome, body))
		a.outcome = history.Unknown
	}
	return a
}
