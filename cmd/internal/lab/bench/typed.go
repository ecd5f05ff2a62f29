package bench

import (
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
)

// typed is the cluster behind the typed face: commands and results have types, and a client is answered when
// the leader's machine has given the result. What it costs more than cluster is the face.
type typed struct {
	*cluster
	nodes []*millrace.Node[[]byte, uint64]
}

func openTyped(ctx context.Context, s load.Setup) (load.Target, error) {
	t := &typed{cluster: &cluster{}}
	return t, t.open(ctx, s, pipeline.Async{}, 1, func(h *host.Host, id uint64, m *load.Machine) (*host.Group, error) {
		n, err := millrace.OpenGroup(ctx, h, host.GroupConfig{ID: id}, millrace.InMemory(typedMachine{m}, millrace.BytesInPlace()))
		if err != nil {
			return nil, err
		}
		t.nodes = append(t.nodes, n)
		return n.Group(), nil
	})
}

// typedMachine is a Machine as millrace.StateMachine. A result is the index of its command.
type typedMachine struct{ m *load.Machine }

func (t typedMachine) Apply(batch []millrace.Command[[]byte], results []uint64) error {
	for i := range batch {
		t.m.ApplyAt(batch[i].Index, batch[i].Pos, batch[i].Value)
		results[i] = batch[i].Index
	}
	return nil
}

var errNoSnapshots = errors.New("the machine of bench has no snapshots")

func (typedMachine) Snapshot() (millrace.Snapshot, error)     { return nil, errNoSnapshots }
func (typedMachine) Restore(context.Context, io.Reader) error { return errNoSnapshots }

// Propose implements load.Target. A member that does not lead forwards the command.
func (t *typed) Propose(ctx context.Context, value []byte) error {
	_, err := t.nodes[t.leaders[0].at.Load()].Propose(ctx, value)
	return err
}

// Copies implements load.Copier: a codec copies the value, where the API of bytes keeps it.
func (t *typed) Copies() bool { return true }

// Batches implements load.Batcher.
func (t *typed) Batches(limit int) load.Batches {
	return &typedBatches{of: t, done: millrace.NewCompletions[uint64](limit)}
}

// typedBatches implements load.Batches.
type typedBatches struct {
	of       *typed
	done     *millrace.Completions[uint64]
	outcomes []millrace.Completion[uint64]
}

// Submit implements load.Batches.
func (b *typedBatches) Submit(_ context.Context, values [][]byte, tags []uint64) (taken int, err error) {
	taken, err = b.of.nodes[b.of.leaders[0].at.Load()].SubmitMany(values, tags[:len(values)], b.done)
	if taken > 0 && errors.Is(err, outcome.ErrOverloaded) {
		err = nil // those under way make room
	}
	return taken, err
}

// Wait implements load.Batches.
func (b *typedBatches) Wait(ctx context.Context, reuse []load.Answered) []load.Answered {
	select {
	case <-b.done.Ready():
	case <-ctx.Done():
		return nil
	}
	b.outcomes = b.done.Take(b.outcomes)
	for reuse = reuse[:0]; len(reuse) < len(b.outcomes); {
		o := &b.outcomes[len(reuse)]
		reuse = append(reuse, load.Answered{Tag: o.Tag, Err: o.Err})
	}
	return reuse
}
