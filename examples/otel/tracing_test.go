package tracing

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// sum is a state machine.
type sum struct {
	mu    sync.Mutex
	value int64
}

func (s *sum) Apply(batch []millrace.Command[int64], results []int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range batch {
		s.value += c.Value
		results[i] = s.value
	}
	return nil
}

func (s *sum) Snapshot() (millrace.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshot(s.value), nil
}

func (s *sum) Restore(_ context.Context, r io.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := fmt.Fscan(r, &s.value)
	return err
}

type snapshot int64

func (s snapshot) WriteTo(_ context.Context, w io.Writer) error {
	_, err := fmt.Fprint(w, int64(s))
	return err
}

func (snapshot) Close() error { return nil }

// The spans of a command on the leader: one for the whole, and its steps within it, one after the other.
// Forwarded from a follower it has the last step only. One that is refused has none, and is an error.
func TestSpans(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	defer func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) }()
	tracer := provider.Tracer("test")
	c := millracetest.New(t, 3, func(uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&sum{}, millrace.JSON[int64]())
	})
	leader := c.Leader(t.Context())
	spans := func(id uint64, options ...millrace.ProposeOption) (all map[string]tracetest.SpanStub, err error) {
		exporter.Reset()
		_, err = Propose(t.Context(), tracer, c.Node(id), 1, options...)
		all = map[string]tracetest.SpanStub{}
		for _, s := range exporter.GetSpans() {
			all[s.Name] = s
		}
		return all, err
	}
	all, err := spans(leader)
	if err != nil || len(all) != 4 {
		t.Fatalf("%d spans, %v", len(all), err)
	}
	whole := all["millrace.propose"]
	if valueOf(whole, "millrace.outcome") != "applied" || valueOf(whole, "millrace.index") == "" || valueOf(whole, "millrace.quorum_by") == "" || len(whole.Events) != 1 {
		t.Errorf("%+v", whole)
	}
	at := whole.StartTime
	for _, name := range []string{"millrace.queue", "millrace.replicate", "millrace.apply"} {
		s := all[name]
		// Two clocks are read one after the other, so a child may seem to begin a little early.
		if s.Parent.SpanID() != whole.SpanContext.SpanID() || s.StartTime.Before(at.Add(-time.Millisecond)) || s.EndTime.Before(s.StartTime) || s.EndTime.After(whole.EndTime.Add(time.Millisecond)) {
			t.Errorf("%s: from %v to %v, within %v to %v", name, s.StartTime, s.EndTime, whole.StartTime, whole.EndTime)
		}
		at = s.StartTime
	}

	all, err = spans(leader%3 + 1)
	if _, steps := all["millrace.queue"]; err != nil || steps || valueOf(all["millrace.propose"], "millrace.outcome") != "applied" {
		t.Errorf("forwarded: %v, %v", all, err)
	}
	all, err = spans(leader%3+1, millrace.IfLeader())
	if whole := all["millrace.propose"]; err == nil || len(all) != 1 || valueOf(whole, "millrace.outcome") != "none" || whole.Status.Description != err.Error() {
		t.Errorf("refused: %+v, %v", whole, err)
	}
}

func valueOf(s tracetest.SpanStub, name string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}
