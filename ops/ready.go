package ops

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
)

// A node is alive while a start of the process would help nothing, and ready while it answers requests well.
// The two must not be mixed: a process that is killed because its peers are away makes the outage longer.

// parseQuery is Request.URL.Query with its error.
func parseQuery(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query of %s cannot be read: %w", r.URL.Path, err)
	}
	return q, nil
}

func (h *Handler) livez(w http.ResponseWriter, _ *http.Request) {
	if err := h.node.Err(); err != nil && !h.stopping.Load() {
		refuse(w, http.StatusServiceUnavailable, "the group has stopped here: %v", err)
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// check is one condition of being ready. The reason is empty if it is met.
type check struct{ name, reason string }

// checks are the conditions, in the order in which a node meets them after its start.
func (h *Handler) checks() []check {
	s, c := h.node.Status(), []check{{name: "not-stopping"}, {name: "group"}, {name: "machine"}, {name: "founded"}, {name: "leader"}, {name: "authority"}, {name: "caught-up"}}
	if h.stopping.Load() {
		c[0].reason = "the process is stopping"
	}
	if err := h.node.Err(); err != nil {
		c[1].reason = fmt.Sprintf("the group has stopped here: %v", err)
	}
	if err := h.node.Halted(); err != nil {
		c[2].reason = err.Error()
	}
	if f := h.node.Group().Founding(); !f.Founded {
		c[3].reason = "the group is not founded; /explain says for whom it waits"
	}
	if s.Leader == 0 {
		c[4].reason = "no leader is known; an election takes up to two election timeouts, then /explain says why"
	}
	if s.WithoutAuthority {
		c[5].reason = "this member may lack what it has acknowledged, until it has caught up"
	}
	c[6].reason = h.caughtUp.reason(s)
	if h.options.Ready != nil {
		program := check{name: "program"}
		if err := h.options.Ready(); err != nil {
			program.reason = err.Error()
		}
		c = append(c, program)
	}
	return c
}

func (h *Handler) readyz(w http.ResponseWriter, r *http.Request) {
	var page strings.Builder
	reasons := 0
	for _, c := range h.checks() {
		switch {
		case c.reason == "":
			fmt.Fprintf(&page, "%s: ok\n", c.name)
		default:
			reasons++
			fmt.Fprintf(&page, "%s: %s\n", c.name, c.reason)
		}
	}
	code, verdict := http.StatusOK, "ready"
	if reasons > 0 {
		code, verdict = http.StatusServiceUnavailable, "not ready"
	}
	if reasons > 0 || r.URL.Query().Has("verbose") {
		verdict = page.String() + verdict
	}
	writeText(w, code, verdict)
}

// catchUp finds out whether a node has caught up since its start. It has when a linearizable read has ended
// here: the state has everything that was acknowledged before the read began. Later a node may be behind for
// a moment, which is no reason to send its clients away.
type catchUp struct {
	group *host.Group

	mu   sync.Mutex
	read *host.Read // under way; nil: none was begun
	done bool
}

// reason returns why the node has not caught up, or nothing. It never waits: it looks at the read of an
// earlier call, and begins another one if that has failed.
func (c *catchUp) reason(s millrace.Status) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failed error
	if c.read != nil && !c.done {
		_, ended, err := c.read.Poll()
		if c.done = ended && err == nil; ended && err != nil {
			c.read, failed = nil, err
		}
	}
	if c.read == nil {
		c.read = new(host.Read)
		c.group.StartRead(c.read, 0)
	}
	switch {
	case c.done:
		return ""
	case failed != nil:
		return fmt.Sprintf("no read could be confirmed since the start: %v", failed)
	}
	return fmt.Sprintf("this member has not applied what was acknowledged before its start; applied %d, committed %d as far as it knows", s.Applied, s.Committed)
}
