package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace"
)

// Change is what a store publishes of a command that has changed a key.
type Change struct {
	Key     string
	Version uint64 `json:",omitempty"` // 0: the key was removed
	Value   string `json:",omitempty"` // the beginning of it
}

// maxShownBytes bounds the part of a value in a Change.
const maxShownBytes = 200

// Publish publishes what a command has changed, if it has. Apply calls it, on every member.
func Publish(c *millrace.Command[Command], r Result) {
	if r.Verdict != Done || c.Value.Op == Tick {
		return
	}
	change := Change{Key: c.Value.Key, Version: r.Version}
	if value := c.Value.Value; c.Value.Op == Add {
		change.Value = string(r.Value)
	} else if c.Value.Op != Delete {
		change.Value = string(value[:min(len(value), maxShownBytes)])
	}
	publish(c, change)
}

// PublishExpired publishes that a key has gone by itself.
func PublishExpired(c *millrace.Command[Command], key string) { publish(c, Change{Key: key}) }

func publish(c *millrace.Command[Command], change Change) {
	if b, err := json.Marshal(change); err == nil { // it has only texts and a number
		c.Publish(b)
	}
}

// watch streams what changes from now on as server-sent events, or what has changed behind the event that
// the client names. The id of an event is its bookmark, the same on each host. A browser that has lost its
// host sends the last one as Last-Event-ID, to this host or to another. When what it lacks is not kept any
// more, an event "forgotten" tells from where it goes on; the page reads the keys again.
func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	after := a.node.LastPublication()
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		var err error
		if after, err = millrace.ParseBookmark(id); err != nil {
			refuse(w, http.StatusBadRequest, "%v", err)
			return
		}
	}
	select {
	case a.watchers <- struct{}{}:
		defer func() { <-a.watchers }()
	default:
		refuse(w, http.StatusServiceUnavailable, "%d clients watch already", cap(a.watchers))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(format string, args ...any) error {
		if err := out.SetWriteDeadline(time.Now().Add(a.timeout)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return err
		}
		return out.Flush()
	}
	if send("id: %v\nevent: begin\ndata:\n\n", after) != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.serving, cancel)()
	for p, err := range a.node.Subscribe(ctx, after) {
		if forgotten := (*millrace.ForgottenError)(nil); errors.As(err, &forgotten) {
			_ = send("id: %v\nevent: forgotten\ndata: %v\n\n", forgotten.First, err) // the client comes again
			return
		}
		if err != nil || send("id: %v\ndata: %s\n\n", p.At, p.Data) != nil {
			return
		}
	}
}

// page shows changes as they come.
func (a *api) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprint(w, livePage)
}

const livePage = `<!doctype html>
<title>kv, live</title>
<style>body{font:16px sans-serif;margin:2em}td{padding:.2em 1em;border-bottom:1px solid #ddd}</style>
<h1>Changes</h1>
<p id="state">connecting</p>
<table><tbody id="rows"></tbody></table>
<script>
const rows = document.getElementById("rows"), state = document.getElementById("state")
const events = new EventSource("changes")
events.onopen = () => { state.textContent = "live" }
events.onerror = () => { state.textContent = "reconnecting" }
events.addEventListener("forgotten", e => { state.textContent = e.data })
events.onmessage = e => {
	const change = JSON.parse(e.data), row = document.createElement("tr")
	for (const text of [e.lastEventId, change.Key, change.Version ? change.Value || "" : "(removed)"]) {
		row.appendChild(document.createElement("td")).textContent = text
	}
	rows.prepend(row)
	while (rows.children.length > 100) rows.lastChild.remove()
}
</script>
`
