package millrace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/counting"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
)

type counter = counting.Counter

func quiet() millrace.Option {
	return millrace.WithHostOptions(host.WithLogger(slog.New(slog.DiscardHandler)))
}

func alone(t testing.TB) millrace.Config {
	return millrace.Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}}
}

// open opens a node of one member, and closes it when the test ends.
func open[C, R any](t testing.TB, c millrace.Config, m millrace.Machine[C, R], o ...millrace.Option) *millrace.Node[C, R] {
	t.Helper()
	n, err := millrace.Open(t.Context(), c, m, append(o, quiet())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// trio is three nodes in one process.
type trio[C, R any] struct {
	net   *loopback.Network
	nodes []*millrace.Node[C, R]
}

// three opens three nodes with disks in memory, and closes them when the test ends. change changes the
// configuration of each.
func three[C, R any](t testing.TB, machine func(id uint64) millrace.Machine[C, R], change ...func(*millrace.Config)) *trio[C, R] {
	t.Helper()
	c := &trio[C, R]{net: loopback.NewNetwork()}
	disk := crashfs.New()
	disk.SetCapacity(1 << 40)
	for id := uint64(1); id <= 3; id++ {
		config := millrace.Config{
			ID:                id,
			Dir:               fmt.Sprint("/data/", id),
			Members:           map[uint64]string{1: "one", 2: "two", 3: "three"},
			HeartbeatInterval: 10 * time.Millisecond,
		}
		for _, f := range change {
			f(&config)
		}
		tr := c.net.Host(id)
		for peer := range config.Members {
			if peer != id {
				tr.SetPeer(peer, "")
			}
		}
		c.nodes = append(c.nodes, open(t, config, machine(id), millrace.WithTransport(tr), millrace.WithHostOptions(host.WithFS(disk.Mount()))))
	}
	return c
}

// leader returns the node that leads, and the other two.
func (c *trio[C, R]) leader(t testing.TB) (leader *millrace.Node[C, R], followers []*millrace.Node[C, R]) {
	t.Helper()
	l, err := c.nodes[0].WaitLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range c.nodes {
		if uint64(i+1) == l.ID {
			leader = n
		} else {
			followers = append(followers, n)
		}
	}
	return leader, followers
}

// isolate cuts a node off, or ends that.
func (c *trio[C, R]) isolate(n *millrace.Node[C, R], cut bool) {
	change := c.net.Heal
	if cut {
		change = c.net.Cut
	}
	for id := uint64(1); id <= 3; id++ {
		if self := n.Status().ID; id != self {
			change(self, id)
			change(id, self)
		}
	}
}

// A node that is opened again has the state that it had: in a new directory and in an old one the call is the
// same.
func TestProposeReturnsTheResult(t *testing.T) {
	c := alone(t)
	want := int64(0)
	for range 3 {
		n, err := millrace.Open(t.Context(), c, millrace.InMemory(&counter{}, millrace.Binary[int64]()), quiet())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.WaitLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range int64(100) {
			var r millrace.Receipt
			got, err := n.Propose(t.Context(), i, millrace.WithReceipt(&r))
			if err != nil {
				t.Fatal(err)
			}
			if want += i; got != want {
				t.Fatalf("the result of adding %d is %d, want %d", i, got, want)
			}
			if r.Index == 0 || r.Term == 0 {
				t.Fatalf("the receipt is %+v", r)
			}
		}
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Propose(t.Context(), 1); !errors.Is(err, millrace.ErrStopped) {
			t.Fatalf("Propose after Close: %v, want ErrStopped", err)
		}
	}
}

// A read that begins after a write was acknowledged sees it, with each consistency that promises so, on every
// member, in View and in ViewExclusive.
func TestReadsSeeWhatWasAcknowledged(t *testing.T) {
	sums := map[uint64]*watched{}
	c := three(t, func(id uint64) millrace.Machine[int64, int64] {
		sums[id] = &watched{}
		return millrace.InMemory(sums[id], millrace.Binary[int64]())
	}, func(c *millrace.Config) { c.Leases = true })
	leader, _ := c.leader(t)
	for i := range 50 {
		var r millrace.Receipt
		want, err := leader.Propose(t.Context(), 1, millrace.WithReceipt(&r))
		if err != nil {
			t.Fatal(err)
		}
		for j, n := range c.nodes {
			sum := sums[uint64(j+1)]
			for name, c := range map[string]millrace.Consistency{
				"linearizable": millrace.Linearizable, "zero": {}, "lease": millrace.Lease(0, 0.01), "at least": millrace.AtLeast(r.Index),
			} {
				if err := n.View(t.Context(), c, func(at millrace.ReadAt) error {
					if got := sum.seen.Load(); got < want || at.Index < r.Index {
						t.Errorf("write %d: View with %s on member %d: sum %d at %+v, want %d at %d", i, name, j+1, got, at, want, r.Index)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
				if err := n.ViewExclusive(t.Context(), c, func() error {
					if sum.N < want {
						t.Errorf("write %d: ViewExclusive with %s on member %d: sum %d, want %d", i, name, j+1, sum.N, want)
					}
					return io.ErrNoProgress
				}); err != io.ErrNoProgress {
					t.Errorf("Do returned %v, want the error of its function", err)
				}
			}
			if at, err := n.Read(t.Context(), millrace.Linearizable); err != nil || at.Index < r.Index || at.Age != 0 {
				t.Errorf("Read on member %d: %+v, %v", j+1, at, err)
			}
			if at, err := n.Read(t.Context(), millrace.Bounded(time.Hour)); err != nil || at.Age < 0 || at.Age > time.Hour {
				t.Errorf("a bounded Read on member %d: %+v, %v", j+1, at, err)
			}
			if at, err := n.Read(t.Context(), millrace.Local); err != nil || at.Age != millrace.AgeUnknown || at.Index < r.Index {
				t.Errorf("a local Read on member %d: %+v, %v", j+1, at, err)
			}
			if err := n.WaitApplied(t.Context(), r.Index); err != nil {
				t.Error(err)
			}
		}
	}
}

// watched is a counter that may be read while it is applied.
type watched struct {
	counter
	seen atomic.Int64
}

func (w *watched) Apply(batch []millrace.Command[int64], results []int64) error {
	defer func() { w.seen.Store(w.N) }()
	return w.counter.Apply(batch, results)
}

// Reads whose parameters make no sense, or whose context has ended, say so. The function is not called.
func TestReadsThatCannotBe(t *testing.T) {
	config := alone(t)
	config.Leases = true
	n := open(t, config, millrace.InMemory(&counter{}, millrace.Binary[int64]()))
	lead(t, n)
	for want, c := range map[string]millrace.Consistency{
		"millrace: Lease with maxDrift 1, want a part of 1 from 0 to less than 1, such as 0.01": millrace.Lease(0, 1),
		"millrace: Lease with maxAge -1ns, want at least 0":                                     millrace.Lease(-1, 0),
		"millrace: Bounded with maxAge 0s, want more than 0; a read of age 0 is Linearizable":   millrace.Bounded(0),
	} {
		never := func() error { t.Errorf("the function was called although %q", want); return nil }
		if err := n.View(t.Context(), c, func(millrace.ReadAt) error { return never() }); err == nil || err.Error() != want {
			t.Errorf("View: %v, want %s", err, want)
		}
		if err := n.ViewExclusive(t.Context(), c, never); err == nil || err.Error() != want {
			t.Errorf("ViewExclusive: %v, want %s", err, want)
		}
	}
	if _, err := n.Read(t.Context(), millrace.Lease(0, 0.01)); err == nil {
		t.Error("Read took a lease")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []millrace.Consistency{millrace.Linearizable, millrace.AtLeast(1 << 40), millrace.Local} {
		if _, err := n.Read(ended, c); !errors.Is(err, context.Canceled) {
			t.Errorf("Read with an ended context: %v", err)
		}
	}
	for _, c := range []millrace.Consistency{millrace.Linearizable, millrace.Lease(0, 0.01), millrace.Bounded(time.Second), millrace.AtLeast(1), millrace.Local} {
		never := func() error { t.Error("the function was called although the context had ended"); return nil }
		if _, err := n.Read(t.Context(), millrace.Linearizable); err != nil { // brings a lease
			t.Fatal(err)
		}
		if err := n.View(ended, c, func(millrace.ReadAt) error { return never() }); !errors.Is(err, context.Canceled) {
			t.Errorf("View with an ended context: %v", err)
		}
		if err := n.ViewExclusive(ended, c, never); !errors.Is(err, context.Canceled) {
			t.Errorf("Do with an ended context: %v", err)
		}
	}
}

// skewed is a boot clock that a test moves.
type skewed struct {
	env.Clock
	by atomic.Int64
}

func (s *skewed) Boottime() time.Duration { return s.Clock.Boottime() + time.Duration(s.by.Load()) }

// A lease that has ended while the function ran is not good enough: View and ViewExclusive read again, from
// the quorum. One that holds is read once.
func TestLeaseIsCheckedAfterTheRead(t *testing.T) {
	clock := &skewed{Clock: env.Real().Clock}
	e := env.Real()
	e.Clock = clock
	c := alone(t)
	c.Leases = true
	n := open(t, c, millrace.InMemory(&counter{}, millrace.Binary[int64]()), millrace.WithHostOptions(host.WithEnv(e)))
	lead(t, n)
	do := func(f func() error) error { return n.ViewExclusive(t.Context(), millrace.Lease(0, 0.01), f) }
	view := func(f func() error) error {
		return n.View(t.Context(), millrace.Lease(0, 0.01), func(millrace.ReadAt) error { return f() })
	}
	// under returns how often a read calls its function, which began under a lease.
	under := func(read func(func() error) error, f func()) (calls int) {
		for {
			if _, err := n.Read(t.Context(), millrace.Linearizable); err != nil { // brings a lease
				t.Fatal(err)
			}
			missed := n.Metrics().Reads.LeaseMissed
			began := missed
			calls = 0
			if err := read(func() error {
				if calls++; calls == 1 {
					began = n.Metrics().Reads.LeaseMissed
				}
				f()
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if began == missed { // otherwise the machine was slow, and the lease had ended before
				return calls
			}
		}
	}
	for name, read := range map[string]func(func() error) error{"View": view, "ViewExclusive": do} {
		if calls := under(read, func() { clock.by.Add(int64(time.Hour)) }); calls != 2 {
			t.Errorf("%s whose lease ended meanwhile called its function %d times, want 2", name, calls)
		}
		if calls := under(read, func() {}); calls != 1 {
			t.Errorf("%s under a lease called its function %d times, want once", name, calls)
		}
	}
}

// On new directories the first leader is there, and takes commands, within 50 ms of the last member's coming,
// although the election timeout is a second: no member waits for it. The time is virtual.
func TestFirstLeaderComesAtOnce(t *testing.T) {
	for _, apart := range []time.Duration{0, 30 * time.Millisecond, 10 * time.Second} {
		t.Run(apart.String(), func(t *testing.T) { firstLeader(t, apart) })
	}
}

func firstLeader(t *testing.T, apart time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		net := loopback.NewNetwork()
		members := map[uint64]string{1: "one", 2: "two", 3: "three"}
		var nodes []*millrace.Node[int64, int64]
		for id := range uint64(3) {
			<-time.After(apart) // of virtual time: members come one by one
			tr := net.Host(id + 1)
			for peer := range members {
				if peer != id+1 {
					tr.SetPeer(peer, "")
				}
			}
			n, err := millrace.Open(t.Context(), millrace.Config{ID: id + 1, Dir: "/data", Members: members}, millrace.InMemory(&counter{}, millrace.Binary[int64]()),
				millrace.WithTransport(tr), quiet(), millrace.WithHostOptions(host.WithFS(crashfs.New().Mount())))
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
		began := time.Now()
		for _, n := range nodes {
			if _, err := n.Propose(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("commands were taken on all members %v after the last one came, want within 50 ms", took)
		}
		for _, n := range nodes {
			if err := n.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Validate explains every setting that it refuses, and accepts the rest.
func TestConfigIsExplained(t *testing.T) {
	files := &millrace.TLS{CertFile: "cert.pem", KeyFile: "key.pem", CAFile: "ca.pem"}
	good := millrace.Config{ID: 1, Dir: "d", Members: map[uint64]string{1: "127.0.0.1:7001", 2: "[::1]:7001", 3: "localhost:7003"}}
	for _, c := range []struct {
		change func(*millrace.Config)
		want   string // part of the sentence; "": accepted
	}{
		{func(c *millrace.Config) {}, ""},
		{func(c *millrace.Config) { c.Listen = ":0" }, ""},
		{func(c *millrace.Config) { c.Members = map[uint64]string{1: "127.0.0.1:0"} }, ""},
		{func(c *millrace.Config) { c.Members[2], c.Insecure = "10.0.0.2:1", true }, ""},
		{func(c *millrace.Config) { c.Members[2], c.TLS = "10.0.0.2:1", files }, ""},
		{func(c *millrace.Config) { c.TLS = &millrace.TLS{KeyFile: "k"} }, "Config.TLS.CertFile is empty; TLS needs CertFile, KeyFile and CAFile"},
		{func(c *millrace.Config) { c.TLS, c.Insecure = files, true }, "Config.TLS and Config.Insecure are both set"},
		{func(c *millrace.Config) { c.ID = 0 }, "Config.ID is 0; give each member a different id, starting at 1"},
		{func(c *millrace.Config) { c.ID = 4 }, "Config.Members has no entry for this host, id 4; it has [1 2 3]"},
		{func(c *millrace.Config) { c.Dir = "" }, "Config.Dir is empty"},
		{func(c *millrace.Config) { c.Members = nil }, "Config.Members is empty"},
		{func(c *millrace.Config) { c.Members[2] = "10.0.0.2:1" }, "gives 2 the address \"10.0.0.2:1\", which is not a loopback address"},
		{func(c *millrace.Config) { c.Members[2] = "example.org:1" }, "set Config.TLS (millrace cert makes certificates), or set Config.Insecure if"},
		{func(c *millrace.Config) { c.Listen = "0.0.0.0:7001" }, "Config.Listen is \"0.0.0.0:7001\", which is not a loopback address"},
		{func(c *millrace.Config) { c.Members[2] = "127.0.0.1" }, "gives 2 the address \"127.0.0.1\": want host:port"},
		{func(c *millrace.Config) { c.Members[2] = "127.0.0.1:x" }, "where port is a number from 0 to 65535"},
		{func(c *millrace.Config) { c.Members[2] = "127.0.0.1:0" }, "other hosts cannot dial port 0"},
		{func(c *millrace.Config) { c.Members[2] = ":7002" }, "which other hosts cannot dial"},
		{func(c *millrace.Config) { c.Members[2] = "127.0.0.1:7001" }, "gives 1 and 2 the same address"},
		{func(c *millrace.Config) { c.Listen = "7001" }, "Config.Listen is \"7001\": want host:port"},
		{func(c *millrace.Config) { c.ClientAddrs = map[uint64]string{4: "x"} }, "Config.ClientAddrs has an entry for 4"},
		{func(c *millrace.Config) { c.HeartbeatInterval = 1 }, "Config.HeartbeatInterval is 1ns, want at least 1ms"},
		{func(c *millrace.Config) { c.ElectionTimeout = 150 * time.Millisecond }, "Config.ElectionTimeout is 150ms, want at least two heartbeat intervals (200ms)"},
		{func(c *millrace.Config) { c.StallTimeout = time.Millisecond }, "Config.StallTimeout is 1ms, want at least the election timeout (1s)"},
		{func(c *millrace.Config) { c.MemoryBytes = 1 }, "Config.MemoryBytes is 1, want at least"},
		{func(c *millrace.Config) { c.Members[0] = "127.0.0.1:7004" }, "Config.Members names host 0, which is a reserved id"},
		{func(c *millrace.Config) { c.MaxCommandBytes = 1 << 30 }, "MaxCommandBytes of group 1 is 1073741824, want 1 to 16777024"},
		{func(c *millrace.Config) { c.MaxCommandBytes, c.MemoryBytes = 4000, 64<<10 }, "MaxCommandBytes of group 1 is 4000, want 1 to 3904"},
		{func(c *millrace.Config) { c.MaxCommandBytes = -1 }, "Config.MaxCommandBytes is -1, want at least 1"},
	} {
		config := good
		config.Members = maps.Clone(good.Members)
		c.change(&config)
		err := config.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("have %v, want %q", err, c.want)
		}
		if c.want != "" {
			if _, err := millrace.Open(t.Context(), config, millrace.InMemory(&counter{}, millrace.Binary[int64]()), quiet()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want %q", err, c.want)
			}
		}
	}
}

// What cannot be opened for the sake of its machine says so.
func TestMachinesThatCannotBe(t *testing.T) {
	type unfit struct{ F func() }
	type hidden struct{ n int64 }
	_ = hidden{}.n // a field that no encoding sees
	for want, open := range map[string]func(millrace.Config) error{
		"the machine has no state machine; make it with InMemory or Durable": func(c millrace.Config) error {
			_, err := millrace.Open(t.Context(), c, millrace.Machine[int64, int64]{})
			return err
		},
		"the machine has no codec for its commands": func(c millrace.Config) error {
			_, err := millrace.Open(t.Context(), c, millrace.InMemory[int64, int64](&counter{}, nil))
			return err
		},
		"the machine has no codec for its results": func(c millrace.Config) error {
			_, err := millrace.Open(t.Context(), c, millrace.InMemory(&counter{}, millrace.Binary[int64]()).Results(nil))
			return err
		},
		"Binary[millrace_test.unfit]: the type has neither UnmarshalBinary with AppendBinary or MarshalBinary, nor a fixed size": func(c millrace.Config) error {
			_, err := millrace.Open(t.Context(), c, millrace.InMemory[unfit, int64](&nilMachine[unfit]{}, millrace.Binary[unfit]()))
			return err
		},
		"Binary[millrace_test.hidden]: encoding/binary cannot set the unexported fields of the type": func(c millrace.Config) error {
			_, err := millrace.Open(t.Context(), c, millrace.InMemory[hidden, int64](&nilMachine[hidden]{}, millrace.Binary[hidden]()))
			return err
		},
		"JSON[millrace_test.hidden]: the type has no exported field": func(c millrace.Config) error {
			_, err := millrace.Open(t.Context(), c, millrace.InMemory[hidden, int64](&nilMachine[hidden]{}, millrace.JSON[hidden]()))
			return err
		},
		"OpenGroup needs a host": func(millrace.Config) error {
			_, err := millrace.OpenGroup(t.Context(), nil, millrace.GroupConfig{ID: 1}, millrace.InMemory(&counter{}, millrace.Binary[int64]()))
			return err
		},
		"option 0 of Open is nil": func(c millrace.Config) error {
			given := &closing{Transport: loopback.NewNetwork().Host(1)}
			_, err := millrace.Open(t.Context(), c, millrace.InMemory(&counter{}, millrace.Binary[int64]()), nil, millrace.WithTransport(given))
			if !given.closed {
				t.Error("a transport that was given to Open is not closed")
			}
			return err
		},
		"the disk is on fire": func(c millrace.Config) error {
			_, err := millrace.Open(t.Context(), c, millrace.Durable(&kept{err: errors.New("the disk is on fire")}, millrace.Binary[int64]()), quiet())
			return err
		},
	} {
		if err := open(alone(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want %q", err, want)
		}
	}
}

// closing is a transport that notes that it was closed.
type closing struct {
	host.Transport
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return c.Transport.Close()
}

type nilMachine[C any] struct{ counter }

func (*nilMachine[C]) Apply([]millrace.Command[C], []int64) error { return nil }

// kept is a machine that is durable, as it outlives its node.
type kept struct {
	counter
	index uint64
	err   error
}

func (k *kept) Apply(batch []millrace.Command[int64], results []int64) error {
	k.index = batch[len(batch)-1].Index
	return k.counter.Apply(batch, results)
}

func (k *kept) Applied() (uint64, error) { return k.index, k.err }
func (k *kept) Sync() error              { return nil }

// A durable machine gets only the commands that it lacks; one in memory gets all of them again.
func TestDurableMachineIsNotFedTwice(t *testing.T) {
	c, machine := alone(t), &kept{}
	for life := range int64(4) {
		n, err := millrace.Open(t.Context(), c, millrace.Durable(machine, millrace.Binary[int64]()), quiet())
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(10) {
			if sum, err := n.Propose(t.Context(), 1); err != nil || sum != 10*life+i+1 {
				t.Fatalf("life %d: %d, %v, want %d", life, sum, err, 10*life+i+1)
			}
		}
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fresh := open(t, c, millrace.InMemory(&counter{}, millrace.Binary[int64]()))
	if sum, err := fresh.Propose(t.Context(), 0); err != nil || sum != 40 {
		t.Errorf("a machine in memory has %d, %v, want 40", sum, err)
	}
}

// A codec returns what it was given, refuses what it did not write, and keeps no part of the bytes that it
// decodes.
func TestCodecs(t *testing.T) {
	type point struct{ X, Y int32 }
	roundTrip(t, millrace.Bytes(), []byte("some bytes"), true)
	roundTrip(t, millrace.BytesInPlace(), []byte("some bytes"), false)
	roundTrip(t, millrace.JSON[map[string]json.RawMessage](), map[string]json.RawMessage{"a": []byte(`"b"`)}, true)
	roundTrip(t, millrace.Binary[int64](), int64(-5), true)
	roundTrip(t, millrace.Binary[point](), point{1, -2}, true)
	roundTrip(t, millrace.Binary[netip.Addr](), netip.MustParseAddr("10.0.0.1"), true)
	roundTrip(t, millrace.Binary[time.Time](), time.Date(2026, 11, 22, 1, 2, 3, 4, time.UTC), true)
	roundTrip(t, millrace.Binary[url.URL](), url.URL{Scheme: "https", Host: "example.org"}, true)
	if v, err := millrace.Binary[point]().Decode(make([]byte, 7)); err == nil || err.Error() != "it has 7 bytes, a millrace_test.point has 8" {
		t.Errorf("a point of 7 bytes: %v, %v", v, err)
	}
	if v, err := millrace.JSON[int]().Decode([]byte("x")); err == nil {
		t.Errorf("JSON decodes x as %v", v)
	}
	n := open(t, alone(t), millrace.InMemory[any, int64](&nilMachine[any]{}, millrace.JSON[any]()))
	if _, err := n.Propose(t.Context(), func() {}); err == nil || millrace.MayHaveCommitted(err) || !strings.Contains(err.Error(), "not proposed: the codec cannot encode the command: json: unsupported type") {
		t.Errorf("a command that cannot be encoded: %v", err)
	}
}

// Open closes a transport that it was given, also if it refuses the configuration or the machine.
func TestOpenClosesItsTransport(t *testing.T) {
	for _, machine := range []millrace.Machine[int64, int64]{{}, millrace.InMemory(&counter{}, millrace.Binary[int64]())} {
		tr := &closes{Transport: loopback.NewNetwork().Host(1)}
		if _, err := millrace.Open(t.Context(), millrace.Config{}, machine, millrace.WithTransport(tr)); err == nil || tr.closed != 1 {
			t.Errorf("closed %d times: %v", tr.closed, err)
		}
	}
}

type closes struct {
	host.Transport
	closed int
}

func (c *closes) Close() error { c.closed++; return c.Transport.Close() }

// A durable machine that panics in Applied is an error of Open that names it, and leaves nothing open: the
// next Open takes the directory.
func TestPanicInAppliedLeavesNothingOpen(t *testing.T) {
	c := alone(t)
	_, err := millrace.Open(t.Context(), c, millrace.Durable(&panics{}, millrace.Binary[int64]()), quiet())
	if err == nil || !strings.Contains(err.Error(), "Applied") || !strings.Contains(err.Error(), "as the test says") {
		t.Errorf("Open returns %v", err)
	}
	open(t, c, millrace.Durable(&kept{}, millrace.Binary[int64]()))
}

type panics struct{ kept }

func (*panics) Applied() (uint64, error) { panic("as the test says") }

// A codec that returns its encoding alone, without dst, is refused, whatever the size of the command: the
// header of the command would be put over its first bytes.
func TestCodecThatDoesNotAppend(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Codec[[]byte](alonely{millrace.Bytes()})))
	for _, size := range []int{0, 1, host.CallRoom, 1000} {
		_, err := n.Propose(t.Context(), make([]byte, size))
		if err == nil || millrace.MayHaveCommitted(err) || !strings.Contains(err.Error(), "it must return dst with the encoding appended") {
			t.Errorf("a command of %d bytes: %v", size, err)
		}
	}
	if applied := n.Status().Applied; n.Err() != nil || applied > 4 {
		t.Errorf("applied %d, %v", applied, n.Err())
	}
}

type alonely struct{ millrace.Codec[[]byte] }

func (alonely) Append(_, v []byte) ([]byte, error) { return bytes.Clone(v), nil }

// JSON takes types that say themselves how they are written, and those that have nothing to lose.
func TestJSONOfTypesWithoutFields(t *testing.T) {
	roundTrip(t, millrace.JSON[struct{}](), struct{}{}, true)
	roundTrip(t, millrace.JSON[netip.Addr](), netip.MustParseAddr("10.0.0.1"), true)
	roundTrip(t, millrace.JSON[time.Time](), time.Date(2026, 11, 22, 1, 2, 3, 4, time.UTC), true)
}

func roundTrip[T any](t *testing.T, c millrace.Codec[T], v T, copies bool) {
	t.Helper()
	b, err := c.Append([]byte("before"), v)
	if err != nil || !bytes.HasPrefix(b, []byte("before")) {
		t.Fatalf("%v: %q, %v", v, b, err)
	}
	b = b[len("before"):]
	got, err := c.Decode(b)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%v: decoded as %v, %v", v, got, err)
	}
	clear(b)
	if kept := reflect.DeepEqual(got, v); kept != copies {
		t.Errorf("%v: after the bytes have changed it is %v", v, got)
	}
}

// A result whose encoding has no bytes is kept like any other.
func TestEmptyResultIsKept(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory[int64, int64](&nilMachine[int64]{}, millrace.Binary[int64]()).Results(nothing{}))
	session := n.NewSession().ID()
	for range 2 {
		if _, err := n.Propose(t.Context(), 1, millrace.InSession(millrace.SessionMark{Session: session, Number: 1})); err != nil {
			t.Error(err)
		}
	}
	if _, err := n.Propose(t.Context(), 1, millrace.InSession(millrace.SessionMark{})); err == nil || millrace.MayHaveCommitted(err) {
		t.Errorf("a session that was never drawn: %v", err)
	}
}

type nothing struct{}

func (nothing) Append(dst []byte, _ int64) ([]byte, error) { return dst, nil }
func (nothing) Decode([]byte) (int64, error)               { return 0, nil }

// A command is applied once, whichever members are asked and however often it is sent. A duplicate gets the
// first result, because the machine keeps results.
func TestCommandsCountOnce(t *testing.T) {
	c := three(t, func(uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&counter{}, millrace.Binary[int64]()).Results(millrace.Binary[int64]())
	})
	session := c.nodes[0].NewSession().ID()
	var all sync.WaitGroup
	var sums [3][20]int64
	for i, n := range c.nodes {
		all.Go(func() {
			for j := range uint64(20) {
				sum, err := n.Propose(t.Context(), 1, millrace.InSession(millrace.SessionMark{Session: session, Number: j + 1, Low: 1}))
				if err != nil {
					t.Error(err)
				}
				sums[i][j] = sum
			}
		})
		all.Go(func() {
			for range 20 {
				if _, err := n.Propose(t.Context(), 1000); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if sums[0] != sums[1] || sums[0] != sums[2] {
		t.Errorf("members gave other results for the same commands: %v", sums)
	}
	if sum, err := c.nodes[1].Propose(t.Context(), 0); err != nil || sum != 20+60*1000 {
		t.Errorf("the sum is %d, %v, want 60020", sum, err)
	}
}

// What is around a node: the log has what was proposed, the leadership can be moved, metrics count, and a
// healthy node has nothing to explain.
func TestAroundANode(t *testing.T) {
	c := three(t, func(uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&counter{}, millrace.Binary[int64]())
	})
	var want []int64
	for i := range int64(20) {
		if _, err := c.nodes[i%3].Propose(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		want = append(want, i)
	}
	if _, err := c.nodes[0].Read(t.Context(), millrace.Linearizable); err != nil {
		t.Fatal(err)
	}
	var got []int64
	last, seen := uint64(0), map[[2]any]bool{}
	for command, err := range c.nodes[0].Log(t.Context(), 1, 0) {
		if err != nil || command.Index <= last {
			t.Fatalf("%+v after %d, %v", command, last, err)
		}
		last = command.Index
		if place := [2]any{command.Session, command.Number}; command.Number > 0 && seen[place] {
			continue // sent twice
		} else {
			seen[place] = true
		}
		got = append(got, command.Value)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
	for _, err := range c.nodes[0].Log(t.Context(), 1, 1<<40) {
		if err == nil {
			t.Error("the log has entries that do not exist")
		}
	}
	leader, followers := c.leader(t)
	to := followers[0].Status().ID
	err := leader.TransferLeadership(t.Context(), to)
	for range 20 { // on a busy machine the new leader may need more than the election timeout that it is given
		if err == nil {
			break
		}
		t.Log(err)
		leader, followers = c.leader(t)
		to = followers[0].Status().ID
		err = leader.TransferLeadership(t.Context(), to)
	}
	if err != nil {
		t.Fatal(err)
	}
	if l, err := leader.WaitLeader(t.Context()); err != nil || l.ID != to {
		t.Errorf("%+v leads, %v, want %d", l, err, to)
	}
	for i, n := range c.nodes {
		if err := n.WaitApplied(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		for _, cause := range n.Explain().Causes { // that the machine of the test is busy is a warning
			t.Errorf("node %d: %v", i+1, cause)
		}
		for n.Metrics().Applied < last { // the metrics are those of the end of its last turn
			runtime.Gosched()
		}
	}
}
