package lease

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestSetIsItsTwin compares a set with a map.
func TestSetIsItsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	s, twin, now := NewSet(), map[int64]Info{}, time.Duration(0)
	for range 20_000 {
		now += time.Duration(rng.IntN(500)) * time.Millisecond
		id := int64(rng.IntN(30))
		old, there := twin[id]
		switch rng.IntN(4) {
		case 0:
			if !there {
				ttl := int64(1 + rng.IntN(60))
				twin[id] = Info{ID: id, TTL: ttl, Deadline: now + time.Duration(ttl)*time.Second}
				s.Grant(id, ttl, now)
			}
		case 1:
			old.Number, old.Deadline = old.Number+1, now+time.Duration(old.TTL)*time.Second
			if i, ok := s.Renew(id, now); ok != there || ok && i != old {
				t.Fatalf("renewed %+v, %v, want %+v, %v", i, ok, old, there)
			}
			if there {
				twin[id] = old
			}
		case 2:
			if rng.IntN(4) == 0 {
				s.Remove(id)
				delete(twin, id)
			}
		default:
			r := Renewal{id, old.Number - uint64(rng.IntN(2))}
			if have, want := s.Expired(r, now), there && r.Number == old.Number && old.Deadline <= now; have != want {
				t.Fatalf("%+v is expired: %v, want %v", r, have, want)
			}
		}
		compareDue(t, s, twin, now, 1+rng.IntN(10))
	}
}

func compareDue(t *testing.T, s *Set, twin map[int64]Info, now time.Duration, most int) {
	t.Helper()
	var all []Info
	for _, i := range twin {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.ID, b.ID)) })
	want, wantNext := []Renewal(nil), time.Duration(math.MaxInt64)
	for _, i := range all {
		if i.Deadline > now || len(want) == most {
			wantNext = i.Deadline
			break
		}
		want = append(want, Renewal{i.ID, i.Number})
	}
	due, next := s.Due(now, most)
	if fmt.Sprint(due) != fmt.Sprint(want) || next != wantNext || s.Len() != len(twin) {
		t.Fatalf("due at %v: %v, next %v, want %v, %v", now, due, next, want, wantNext)
	}
}

func TestBounds(t *testing.T) {
	s := NewSet()
	if i := s.Grant(1, MaxTTL, math.MaxInt64-1); i.Deadline != math.MaxInt64 {
		t.Errorf("the deadline of the longest lease is %v", i.Deadline)
	}
	i := s.Grant(2, 10, 0)
	for now, want := range map[time.Duration]int64{0: 10, 500 * time.Millisecond: 9, 9999 * time.Millisecond: 0, 10 * time.Second: -1} {
		if have := i.Remaining(now); have != want {
			t.Errorf("at %v it has %d s left, want %d", now, have, want)
		}
	}
}
