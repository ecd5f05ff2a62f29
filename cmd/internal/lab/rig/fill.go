package rig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
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

// Strand makes a leading member append n values that no other member gets, because nothing that it sends
// arrives. What is then in its log must be replaced later. It needs Hold and Setup.SingleEntries before. It
// returns when they are in the member's log.
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

// Diverge makes the logs of two members end with n values each that contradict each other, in several terms
// each. Elections leave such logs if the two members have won in turn, each with the vote of a third, and
// the leaders reached no other member. The second has the last term, so that it can lead and the first
// cannot. Diverge writes the values into the logs while all hosts are closed, as killed ones, and opens
// these again, the first cut off (Hold).
func (c *Cluster) Diverge(ctx context.Context, first, second, n, terms, valueBytes int) (last uint64, err error) {
	term := c.Term()
	last = term + 2*uint64(terms)
	if err := c.OnEach(c.every(), (*Member).Kill); err != nil {
		return 0, err
	}
	source := load.NewSource(valueBytes, uint64(n))
	for i, m := range c.members {
		err := m.inLog(func(log host.Log) error {
			group := log.Group(1)
			hard := group.HardState()
			hard.Term, hard.Vote = last, c.members[second].ID
			if i != first && i != second {
				return log.Append([]wal.Write{{Group: 1, HardState: hard}})
			}
			client, page := c.ledger.Open()
			next, odd := group.LastIndex()+1, term+2
			if i == first {
				odd = term + 1
			}
			var entries []raftpb.Entry
			for e := range n {
				entries = append(entries, raftpb.Entry{
					Index: next + uint64(e), Term: odd + 2*uint64(e*terms/n), Data: source.Value(load.ValueID{Client: client, Seq: page.Send()}),
				})
			}
			for chunk := range slices.Chunk(entries, maxDiverged) {
				if err := log.Append([]wal.Write{{Group: 1, HardState: hard, Entries: chunk}}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("host %d: %w", m.ID, err)
		}
	}
	for i := range c.members {
		c.network.refuse(i, false)
	}
	c.Hold(first, true)
	// The others come last: before, nothing can be elected.
	order := append([]int{first, second}, slices.DeleteFunc(c.every(), func(i int) bool { return i == first || i == second })...)
	for _, i := range order {
		if err := c.members[i].Open(ctx); err != nil {
			return 0, err
		}
	}
	return last, nil
}

// maxDiverged is how many entries Diverge writes at a time.
const maxDiverged = 1000

// inLog calls f with the log of a host that is closed, and makes durable what f appends.
func (m *Member) inLog(f func(host.Log) error) error {
	real := env.Real()
	open := m.openLog()
	if open == nil {
		open = host.OpenWAL
	}
	log, err := open(host.LogConfig{FS: m.files(), Dir: filepath.Join(m.cluster.dir(int(m.ID-1)), "log"), Owner: m.ID, Mode: m.cluster.setup.Durability, Scheduler: real.Scheduler, Clock: real.Clock})
	if err != nil {
		return err
	}
	err = f(log)
	if err == nil {
		err = log.Sync()
	}
	return errors.Join(err, log.Close())
}

// every returns all members.
func (c *Cluster) every() (all []int) {
	for i := range c.members {
		all = append(all, i)
	}
	return all
}

// OnEach calls f for some members at once.
func (c *Cluster) OnEach(which []int, f func(*Member) error) error {
	errs := make([]error, len(which))
	var wg sync.WaitGroup
	for k, i := range which {
		wg.Go(func() { errs[k] = f(c.members[i]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Rejections returns how many appends a member has rejected in this life, because its log lacks or
// contradicts what is before them: a leader's probes. One that is repeated, as a heartbeat makes a leader do,
// counts once.
func (c *Cluster) Rejections(i int) uint64 { return c.network.rejections[i].n.Load() }

// rejections counts those of one host.
type rejections struct{ n, last atomic.Uint64 }

func (r *rejections) count(index uint64) {
	if r.last.Swap(index) != index {
		r.n.Add(1)
	}
}

func (r *rejections) reset() {
	r.n.Store(0)
	r.last.Store(0)
}

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

func countRejections(batch []transport.Envelope, count *rejections) {
	for i := range batch {
		if m := &batch[i].Message; m.Type == raftpb.MsgAppResp && m.Reject {
			count.count(m.Index)
		}
	}
}

var _, _ host.Transport = fixedAddresses{}, foreignAddresses{}
