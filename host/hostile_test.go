package host

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/transport/tcp"
)

// TestHostile gives the certificate, the key and the directory of one of five members to a program that does
// what it likes (hostilePeer), over the real transport with TLS. Whatever it does, the four honest members go
// on, keep what they have acknowledged, and hold bounded memory. Each attack runs by itself, under load.
//
//	go test ./host -run TestHostile$ -hostile-rounds 10
//
// measures, too: each attack beside rounds without it, in turns, and the 99th percentile of the clients must
// be at most twice as long. The default asserts no time.

var (
	hostileRounds = flag.Int("hostile-rounds", 0, "measure each attack of TestHostile in this many rounds")
	hostileRound  = flag.Duration("hostile-round", time.Second, "the length of a round")
)

// attack is what a hostile peer does until the context ends.
type attack struct {
	name string
	run  func(*fortress, context.Context)
}

var attacks = []attack{
	{"harmless lies", func(f *fortress, ctx context.Context) { f.tellLies(ctx, harmless) }},
	{"replayed frames", (*fortress).replay},
	{"wrong frames", (*fortress).breakFrames},
	{"one byte at a time", (*fortress).writeSlowly},
	{"bodies without an end", (*fortress).endNothing},
	{"reading nothing", (*fortress).readNothing},
	{"wrong hellos", (*fortress).lieInHellos},
	{"strangers of other clusters", (*fortress).comeAsStrangers},
	{"many connections", (*fortress).connectOften},
	{"silent connections", (*fortress).keepSilent},
	{"hosts that do not exist", (*fortress).inventHosts},
}

// maxHeapGrowth is what one peer may make four hosts hold, in one process: a body of each kind that has
// begun and not ended, in memory that has grown by doubling, and what waits to be sent to the peer.
const maxHeapGrowth = 4 * (2*3*hostileBodyBytes + 32<<20)

// hostileBodyBytes is the size of the bodies without an end. Each may have transport.DefaultFrameBytes.
const hostileBodyBytes = 8 << 20

func TestHostile(t *testing.T) {
	f := newFortress(t)
	calm := f.heap()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			if *hostileRounds > 0 {
				f.measure(t, a)
				return
			}
			var grown int64
			f.besiege(t, a, 300*time.Millisecond, func() { grown = f.heap() - calm })
			t.Logf("the heap has grown by %d KiB while it was attacked, by %d KiB since", grown>>10, (f.heap()-calm)>>10)
			if grown > maxHeapGrowth {
				t.Errorf("the heap has grown by %d bytes, want at most %d", grown, int64(maxHeapGrowth))
			}
		})
	}
	f.finish()
}

// TestHostileUnsettles is the same with what a voter can do by the nature of Raft: as long as it lasts, terms
// and leaders change. When it ends, the group goes on, and has lost nothing.
func TestHostileUnsettles(t *testing.T) {
	f := newFortress(t)
	f.besiege(t, attack{"lies that unsettle", func(f *fortress, ctx context.Context) { f.tellLies(ctx, unsettles) }}, time.Second, func() {})
	f.finish()
}

// fortress is four honest hosts, what their clients have been promised, and a hostile peer.
type fortress struct {
	t        *testing.T
	hosts    []*Host
	journal  []*safeCommands
	peer     *hostilePeer
	stranger tls.Certificate // of another CA
	seed     uint64

	mu     sync.Mutex
	acked  []string
	clocks []time.Duration  // of commands since the last call of latencies
	pools  map[uint64][]lie // by host
	stop   context.CancelFunc
	work   sync.WaitGroup
	next   atomic.Int64
}

// safeCommands is a state machine that keeps all commands.
type safeCommands struct {
	mu   sync.Mutex
	have []string
}

func (c *safeCommands) Apply(entries []statemachine.Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		if len(e.Data) > 0 {
			c.have = append(c.have, string(e.Data))
		}
	}
	return nil
}

func (c *safeCommands) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.have)
}

const (
	hostileClients = 4
	hostilePace    = 5 * time.Millisecond
)

func newFortress(t *testing.T) *fortress {
	f := &fortress{t: t, seed: rand.Uint64()}
	t.Logf("seed %d", f.seed)
	ca := testCA(t, "ours")
	peers := map[uint64]string{}
	for id := uint64(1); id <= 5; id++ {
		peers[id] = fmt.Sprintf("127.0.0.1:%d", id)
	}
	var all []*Host
	var last *cert.Credentials
	for id := uint64(1); id <= 5; id++ {
		files := tlsFiles(t, ca, id, time.Hour)
		c := Config{ID: id, Dir: scratch.Dir(t), Members: peers, Listen: "127.0.0.1:0", TLS: files, HeartbeatInterval: 50 * time.Millisecond, SegmentBytes: 1 << 20, MemoryBytes: 64 << 20}
		m := &safeCommands{}
		h, err := openOne(c, m, WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close(context.Background()) })
		all, f.journal = append(all, h), append(f.journal, m)
		if last, err = files.load(); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range all {
		for i, other := range all {
			h.network.transport.(*tcp.Transport).SetPeer(uint64(i+1), other.Addr())
		}
	}
	proposeSecured(t, all)
	for _, h := range all { // the last one is founded, too, and is known to all
		for !h.Group(theGroup).Founding().Founded {
			runtime.Gosched()
		}
	}
	if err := all[4].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.hosts, f.journal = all[:4], f.journal[:4]
	f.peer = newHostilePeer(t, all[4], last, f.hosts)
	theirs, err := tlsFiles(t, testCA(t, "theirs"), 5, time.Hour).load()
	if err != nil {
		t.Fatal(err)
	}
	f.stranger = theirs.Certificate
	proposeSecured(t, f.hosts)
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	t.Cleanup(stop)
	for range hostileClients {
		f.work.Go(func() { f.client(ctx) })
	}
	f.progress("before any attack")
	return f
}

