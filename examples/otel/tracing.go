// Package tracing makes spans of OpenTelemetry of what happens to a command. It is an example to copy, in a
// module of its own: the library uses no tracing library. What it needs from the library are the times of a
// receipt (millrace.WithReceipt).
//
//	result, err := tracing.Propose(ctx, tracer, node, command)
package tracing

import (
	"context"
	"time"

	"github.com/millrace/millrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Propose is node.Propose with a span, which has a child for each step of the command:
//
//	millrace.queue      from its arrival on the leader to the turn that put it into the log
//	millrace.replicate  from there to the commit: disks and network, side by side
//	millrace.apply      from the commit to the state machine, on this host
//
// Of a command that was forwarded this host knows the commit and the end only, so it has no span of the first
// two. A command without a receipt has no children.
func Propose[C, R any](ctx context.Context, tracer trace.Tracer, node *millrace.Node[C, R], command C, options ...millrace.ProposeOption) (result R, err error) {
	ctx, span := tracer.Start(ctx, "millrace.propose", trace.WithSpanKind(trace.SpanKindInternal))
	defer span.End()
	var receipt millrace.Receipt
	result, err = node.Propose(ctx, command, append(options[:len(options):len(options)], millrace.WithReceipt(&receipt))...)
	now := clock{time.Now(), node.Group().Now()}
	span.SetAttributes(attribute.Int64("millrace.member", int64(node.Status().ID)), attribute.String("millrace.outcome", outcome(err)))
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	if receipt.Index == 0 {
		return result, err
	}
	span.SetAttributes(attribute.Int64("millrace.index", int64(receipt.Index)), attribute.Int64("millrace.term", int64(receipt.Term)))
	if receipt.By != 0 {
		span.SetAttributes(attribute.Int64("millrace.quorum_by", int64(receipt.By)))
	}
	if receipt.Replicated != 0 {
		span.AddEvent("millrace.sent", trace.WithTimestamp(now.at(receipt.Replicated)))
	}
	for _, step := range []struct {
		name     string
		from, to time.Duration
	}{
		{"millrace.queue", receipt.Queued, receipt.Appended},
		{"millrace.replicate", receipt.Appended, receipt.Committed},
		{"millrace.apply", receipt.Committed, receipt.Applied},
	} {
		if step.from == 0 || step.to == 0 { // not known
			continue
		}
		_, child := tracer.Start(ctx, step.name, trace.WithTimestamp(now.at(step.from)))
		child.End(trace.WithTimestamp(now.at(step.to)))
	}
	return result, err
}

// outcome is one of the three that a command has.
func outcome(err error) string {
	switch {
	case err == nil:
		return "applied"
	case millrace.MayHaveCommitted(err):
		return "unknown"
	}
	return "none"
}

// clock is one moment, on the wall and on the clock of a host.
type clock struct {
	wall time.Time
	host time.Duration
}

// at returns when something was, whose time on the host's clock is d.
func (c clock) at(d time.Duration) time.Time { return c.wall.Add(d - c.host) }
