package recipe

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// found collects how long clients took, and how many attempts.
type found struct {
	latency *load.Latencies
	n, sum  uint64
	most    uint64

	search, elected time.Duration // sums; 0: not measured
}

func newFound() *found { return &found{latency: load.NewLatencies()} }

func (f *found) add(took time.Duration, attempts uint64) {
	f.latency.Record(took)
	f.n, f.sum, f.most = f.n+1, f.sum+attempts, max(f.most, attempts)
}

// save keeps what was collected, also if err cut the trials short: the repeat is marked partial then. It
// returns err, or its own error.
func (f *found) save(s *experiment.Session, name string, began time.Time, err error) error {
	if f.n == 0 {
		return err
	}
	figures := map[string]float64{
		attempts.Name: report.Ratio(float64(f.sum), float64(f.n)), maxAttempts.Name: float64(f.most), archive.Ops.Name: float64(f.n),
		archive.MeanUs.Name: report.Micros(f.latency.Mean()), archive.P50Us.Name: report.Micros(f.latency.Quantile(0.5)),
		archive.P99Us.Name: report.Micros(f.latency.Quantile(0.99)), archive.MaxUs.Name: report.Micros(f.latency.Max()),
	}
	for m, sum := range map[string]time.Duration{searchMean.Name: f.search, electedMean.Name: f.elected} {
		if sum > 0 {
			figures[m] = report.Ratio(report.Micros(sum), float64(f.n))
		}
	}
	return errors.Join(err, s.Add(name, labelled(three(), "async", "client", name), repeatOf(s, began, err != nil, figures)))
}

// deadAddress is an address at which nothing listens.
func deadAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// addresses returns the addresses of the dead hosts that a client knows.
func (cold b1Cold) addresses() (dead []string, err error) {
	for range cold.dead {
		addr, err := deadAddress()
		if err != nil {
			return nil, err
		}
		dead = append(dead, addr)
	}
	return dead, nil
}

// coldClients makes one client after the other, each with one write. Clients that know one host know another
// one each time.
func coldClients(ctx context.Context, s *experiment.Session, of *service, cold b1Cold, n int) error {
	began, f := time.Now(), newFound()
	source := load.NewSource(b2Value, s.Seed)
	dead, err := cold.addresses()
	if err != nil {
		return err
	}
	id, page := of.Ledger().Open()
	for i := 0; i < n && err == nil; i++ {
		o := remote.ClientOptions{Seed: s.Seed + uint64(i), IgnoreHints: !cold.hints}
		if cold.seeds > 0 {
			o.Seeds = append(o.Seeds, of.addrs[i%len(of.addrs)])
		}
		start := time.Now()
		c := of.newClient(o, dead...)
		seq := page.Send()
		if err = c.Propose(ctx, source.Value(load.ValueID{Client: id, Seq: seq})); err == nil {
			page.Acknowledge(seq)
			f.add(time.Since(start), c.Attempts())
		}
		err = errors.Join(err, c.Close())
	}
	return f.save(s, cold.name, began, err)
}

// coldProcesses starts one process after the other, each with one write.
func coldProcesses(ctx context.Context, s *run, of *service, cold b1Cold, n int) error {
	began, f := time.Now(), newFound()
	dead, err := cold.addresses()
	if err != nil {
		return err
	}
	id, page := of.Ledger().Open()
	for i := 0; i < n && err == nil; i++ {
		s.step(cold.name, 50*time.Millisecond)
		job := clientJob{Seeds: slices.Clone(of.addrs), ValueBytes: b2Value, Seed: s.Seed + uint64(i)}
		if cold.seeds > 0 {
			job.Seeds = []string{of.addrs[i%len(of.addrs)]}
		}
		job.Seeds = append(job.Seeds, dead...)
		job.ID = load.ValueID{Client: id, Seq: page.Send()}
		var r clientReport
		var took time.Duration
		if r, took, err = runOneWrite(ctx, job); err == nil {
			page.Acknowledge(job.ID.Seq)
			f.add(took, r.Attempts)
			f.search += r.Took
		}
	}
	return f.save(s.Session, cold.name, began, err)
}

// loser is a client that writes and loses its leader, again and again. It has a session, so it asks until
// there is an answer, and what arrived twice takes effect once.
type loser struct {
	*remote.Client
	of     *service
	source *load.Source
	id     uint32
	page   *load.Page
	found  *found
}

// lostLeaders makes a client lose its leader n times.
func lostLeaders(ctx context.Context, s *run, of *service, loss b1Loss, n int) (err error) {
	began := time.Now()
	l := loser{
		Client: of.newClient(remote.ClientOptions{Seed: s.Seed, Sessions: true, AnswerTimeout: b1Answer}),
		of:     of, source: load.NewSource(b2Value, s.Seed), found: newFound(),
	}
	defer l.Close()
	l.id, l.page = of.Ledger().Open()
	for i := 0; i < n && err == nil; i++ {
		s.step(loss.name, time.Second)
		err = l.lose(ctx, loss)
	}
	return l.found.save(s.Session, loss.name, began, err)
}

func (l *loser) write(ctx context.Context) error {
	seq := l.page.Send()
	err := l.Propose(ctx, l.source.Value(load.ValueID{Client: l.id, Seq: seq}))
	if err == nil {
		l.page.Acknowledge(seq)
	}
	return err
}

// lose measures from the loss of the leader to the answer to the next write.
func (l *loser) lose(ctx context.Context, loss b1Loss) error {
	if err := errors.Join(l.of.Settle(ctx), l.write(ctx)); err != nil {
		return err
	}
	old := l.of.Leader(0)
	before, start := l.Attempts(), time.Now()
	if err := loss.begin(ctx, old); err != nil {
		return err
	}
	written := make(chan error, 1)
	var took time.Duration
	go func() {
		err := l.write(ctx)
		took = time.Since(start)
		written <- err
	}()
	elected := poll(ctx, func() bool { now := l.of.Leader(0); return now >= 0 && now != old })
	electedAfter := time.Since(start)
	if err := errors.Join(<-written, elected); err != nil {
		return err
	}
	l.found.add(took, l.Attempts()-before)
	l.found.elected += electedAfter
	if loss.end == nil {
		return nil
	}
	return loss.end(ctx, old)
}
