package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
)

// Large numbers are strings in JSON: many readers round what is above 2^53.

// Explanation is /explain as JSON.
type Explanation struct {
	Host              uint64         `json:"host"`
	Group             uint64         `json:"group"`
	Healthy           bool           `json:"healthy"`
	Role              string         `json:"role"`
	Leader            uint64         `json:"leader"` // 0: not known
	Term              uint64         `json:"term"`
	Applied           uint64         `json:"applied"`
	Committed         uint64         `json:"committed"`
	Durable           uint64         `json:"durable"`
	Last              uint64         `json:"last"`
	LeaderlessSeconds float64        `json:"leaderless_seconds"` // 0: a leader is known
	Causes            []ExplainCause `json:"causes"`
	Warnings          []ExplainCause `json:"warnings"`
}

// ExplainCause is a cause or a warning of an Explanation.
type ExplainCause struct {
	Code         string  `json:"code"`
	Member       uint64  `json:"member,omitempty"` // 0: this host, or the group as a whole
	SinceSeconds float64 `json:"since_seconds"`
	Evidence     string  `json:"evidence"`
	Fix          string  `json:"fix"`
}

func explanation(d millrace.Diagnosis) Explanation {
	s := d.Status
	return Explanation{
		Host: d.Host, Group: d.Group, Healthy: d.Healthy, Role: s.Role.String(), Leader: s.Leader, Term: s.Term,
		Applied: s.Applied, Committed: s.Committed, Durable: s.Durable, Last: s.LastIndex,
		LeaderlessSeconds: d.Leaderless.Seconds(), Causes: causes(d.Causes), Warnings: causes(d.Warnings),
	}
}

func causes(all []diagnosis.Cause) []ExplainCause {
	out := make([]ExplainCause, len(all)) // never null
	for i, c := range all {
		out[i] = ExplainCause{string(c.Code), c.Member, c.Since.Seconds(), c.Evidence, c.Fix}
	}
	return out
}

func (h *Handler) explain(w http.ResponseWriter, r *http.Request) {
	d, code := h.node.Explain(), http.StatusOK
	if !d.Healthy {
		code = http.StatusServiceUnavailable
	}
	if wantsJSON(r, false) {
		writeJSON(w, code, explanation(d))
		return
	}
	writeText(w, code, d.String())
}

// Membership is /members as JSON.
type Membership struct {
	Host      uint64   `json:"host"` // that was asked
	Cluster   string   `json:"cluster"`
	Leader    uint64   `json:"leader"` // 0: not known
	Founded   bool     `json:"founded"`
	Version   uint64   `json:"version"`
	Members   []Member `json:"members"`
	Removed   []uint64 `json:"removed"`
	View      uint64   `json:"view"`      // by whose view members are heard; 0: no leader has told
	Tolerates int      `json:"tolerates"` // how many more voters may fail, by that view
	Plan      string   `json:"plan,omitempty"`
	Waits     string   `json:"waits,omitempty"`
	Tokens    int      `json:"tokens"` // join tokens that were not used
}

// Member is one member of a Membership.
type Member struct {
	ID          uint64 `json:"id"`
	Role        string `json:"role"`
	Heard       bool   `json:"heard"`
	Addr        string `json:"addr"`
	Incarnation string `json:"incarnation"`
}

func (h *Handler) membership() Membership {
	m := h.node.Members()
	out := Membership{
		Host: h.node.Status().ID, Cluster: h.node.Cluster(), Leader: h.node.Status().Leader, Founded: m.Founded, Version: m.Version,
		Members: make([]Member, len(m.All)), Removed: append([]uint64{}, m.Removed...), View: m.View, Tolerates: m.Tolerates,
		Plan: m.Plan, Waits: m.Waits, Tokens: len(m.Tokens),
	}
	for i, one := range m.All {
		out.Members[i] = Member{one.ID, one.Role.String(), one.There, one.Addr, one.Incarnation.String()}
	}
	return out
}

func (h *Handler) members(w http.ResponseWriter, r *http.Request) {
	m := h.membership()
	if wantsJSON(r, true) {
		writeJSON(w, http.StatusOK, m)
		return
	}
	var page strings.Builder
	fmt.Fprintf(&page, "cluster %s, seen from host %d; leader %d (0: not known)\n", m.Cluster, m.Host, m.Leader)
	for _, one := range m.Members {
		heard := "not heard"
		if one.Heard {
			heard = "heard"
		}
		fmt.Fprintf(&page, "%d  %s  %s  %s\n", one.ID, one.Role, heard, one.Addr)
	}
	if m.Plan != "" {
		fmt.Fprintf(&page, "plan under way: %s\nit waits for: %s\n", m.Plan, m.Waits)
	}
	writeText(w, http.StatusOK, page.String())
}

const (
	// confirmTimeout is how long a backup may take to learn what must be in it.
	confirmTimeout = 10 * time.Second
	// stallTimeout is how long a client may take none of a backup.
	stallTimeout = 30 * time.Second
)

// backup streams an archive of everything that was acknowledged before the request; with ?local of what this
// member has applied, for a cluster without a quorum. A backup that fails after its first byte breaks the
// connection off: what the client has is no archive.
func (h *Handler) backup(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "HEAD /backup: want GET; the size is not known before the end")
		return
	}
	select {
	case h.backups <- struct{}{}:
		defer func() { <-h.backups }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusTooManyRequests, "another backup of this host is under way; one is taken at a time")
		return
	}
	if !r.URL.Query().Has("local") {
		if err := h.confirm(r.Context()); err != nil {
			w.Header().Set("Retry-After", "10")
			refuse(w, http.StatusServiceUnavailable, "no quorum has confirmed what the backup must have: %v; /backup?local has what this member has applied", err)
			return
		}
	}
	b := &backupWriter{w: w, control: http.NewResponseController(w), name: fmt.Sprintf("millrace-group-%d-host-%d.archive", h.node.Group().ID(), h.node.Status().ID)}
	_, err := h.node.Export(r.Context(), b)
	switch {
	case err == nil:
		b.begin() // an archive is never empty; this is for a Node of a test
	case !b.begun:
		refuse(w, http.StatusServiceUnavailable, "no backup: %v", err)
	default:
		panic(http.ErrAbortHandler) // net/http breaks the connection off
	}
}

// confirm waits until this member has applied everything that was acknowledged before.
func (h *Handler) confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, confirmTimeout, errors.New("no answer for 10 seconds"))
	defer cancel()
	var read host.Read
	h.node.Group().StartRead(&read, 0)
	_, err := read.Wait(ctx)
	return err
}

// backupWriter writes an archive to a client, which gets stallTimeout for each part.
type backupWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	name    string
	begun   bool
}

func (b *backupWriter) begin() {
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", "application/octet-stream")
		b.w.Header().Set("Content-Disposition", `attachment; filename="`+b.name+`"`)
	}
}

func (b *backupWriter) Write(p []byte) (int, error) {
	b.begin()
	_ = b.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // a writer without deadlines waits as long as its client
	return b.w.Write(p)
}
