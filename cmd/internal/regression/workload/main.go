//go:build linux

// Command workload is what the regression guard measures: three hosts in one process, over loopback TCP,
// with disks in memory whose fsync takes a fixed time. It answers each line of its input, a slice, with a
// line of what the slice used, and is idle in between. So two versions of Millrace can be alive at once and
// be measured in turn, a fraction of a second each. Whatever else happens on the machine happens to both.
//
// The guard builds it twice, from its own source: once in this tree, and once in the tree of the baseline,
// into which it is laid. It uses exported API of the library only, and little of that, because it must
// compile there. Files and log are in memory: the disk of a busy machine differs more from one second to the
// next than any change of the program.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/vfs"
)

// slice is a line of the input: clients that propose ops commands together, each waiting for its answer.
type slice struct {
	Clients    int `json:"clients"`
	Ops        int `json:"ops"`
	ValueBytes int `json:"value_bytes"`
}

// used is a line of the output: what a slice has used, of all hosts and the clients together.
type used struct {
	Ops      int     `json:"ops"`
	Seconds  float64 `json:"s"`
	CPUUs    float64 `json:"cpu_us"`
	Allocs   uint64  `json:"allocs"`
	Fsyncs   uint64  `json:"fsyncs"`
	MeanUs   float64 `json:"mean_us"`
	Switches int64   `json:"context_switches"`
}

const (
	hosts        = 3
	fsyncTime    = 200 * time.Microsecond
	segmentBytes = 8 << 20
	startTimeout = 30 * time.Second
	groupID      = 1
	maxTries     = 5 // of a slice
	retryAfter   = 50 * time.Millisecond
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := open(ctx)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var s slice
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return err
		}
		u, err := c.measure(s)
		for range maxTries - 1 {
			if err == nil {
				break
			}
			// On a busy machine a leader may stall, and hand over: the slice is made again under the next
			// one.
			leading, cancel := context.WithTimeout(context.Background(), startTimeout)
			err = c.lead(leading)
			cancel()
			if err == nil {
				u, err = c.measure(s)
			}
		}
		if err != nil {
			return err
		}
		if err := answers.Encode(u); err != nil {
			return err
		}
	}
	return lines.Err()
}

// cluster is three hosts with one group, which the first leads as long as it does not stall.
type cluster struct {
	hosts  []*host.Host
	groups []*host.Group
	leader int // index of the host that leads
}

func open(ctx context.Context) (*cluster, error) {
	c := &cluster{}
	quiet := slog.New(slog.DiscardHandler)
	peers := map[uint64]string{}
	var transports []*tcp.Transport
	for id := uint64(1); id <= hosts; id++ {
		t, err := tcp.Listen(tcp.Options{ID: id, Listen: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			return c, err
		}
		transports = append(transports, t)
		peers[id] = t.Addr()
	}
	for i, t := range transports {
		for id, addr := range peers {
			t.SetPeer(id, addr)
		}
		h, err := host.Open(ctx, host.Config{ID: uint64(i + 1), Dir: "/host", Members: peers, SegmentBytes: segmentBytes},
			host.WithTransport(t), host.WithFS(slowFS{vfs.Memory()}), host.WithLogger(quiet))
		if err != nil {
			return c, err
		}
		c.hosts = append(c.hosts, h)
		g, err := h.OpenGroup(ctx, host.GroupConfig{ID: groupID}, &counter{})
		if err != nil {
			return c, err
		}
		c.groups = append(c.groups, g)
	}
	c.groups[0].Campaign()
	return c, c.lead(ctx)
}

// lead finds the leader, and waits until it has applied a command.
func (c *cluster) lead(ctx context.Context) error {
	for {
		known, err := c.groups[0].WaitLeader(ctx)
		if err != nil {
			return err
		}
		c.leader = int(known.ID - 1)
		_, err = c.groups[c.leader].Propose(ctx, []byte("first"))
		var elsewhere *outcome.NotLeaderError
		if !errors.As(err, &elsewhere) && !errors.Is(err, outcome.ErrOverloaded) && !errors.Is(err, outcome.ErrDropped) {
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *cluster) close() error {
	var errs []error
	for _, h := range c.hosts {
		errs = append(errs, h.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// counter is a state machine that counts.
type counter struct{ applied atomic.Uint64 }

// Apply implements host.StateMachine.
func (c *counter) Apply(entries []statemachine.Entry) error {
	c.applied.Add(uint64(len(entries)))
	return nil
}

func (c *cluster) measure(s slice) (used, error) {
	if s.Clients < 1 || s.Ops < s.Clients || s.ValueBytes < 1 {
		return used{}, fmt.Errorf("slice %+v: want at least 1 client, 1 operation for each, and 1 byte", s)
	}
	before, start := c.read(), time.Now()
	var wg sync.WaitGroup
	sums, errs := make([]time.Duration, s.Clients), make([]error, s.Clients)
	each, leader := s.Ops/s.Clients, c.groups[c.leader]
	for i := range s.Clients {
		wg.Go(func() {
			value := make([]byte, s.ValueBytes)
			for range each {
				begin := time.Now()
				if _, errs[i] = leader.Propose(context.Background(), value); errs[i] != nil {
					return
				}
				sums[i] += time.Since(begin)
			}
		})
	}
	wg.Wait()
	elapsed, after := time.Since(start), c.read()
	if err := errors.Join(errs...); err != nil {
		return used{}, err
	}
	var sum time.Duration
	for _, d := range sums {
		sum += d
	}
	ops := each * s.Clients
	return used{
		Ops: ops, Seconds: elapsed.Seconds(), CPUUs: after.CPUUs - before.CPUUs, Allocs: after.Allocs - before.Allocs,
		Fsyncs: after.Fsyncs - before.Fsyncs, Switches: after.Switches - before.Switches,
		MeanUs: float64(sum) / float64(time.Microsecond) / float64(ops),
	}, nil
}

// read returns what was used since the process started.
func (c *cluster) read() used {
	var u used
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) == nil {
		u.CPUUs = float64(r.Utime.Sec+r.Stime.Sec)*1e6 + float64(r.Utime.Usec) + float64(r.Stime.Usec)
		u.Switches = int64(r.Nvcsw + r.Nivcsw)
	}
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			u.Allocs += s.Value.Uint64()
		}
	}
	for _, h := range c.hosts {
		u.Fsyncs += h.LogStats().Syncs
	}
	return u
}
