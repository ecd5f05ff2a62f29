package api

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace/server/command"
)

// Bounds of automatic compaction.
const (
	revisionInterval = 5 * time.Minute // between compactions by revisions, as in etcd
	samplesOfPeriod  = 10              // revisions that are noted within a period
)

// sample is the revision at a time.
type sample struct {
	at       time.Time
	revision int64
}

// compactAlone compacts as Config.AutoCompaction says, while this member leads.
func (b *Backend) compactAlone(ctx context.Context) {
	a := b.Config.AutoCompaction
	if a.Period <= 0 && a.Revisions <= 0 {
		return
	}
	for led := range b.Node.Led(ctx) {
		interval := revisionInterval
		if a.Period > 0 {
			interval = max(a.Period/samplesOfPeriod, time.Second)
		}
		tick := time.NewTicker(interval)
		var samples []sample
		last := int64(0)
		for led.Err() == nil {
			select {
			case <-tick.C:
			case <-led.Done():
				continue
			}
			now, _ := b.Store.Revision()
			to := now - a.Revisions
			if a.Period > 0 {
				samples = append(samples, sample{time.Now(), now})
				to, samples = before(samples, time.Now().Add(-a.Period))
			}
			if to <= last || to < 1 {
				continue
			}
			cmd, err := command.Compact(&pb.CompactionRequest{Revision: to})
			if err == nil {
				_, err = b.propose(led, cmd)
			}
			b.Logger.Info("compacted by itself", "revision", to, "error", err)
			last = to
		}
		tick.Stop()
	}
}

// before returns the latest revision of before a time, 0 if none, and the samples that are still of use.
func before(samples []sample, t time.Time) (revision int64, rest []sample) {
	for len(samples) > 0 && !samples[0].at.After(t) {
		revision, samples = samples[0].revision, samples[1:]
	}
	return revision, samples
}
