package bench

import (
	"context"
	"errors"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// Batches returns where one goroutine hands in values. They go to the leader, which is followed.
func (l *Leader) Batches(member func(host int) *host.Group, limit int) load.Batches {
	return &leaderBatches{leader: l, member: member, done: host.NewCompletions(limit), values: make([][]byte, limit)}
}

// leaderBatches implements load.Batches.
type leaderBatches struct {
	leader *Leader
	member func(host int) *host.Group
	done   *host.Completions
	values [][]byte // by tag: of those under way

	again     [][]byte // refused by a host that does not lead
	againTags []uint64
	outcomes  []outcome.Completion
}

// Submit implements load.Batches.
func (b *leaderBatches) Submit(ctx context.Context, values [][]byte, tags []uint64) (taken int, err error) {
	taken, err = b.member(int(b.leader.at.Load())).SubmitMany(values, tags[:len(values)], b.done)
	for i, tag := range tags[:taken] {
		b.values[tag] = values[i]
	}
	if b.done.Space() < len(b.values) && errors.Is(err, outcome.ErrOverloaded) {
		err = nil // those under way make room
	}
	return taken, err
}

// Wait implements load.Batches.
func (b *leaderBatches) Wait(ctx context.Context, reuse []load.Answered) []load.Answered {
	for answers := reuse[:0]; ; {
		select {
		case <-b.done.Ready():
		case <-ctx.Done():
			return nil
		}
		var elsewhere *outcome.NotLeaderError
		b.outcomes = b.done.Take(b.outcomes)
		for _, o := range b.outcomes {
			if errors.As(o.Err, &elsewhere) {
				b.again, b.againTags = append(b.again, b.values[o.Tag]), append(b.againTags, o.Tag)
				continue
			}
			answers = append(answers, load.Answered{Tag: o.Tag, Err: o.Err})
		}
		if len(b.again) > 0 {
			answers = b.repeat(ctx, elsewhere, answers)
		}
		if len(answers) > 0 {
			return answers
		}
	}
}

// repeat hands in again what a host that does not lead has refused.
func (b *leaderBatches) repeat(ctx context.Context, elsewhere *outcome.NotLeaderError, answers []load.Answered) []load.Answered {
	at, taken := int(b.leader.at.Load()), 0
	err := b.leader.follow(ctx, at, b.member(at), elsewhere)
	if err == nil {
		taken, err = b.Submit(ctx, b.again, b.againTags)
	}
	if err == nil {
		err = outcome.ErrOverloaded // of those that are left
	}
	for _, tag := range b.againTags[taken:] {
		answers = append(answers, load.Answered{Tag: tag, Err: err})
	}
	b.again, b.againTags = b.again[:0], b.againTags[:0]
	return answers
}