// waitFor waits for some time, and reports whether the context has not ended.
func waitFor(ctx context.Context, long time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(long):
		return true
	}
}

// client proposes a command every few milliseconds, at the leader. A load that takes the whole machine would
// measure what the attacker's own work takes from it. The time of a command counts from when it was due.
func (f *fortress) client(ctx context.Context) {
	for began := time.Now(); ctx.Err() == nil; began = began.Add(hostilePace) {
		if !waitFor(ctx, time.Until(began)) {
			return
		}
		command := fmt.Sprintf("command %d", f.next.Add(1))
		for tries := 0; ctx.Err() == nil; tries++ {
			g := f.leader(tries)
			once, done := context.WithTimeout(ctx, 5*time.Second)
			_, err := g.Propose(once, []byte(command))
			done()
			if err == nil {
				f.mu.Lock()
				f.acked, f.clocks = append(f.acked, command), append(f.clocks, time.Since(began))
				f.mu.Unlock()
				break
			}
			if errors.Is(err, outcome.ErrIndeterminate) {
				break
			}
			runtime.Gosched()
		}
	}
}

func (f *fortress) leader(tries int) *Group {
	for _, h := range f.hosts {
		if g := h.Group(theGroup); g.Status().Leader == h.config.ID {
			return g
		}
	}
	return f.hosts[tries%len(f.hosts)].Group(theGroup)
}

// progress waits until more commands are acknowledged, and checks that no host has stopped.
func (f *fortress) progress(when string) {
	f.t.Helper()
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.acked)
	}
	from, end := count(), time.Now().Add(time.Minute)
	for count() < from+20 {
		if time.Now().After(end) {
			f.t.Fatalf("%s: nothing is committed: %s", when, f.describe())
		}
		waitFor(context.Background(), time.Millisecond)
	}
	for _, h := range f.hosts {
		if err := h.Group(theGroup).Err(); err != nil {
			f.t.Fatalf("%s: host %d has stopped: %v", when, h.config.ID, err)
		}
	}
}

func (f *fortress) describe() string {
	var b strings.Builder
	for _, h := range f.hosts {
		fmt.Fprintf(&b, "%+v %v; ", h.Group(theGroup).Status(), h.Group(theGroup).Err())
	}
	return b.String()
}

// besiege attacks for some time, and calls atEnd while it still goes on.
func (f *fortress) besiege(t *testing.T, a attack, long time.Duration, atEnd func()) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), long)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.run(f, ctx)
	}()
	<-ctx.Done()
	atEnd()
	<-done
	f.peer.setReads(true) // and every connection ends
	f.progress("after " + a.name)
}

func (f *fortress) heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(m.HeapAlloc) - 250*int64(len(f.acked)) // what the test itself keeps of each command
}

// latencies returns how long commands took since the last call, in order.
func (f *fortress) latencies() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.clocks
	f.clocks = nil
	slices.Sort(all)
	return all
}

// measure compares rounds of an attack with rounds without it.
func (f *fortress) measure(t *testing.T, a attack) {
	round := func(with bool) time.Duration {
		f.latencies()
		var all []time.Duration
		if with {
			f.besiege(t, a, *hostileRound, func() { all = f.latencies() })
		} else {
			waitFor(context.Background(), *hostileRound)
			all = f.latencies()
		}
		if len(all) == 0 {
			t.Fatalf("no command in %v: %s", *hostileRound, f.describe())
		}
		return all[len(all)*99/100]
	}
	var ratios []float64
	round(true) // what the attacker makes before its first attack does not count
	for range *hostileRounds {
		calm := round(false)
		hostile := round(true)
		ratios = append(ratios, float64(hostile)/float64(calm))
		t.Logf("p99 %v without, %v with: x%.2f", calm.Round(10*time.Microsecond), hostile.Round(10*time.Microsecond), ratios[len(ratios)-1])
	}
	slices.Sort(ratios)
	if median := ratios[len(ratios)/2]; median > 2 {
		t.Errorf("p99 is %.2f times as long, in the median of %d rounds, want at most 2", median, len(ratios))
	} else {
		t.Logf("median x%.2f", median)
	}
}

// finish checks that the honest hosts have the same commands, and all that were acknowledged.
func (f *fortress) finish() {
	f.t.Helper()
	f.stop()
	f.work.Wait()
	leader := f.leader(0)
	want := leader.Status().LastIndex
	for end := time.Now().Add(time.Minute); ; waitFor(context.Background(), time.Millisecond) {
		level := 0
		for _, h := range f.hosts {
			if h.Group(theGroup).Status().Applied >= want {
				level++
			}
		}
		if level == len(f.hosts) {
			break
		}
		if time.Now().After(end) {
			f.t.Fatalf("the hosts do not become level: %s", f.describe())
		}
	}
	all := f.journal[0].all()
	has := map[string]bool{}
	for _, command := range all {
		has[command] = true
	}
	for i, m := range f.journal[1:] {
		have := m.all()
		if n := min(len(have), len(all)); !slices.Equal(have[:n], all[:n]) {
			f.t.Errorf("hosts 1 and %d have applied different commands", i+2)
		}
	}
	for _, command := range f.acked {
		if !has[command] {
			f.t.Errorf("%s was acknowledged, and is lost", command)
		}
	}
	f.t.Logf("%d commands were acknowledged", len(f.acked))
}
