package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// fillers is how many writes of Fill are under way at once.
const fillers = 64

// Fill writes n values of some size to the first group, outside a load. They are in the ledger.
func (c *Cluster) Fill(ctx context.Context, n, valueBytes int) error {
	source := load.NewSource(valueBytes, uint64(n))
	var wg sync.WaitGroup
	errs := make([]error, min(fillers, n))
	for i := range errs {
		client, page := c.ledger.Open()
		share := n / len(errs)
		if i < n%len(errs) {
			share++
		}
		wg.Go(func() {
			for range share {
				seq := page.Send()
				if errs[i] = c.Propose(ctx, source.Value(load.ValueID{Client: client, Seq: seq})); errs[i] != nil {
					return
				}
				page.Acknowledge(seq)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Strand makes a member that leads append n values that no other member gets, because nothing that it sends
// arrives: what is then in its log must be replaced later. It needs Hold before. It returns when they are
// in the member's log.
func (c *Cluster) Strand(ctx context.Context, i, n, valueBytes int) error {
	group := c.members[i].Group(0)
	client, page := c.ledger.Open()
	source := load.NewSource(valueBytes, uint64(n))
	want := group.Status().LastIndex + uint64(n)
	for range n {
		if _, err := group.Submit(source.Value(load.ValueID{Client: client, Seq: page.Send()})); err != nil {
			return fmt.Errorf("host %d: %w", i+1, err)
		}
	}
	return Until(ctx, "the stranded values are in the log", func() (bool, error) { return group.Status().LastIndex >= want, group.Err() })
}

// Rejections returns how many appends a member has rejected in this life, because its log lacks or
// contradicts what is before them: a leader's probes.
func (c *Cluster) Rejections(i int) uint64 { return c.network.rejections[i].Load() }

// Send counts what the host rejects, and sends.
func (t fixedAddresses) Send(to uint64, batch []transport.Envelope) bool {
	countRejections(batch, t.rejections)
	return t.Transport.Send(to, batch)
}

// Send does the same.
func (t foreignAddresses) Send(to uint64, batch []transport.Envelope) bool {
	countRejections(batch, t.rejections)
	return t.Peered.Send(to, batch)
}

// Review implements transport.Reviewer, if the transport does.
func (t foreignAddresses) Review(id uint64) {
	if r, ok := t.Peered.(transport.Reviewer); ok {
		r.Review(id)
	}
}

func countRejections(batch []transport.Envelope, count *atomic.Uint64) {
	for i := range batch {
		if m := &batch[i].Message; m.Type == raftpb.MsgAppResp && m.Reject {
			count.Add(1)
		}
	}
}

var _, _ host.Transport = fixedAddresses{}, foreignAddresses{}
