package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// Members are members that run already, as the place where a session's points are measured. Each point is a
// load of its own on them.
type Members struct{ *Cluster }

// In implements experiment.Elsewhere. The setup is that of the members. An error names the members
// that do not answer.
func (m Members) In(ctx context.Context, _ string, _ rig.Setup, f func(experiment.Abroad) error) error {
	r, err := m.Begin(ctx)
	if err == nil {
		err = f(r)
	}
	return m.explain(ctx, err)
}

const echoBytes = 1 << 10

// MeasureRoundTrips sends 1 KiB to and fro over the connection to each member, for about length altogether,
// and notes it as the network of that member.
func (c *Cluster) MeasureRoundTrips(ctx context.Context, length time.Duration) error {
	for i, l := range c.links {
		h := hdrhistogram.New(100, int64(time.Minute), 3)
		request := MemberRequest(KindEcho, 0, make([]byte, echoBytes)...)
		for start := time.Now(); h.TotalCount() == 0 || time.Since(start) < length/time.Duration(len(c.links)); {
			began := time.Now()
			if _, _, err := l.ask(ctx, request); err != nil {
				return fmt.Errorf("member %d at %s: %w", i+1, l.addr, err)
			}
			_ = h.RecordValue(int64(min(time.Since(began), time.Minute))) // cannot fail within the bounds
		}
		c.hellos[i].Environment.Network = &archive.Network{
			Path: l.addr, RoundTrips: int(h.TotalCount()), RTTP50Us: float64(h.ValueAtPercentile(50)) / 1e3, RTTP99Us: float64(h.ValueAtPercentile(99)) / 1e3,
		}
	}
	return nil
}

var _ experiment.Elsewhere = Members{}
