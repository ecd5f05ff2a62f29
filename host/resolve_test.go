package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/transport/loopback"
	"go.uber.org/goleak"
)

// registry says where hosts are.
type registry struct {
	mu    sync.Mutex
	addrs map[uint64]string
}

func (r *registry) set(id uint64, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs[id] = addr
}

func (r *registry) find(_ context.Context, id uint64, _ string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addr := r.addrs[id]
	if addr == "" {
		return "", errors.New("not registered")
	}
	return addr, nil
}

// The configuration has names that nothing else can look up. All hosts stop and come back at other addresses,
// twice, and only the registry knows them.
func TestRegistryFindsHostsThatHaveAllMoved(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 3)
	where := &registry{addrs: map[uint64]string{}}
	names := map[uint64]string{}
	for _, p := range ps {
		names[p.id] = fmt.Sprintf("member-%d.invalid:7000", p.id)
	}
	var want []string
	for life := range 3 {
		for _, p := range ps {
			c := p.config(names)
			c.Listen, c.Resolve = "127.0.0.1:0", where.find
			p.openConfig(c)
			where.set(p.id, p.Addr())
			p.openGroup()
		}
		want = append(want, fmt.Sprint("life ", life))
		write(t, ps, want[life])
		for _, p := range ps {
			p.waitFor(t, len(want))
		}
		for _, p := range ps {
			if !slices.Equal(p.applied, want) {
				t.Errorf("host %d has applied %q, want %q", p.id, p.applied, want)
			}
			p.close()
		}
	}
}

func TestResolveIsForTCP(t *testing.T) {
	p := newParty(t, 1)
	c := p.config(listOf(p))
	c.Resolve = (&registry{}).find
	_, err := host.Open(t.Context(), c, host.WithTransport(loopback.NewNetwork().Host(1)))
	if err == nil || !strings.Contains(err.Error(), "Config.Resolve is for TCP") {
		t.Errorf("Open: %v", err)
	}
}
