package peers

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/outcome"
)

// A book agrees with a naive one: a list of hosts and what was said last of each.
func TestBookAgreesWithANaiveOne(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		closes, told := false, map[uint64]Location{}
		var b Book
		b.Init(1, map[uint64]string{1: "one", 2: "two"}, Wiring{
			Closes: func() bool { return closes }, Added: func(id uint64) { told[id] = Location{} },
			Moved: func(id uint64, _, now Location) { told[id] = now }, Gone: func(id uint64) { delete(told, id) },
		})
		naive := map[uint64]string{2: "two"}
		told[2] = Location{Given: "two"}
		for range 100 {
			id, addr := 2+r.Uint64N(8), fmt.Sprint(r.IntN(3))
			switch _, known := naive[id]; r.IntN(3) {
			case 0, 1:
				if err := b.Locate(id, func(l Location) Location { l.Given = addr; return l }); err != nil {
					t.Fatal(err)
				}
				naive[id] = addr
			default:
				if b.Forget(id) != known {
					t.Fatalf("seed %d: host %d is forgotten wrongly", seed, id)
				}
				delete(naive, id)
			}
			if !slices.Equal(b.Others(), slices.Sorted(maps.Keys(naive))) {
				t.Fatalf("seed %d: the book has %v, want %v", seed, b.Others(), naive)
			}
			for id := range uint64(10) {
				if addr, known := naive[id]; id > 1 && (b.Knows(id) != known || b.Addr(id) != addr || told[id].Given != addr) {
					t.Fatalf("seed %d: host %d is at %q, and the wiring knows %v, want %q", seed, id, b.Addr(id), told[id], addr)
				}
			}
		}
		closes = true
		if err := b.Locate(100, func(l Location) Location { return l }); !errors.Is(err, outcome.ErrStopped) || b.Forget(2) {
			t.Errorf("seed %d: a book that closes changes: %v", seed, err)
		}
	}
}

// A book has a bound, and one on what only others have named.
func TestBookIsBounded(t *testing.T) {
	var b Book
	b.Init(1, nil, Wiring{Closes: func() bool { return false }, Added: func(uint64) {}, Moved: func(uint64, Location, Location) {}})
	var err error
	for id := uint64(2); err == nil; id++ {
		err = b.Locate(id, func(l Location) Location { return l })
	}
	if n := len(b.Others()); !errors.Is(err, identity.ErrTooManyHosts) || n != identity.MaxHosts {
		t.Errorf("%d hosts are known: %v", n, err)
	}
	hinted := 0
	for b.Hinted() {
		hinted++
	}
	if hinted != MaxHinted || b.Hinted() {
		t.Errorf("%d hosts are known by hints", hinted)
	}
}

// What a host says of others is read back, and what no host says is refused.
func TestRecords(t *testing.T) {
	said := Location{Said: "there:1", Generation: 7}
	said.Incarnation[3] = 9
	body := said.AppendIfItFits(Location{Given: "here:1"}.Append([]byte{control.Addresses}, 4), 5)
	var ids []uint64
	var last Location
	take := func(id uint64, l Location) error { ids, last = append(ids, id), l; return nil }
	if err := DecodeAddresses(body, take); err != nil || !slices.Equal(ids, []uint64{4, 5}) || last != said {
		t.Errorf("hosts %v, the last at %+v: %v", ids, last, err)
	}
	for n := 2; n < len(body); n++ {
		if err := DecodeAddresses(body[:n], take); err == nil && n != len(Location{Given: "here:1"}.Append([]byte{control.Addresses}, 4)) {
			t.Errorf("%d of %d bytes are a record", n, len(body))
		}
	}
	full := append([]byte{control.Addresses}, make([]byte, control.MaxAddresses-1)...)
	if have := said.AppendIfItFits(full, 6); len(have) != len(full) {
		t.Errorf("a full body grows to %d bytes", len(have))
	}
	s := Settings{1: 5, 2: 1 << 40}
	if have, err := DecodeSettings(s.Encode()); err != nil || !maps.Equal(have, s) {
		t.Errorf("%v is read as %v, %v", s, have, err)
	}
	if _, err := DecodeSettings([]byte{control.Settings, 1}); !errors.Is(err, control.ErrBad) {
		t.Errorf("half of a setting: %v", err)
	}
}

// A host is there while it was heard lately, and heard since then after a silence. What it sends ends its
// refusal.
func TestHandshakes(t *testing.T) {
	var m Handshakes
	m.Init([]uint64{2, 3})
	p, why := m.Of(2), "another directory"
	p.Begin(10)
	p.Refuses.Store(&why)
	if m.IsThere(2, 10, 5) || m.Has(2) || m.Refusals() != "host 2 refuses this host: another directory" {
		t.Errorf("host 2 was not met: %q", m.Refusals())
	}
	p.Met.Store(true)
	for _, step := range []struct{ now, since int64 }{{12, 10}, {17, 10}, {23, 23}, {24, 23}} {
		if p.Hear(step.now, 5); p.HeardSince.Load() != step.since || !m.IsThere(2, step.now+5, 5) || m.IsThere(2, step.now+6, 5) {
			t.Errorf("at %d host 2 is heard since %d, want %d", step.now, p.HeardSince.Load(), step.since)
		}
	}
	if m.Refusal(2) != nil || m.AreAllMet() || m.AreReady([]uint64{1, 2}, 1) {
		t.Errorf("host 2 still refuses, or is ready, or host 3 was met")
	}
	p.Ready.Store(true)
	m.Remove(3)
	m.Add(4)
	m.Of(4).Met.Store(true)
	if !m.AreAllMet() || !m.AreReady([]uint64{1, 2}, 1) || m.AreReady([]uint64{2, 3}, 1) {
		t.Errorf("hosts 2 and 4 were met, and 3 is unknown")
	}
}
