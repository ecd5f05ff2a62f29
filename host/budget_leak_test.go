package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A random history on three hosts with real goroutines: groups are opened, get commands, campaign, hand over,
// are closed, opened again and removed, while disks are full at times. Whatever happened, a host all of whose
// groups are closed holds no byte of its budgets and vouches for no group.
func TestBudgetsReturn(t *testing.T) {
	const hosts, groups, rounds = 3, 12, 40
	network := loopback.NewNetwork()
	peers := map[uint64]string{1: "a", 2: "b", 3: "c"}
	var (
		all   []*Host
		disks []*crashfs.FS
		full  [hosts]atomic.Bool
	)
	own := make([]Transport, hosts)
	for i := range hosts {
		n := network.Host(uint64(i + 1))
		for id := range peers {
			if id != uint64(i+1) {
				n.SetPeer(id, "")
			}
		}
		own[i] = n
	}
	for i := range hosts {
		disk := crashfs.New()
		disk.SetHook(func(op crashfs.Op) error {
			if full[i].Load() && op.Kind == crashfs.OpPreallocate {
				return syscall.ENOSPC
			}
			return nil
		})
		h, err := Open(t.Context(), Config{ID: uint64(i + 1), Dir: "data", Members: peers, SegmentBytes: 64 << 10, MemoryBytes: 1 << 20, HeartbeatInterval: 10 * time.Millisecond},
			WithFS(disk), WithTransport(own[i]), WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		all, disks = append(all, h), append(disks, disk)
	}
	_ = disks
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var hands sync.WaitGroup
	for i, h := range all {
		for hand := range uint64(3) {
			hands.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), hand))
				for range rounds * groups / 3 {
					id := 1 + rng.Uint64N(groups)/3*3 + hand // groups of this hand, mostly
					g := h.Group(id)
					if g == nil {
						_, err := h.OpenGroup(ctx, GroupConfig{ID: id, MaxCommandBytes: 4 << 10}, &commands{})
						if err != nil && !errors.Is(err, outcome.ErrRemoved) {
							t.Error(err)
						}
						continue
					}
					switch rng.IntN(12) {
					case 0:
						if err := g.Close(ctx); err != nil {
							t.Error(err)
						}
					case 1:
						g.Campaign()
					case 2:
						full[i].Store(rng.IntN(3) == 0)
					case 3:
						if rng.IntN(20) == 0 {
							full[i].Store(false)
							if err := h.RemoveGroup(ctx, id); err != nil {
								t.Log(err)
							}
						}
					case 4:
						h.HandOver()
					default:
						for n := range 20 {
							_, _ = g.Submit(fmt.Appendf(make([]byte, rng.IntN(4<<10)), "%d", n))
						}
					}
				}
			})
		}
	}
	hands.Wait()
	for i, h := range all {
		full[i].Store(false)
		for _, id := range h.Groups() {
			if err := h.Group(id).Close(ctx); err != nil {
				t.Error(err)
			}
		}
		for _, b := range []struct {
			name string
			*budget.Budget
		}{{"waiting", &h.memory.waiting}, {"proposed", &h.memory.proposed}, {"received", &h.memory.received}, {"writing", &h.memory.writing}} {
			if n := b.Used(); n != 0 {
				t.Errorf("host %d: all groups are closed, and the budget %q holds %d bytes", i+1, b.name, n)
			}
		}
		for _, r := range h.network.pulses.Beat() {
			if r.Pulses {
				t.Errorf("host %d vouches for groups %v to host %d, and none is open", i+1, r.Lines, r.Peer)
			}
		}
	}
	for _, h := range all {
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
