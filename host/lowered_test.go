package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/loopback"
)

// sumMachine keeps the sum of each command, and tells when it has some number of them.
type sumMachine struct {
	mu   sync.Mutex
	sums [][32]byte
	want int
	has  chan struct{}
}

func newSumMachine(want int) *sumMachine { return &sumMachine{want: want, has: make(chan struct{})} }

func (m *sumMachine) Apply(entries []statemachine.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.sums = append(m.sums, sha256.Sum256(e.Data))
		if len(m.sums) == m.want {
			close(m.has)
		}
	}
	return nil
}

// lowered is three hosts that start again and again, each time with other settings, over one kind of network.
type lowered struct {
	t       *testing.T
	dirs    [3]string
	peers   map[uint64]string
	tls     [3]*TLS           // nil: none
	network *loopback.Network // nil: TCP
	hosts   [3]*Host
}

func (l *lowered) open(memory int64, machines [3]*sumMachine) {
	l.t.Helper()
	for i := range l.hosts {
		id := uint64(i + 1)
		c := Config{ID: id, Dir: l.dirs[i], Members: l.peers, MemoryBytes: memory, SegmentBytes: 64 << 10, HeartbeatInterval: 20 * time.Millisecond}
		options := []Option{WithLogger(quiet)}
		if l.network != nil {
			options = append(options, WithTransport(l.network.Host(id)))
		} else {
			c.Listen, c.TLS = "127.0.0.1:0", l.tls[i]
		}
		if machines[i] == nil {
			l.hosts[i] = nil
			continue
		}
		h, err := openOne(c, machines[i], options...)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { h.Close(context.Background()) })
		l.hosts[i] = h
	}
	for _, h := range l.hosts {
		for i, other := range l.hosts {
			if h == nil || other == nil {
				continue
			}
			if network, ok := h.network.transport.(interface{ SetPeer(uint64, string) }); ok {
				network.SetPeer(uint64(i+1), other.Addr())
			}
		}
	}
}

func (l *lowered) close() {
	for _, h := range l.hosts {
		if h == nil {
			continue
		}
		if err := h.Close(context.Background()); err != nil {
			l.t.Error(err)
		}
	}
}

func (l *lowered) propose(ctx context.Context, command []byte) {
	l.t.Helper()
	for {
		for _, h := range l.hosts {
			if h == nil {
				continue
			}
			switch _, err := h.Group(theGroup).Propose(ctx, command); {
			case err == nil:
				return
			case outcome.MayHaveCommitted(err), ctx.Err() != nil:
				l.t.Fatal(err)
			}
			_, _ = h.Group(theGroup).WaitLeader(ctx)
		}
	}
}

// Entries that were written with much memory reach a member that lacks them when all hosts have the least
// memory, and entries of many times the size of a segment do, over each network. Without the exception for
// one large message at the sender, the member lacked them for ever.
func TestEntriesOfMoreMemoryReachAMember(t *testing.T) {
	ca := testCA(t, "ours")
	for name, make := range map[string]func(*lowered){
		"TCP": func(*lowered) {},
		"TLS": func(l *lowered) {
			l.tls = [3]*TLS{tlsFiles(t, ca, 1, time.Hour), tlsFiles(t, ca, 2, time.Hour), tlsFiles(t, ca, 3, time.Hour)}
		},
		"loopback": func(l *lowered) { l.network = loopback.NewNetwork() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			l := &lowered{t: t, peers: map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:3"}}
			for i := range l.dirs {
				l.dirs[i] = scratch.Dir(t)
			}
			make(l)
			first := [3]*sumMachine{newSumMachine(1), newSumMachine(1), newSumMachine(1)}
			l.open(256<<20, first)
			l.propose(ctx, []byte("before"))
			for _, m := range first {
				await(ctx, t, m)
			}
			l.close()

			const large = 6
			l.open(256<<20, [3]*sumMachine{newSumMachine(1 + large), newSumMachine(1 + large), nil})
			for i := range large {
				command := bytes.Repeat([]byte{byte(i)}, 2<<20)
				l.propose(ctx, command)
			}
			l.close()

			last := [3]*sumMachine{newSumMachine(large + 2), newSumMachine(large + 2), newSumMachine(large + 2)}
			l.open(minMemoryBytes, last)
			l.propose(ctx, []byte("after"))
			for i, m := range last {
				await(ctx, t, m)
				for k := range m.sums {
					if m.sums[k] != last[0].sums[k] {
						t.Fatalf("command %d differs on host %d", k, i+1)
					}
				}
			}
			for _, h := range l.hosts {
				for d := h.Group(theGroup).Explain(); d.Has(diagnosis.CodeDiskStalled) || d.Has(diagnosis.CodeNotSent); d = h.Group(theGroup).Explain() {
					if ctx.Err() != nil {
						t.Fatal(d) // it has caught up, and the cause does not end
					}
					l.propose(ctx, []byte("once more"))
				}
				if n := h.Metrics().Transport.Kinds[transport.Consensus].DroppedTooLarge; n > 0 {
					t.Errorf("host %d has dropped %d messages as too large", h.config.ID, n)
				}
			}
			l.close()
		})
	}
}

func await(ctx context.Context, t *testing.T, m *sumMachine) {
	t.Helper()
	select {
	case <-m.has:
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		t.Fatalf("%d of %d commands were applied", len(m.sums), m.want)
	}
}
