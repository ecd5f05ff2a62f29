package session

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// TestSessionsExpireInLogTime: a session is forgotten when more than Expiry has passed since its last
// command, and then every copy of its commands is refused.
func TestSessionsExpireInLogTime(t *testing.T) {
	table := New(Options{Expiry: time.Minute})
	first := Mark{ID: ID{Client: [16]byte{1}}, Number: 1, Low: 1}
	expect := func(what string, m Mark, want Verdict) {
		t.Helper()
		if have, _ := table.Apply(m, raftpb.Position{Index: 10}, 1); have != want {
			t.Errorf("%s: %v, want %v", what, have, want)
		}
	}
	expect("the first command", first, Fresh)
	table.Advance(time.Minute)
	expect("its copy, just in time", first, Duplicate)
	table.Advance(30 * time.Second) // a stamp that is late says nothing
	table.Advance(2 * time.Minute)
	expect("its copy, used a minute ago", first, Duplicate)
	table.Advance(3*time.Minute + 1)
	expect("its copy, after it expired", first, Expired)
	first.Number = 2
	expect("another command of the expired session", first, Expired)

	late := Mark{ID: ID{Client: [16]byte{2}, Birth: 2*time.Minute + 1}, Number: 1, Low: 1}
	expect("a session born a minute ago", late, Fresh)
	late.ID = ID{Client: [16]byte{3}, Birth: 2 * time.Minute}
	expect("a session born before", late, Expired)
	late.ID = ID{Client: [16]byte{3}, Birth: table.Now()}
	expect("a session born now", late, Fresh)
	late.ID = ID{Client: [16]byte{4}, Birth: table.Now() + 1}
	expect("a session of the future", late, Expired)
}

// TestHowManySessionsAreKnown: the documents say how many sessions of one command the default has space for.
func TestHowManySessionsAreKnown(t *testing.T) {
	table, n := New(Options{}), uint64(0)
	for ; table.TakeEvicted() == 0; n++ {
		id := ID{}
		binary.LittleEndian.PutUint64(id.Client[:], n+1)
		table.Apply(Mark{ID: id, Number: 1, Low: 1}, raftpb.Position{Index: n + 1}, 1)
	}
	if known, _ := table.Sessions(); known != 52_428 || n != 52_429 {
		t.Errorf("%d sessions are known after %d have come", known, n)
	}
}

// TestAnEvictedSessionIsExpired: a session that was forgotten for lack of space is refused, and so is each
// that the table may have forgotten.
func TestAnEvictedSessionIsExpired(t *testing.T) {
	table := New(twinOptions)
	apply := func(client byte, birth time.Duration, n uint64) Verdict {
		v, _ := table.Apply(Mark{ID: ID{Client: [16]byte{client}, Birth: birth}, Number: n, Low: 1}, raftpb.Position{Index: n}, 1)
		return v
	}
	table.Advance(10)
	for client := byte(1); client <= 4; client++ {
		for n := uint64(1); n <= 55; n++ {
			if v := apply(client, time.Duration(client), n); v != Fresh {
				t.Fatalf("number %d of client %d is %v", n, client, v)
			}
		}
	}
	if n, bytes := table.Sessions(); n != 3 || bytes > twinOptions.MaxBytes {
		t.Fatalf("%d sessions of %d bytes, want 3 and at most %d", n, bytes, twinOptions.MaxBytes)
	}
	if n, again := table.TakeEvicted(), table.TakeEvicted(); n != 1 || again != 0 {
		t.Errorf("%d sessions count as forgotten for lack of space, and then %d, want 1 and 0", n, again)
	}
	for client, want := range map[byte]Verdict{1: Expired, 2: Duplicate, 3: Duplicate, 4: Duplicate} {
		if have := apply(client, time.Duration(client), 1); have != want {
			t.Errorf("client %d: %v, want %v", client, have, want)
		}
	}
	if have := apply(9, 1, 1); have != Expired {
		t.Errorf("a client born with the evicted one: %v", have)
	}
}

// TestANumberBelowTheLowestIsForgotten: also if it was never applied, since its client has given up on it.
func TestANumberBelowTheLowestIsForgotten(t *testing.T) {
	table := New(Options{})
	m := Mark{ID: ID{Client: [16]byte{1}}, Number: 5, Low: 3}
	for _, step := range []struct {
		number, low uint64
		want        Verdict
	}{{5, 3, Fresh}, {5, 1, Duplicate}, {2, 1, Forgotten}, {3, 1, Fresh}, {4, 2, Fresh}, {9, 6, Fresh}, {5, 5, Forgotten}, {7, 1, Fresh}} {
		m.Number, m.Low = step.number, step.low
		if have, _ := table.Apply(m, raftpb.Position{Index: 1}, 1); have != step.want {
			t.Errorf("number %d, lowest %d: %v, want %v", step.number, step.low, have, step.want)
		}
	}
}
