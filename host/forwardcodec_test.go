package host

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/session"
)

func someMark(number, low uint64) session.Mark {
	return session.Mark{ID: session.ID{Client: [16]byte{1, 2, 3}, Birth: time.Second}, Number: number, Low: low}
}

// What is forwarded arrives as it was: record, sessions and commands, also an empty one.
func TestForwardCodec(t *testing.T) {
	r := forwardRecord{group: 7, term: 3, frame: 1 << 40}
	body := appendForward(nil, r)
	commands := []string{"first", "", "a longer one that comes last"}
	for i, command := range commands {
		body = appendForwarded(body, session.Header{Mark: someMark(uint64(i+5), 5), HasMark: true}, []byte(command))
	}
	got, rest, err := decodeForward(body)
	if err != nil || got != r {
		t.Fatalf("%+v, %v, want %+v", got, err, r)
	}
	for i, want := range commands {
		h, command, others, err := nextForwarded(rest)
		if err != nil || string(command) != want || h.Mark != someMark(uint64(i+5), 5) {
			t.Fatalf("command %d is %q of %+v, %v", i, command, h.Mark, err)
		}
		rest = others
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes are left", len(rest))
	}
	refusal := forwardRefusal{group: 7, frame: 1 << 40, why: refusesOverload, sure: true}
	if got, err := decodeForwardRefusal(refusal.encode()); err != nil || got != refusal {
		t.Errorf("%+v, %v, want %+v", got, err, refusal)
	}
}

// A peer may not forward what only the leader decides: a stamp, or a command without a session.
func TestForwardIsRefused(t *testing.T) {
	for name, h := range map[string]session.Header{
		"no session": {},
		"a stamp":    {Mark: someMark(1, 1), HasMark: true, Stamp: time.Hour, HasStamp: true},
	} {
		if _, _, _, err := nextForwarded(appendForwarded(nil, h, []byte("x"))); !errors.Is(err, errBadForward) {
			t.Errorf("%s: error %v, want errBadForward", name, err)
		}
	}
	for _, body := range [][]byte{{control.Forward}, {control.Forward, 1, 1}, {control.Forward, 1, 1, 0, 5}, {control.Forward, 1, 1, 1}} {
		if _, _, err := decodeForward(body); !errors.Is(err, errBadForward) {
			t.Errorf("%v: error %v, want errBadForward", body, err)
		}
	}
	for _, body := range [][]byte{{control.ForwardRefusal}, {control.ForwardRefusal, 1, 1, 0, 1}, {control.ForwardRefusal, 1, 1, 9, 1}, {control.ForwardRefusal, 1, 1, 1, 2}, {control.ForwardRefusal, 1, 1, 1, 1, 1}} {
		if _, err := decodeForwardRefusal(body); !errors.Is(err, errBadForward) {
			t.Errorf("%v: error %v, want errBadForward", body, err)
		}
	}
}

// FuzzForward: whatever another host sends is read or refused, and what is read keeps its bytes.
func FuzzForward(f *testing.F) {
	body := appendForward(nil, forwardRecord{group: 1, term: 2, frame: 3})
	body = appendForwarded(body, session.Header{Mark: someMark(9, 2), HasMark: true}, []byte("command"))
	f.Add(body)
	f.Add(forwardRefusal{group: 1, frame: 3, why: refusesLeader, sure: true}.encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		if r, err := decodeForwardRefusal(body); err == nil && body[0] == control.ForwardRefusal {
			if again, err := decodeForwardRefusal(r.encode()); err != nil || again != r {
				t.Fatalf("%+v becomes %+v, %v", r, again, err)
			}
		}
		r, rest, err := decodeForward(body)
		if err != nil {
			return
		}
		again := appendForward(nil, r)
		for len(rest) > 0 {
			h, command, others, err := nextForwarded(rest)
			if err != nil {
				return
			}
			if err := h.Mark.Validate(); err != nil {
				t.Fatal(err)
			}
			again = appendForwarded(again, h, command)
			rest = others
		}
		if r2, rest, err := decodeForward(again); err != nil || r2 != r || !bytes.HasSuffix(again, rest) {
			t.Fatalf("%+v becomes %+v, %v", r, r2, err)
		}
	})
}

// Each frame number counts once, also when numbers come late; those that are too old count as seen.
func TestSeenFrames(t *testing.T) {
	var s seenFrames
	naive := map[uint64]bool{}
	last := uint64(0)
	for i, n := range []uint64{100, 100, 101, 99, 99, 98, 105, 103, 103, 104, 102, 200, 137, 136, 135, 200, 201, 150, 150, 300, 237, 236, 235, 1 << 50, 1<<50 - 1, 300} {
		want := !naive[n] && (last == 0 || n > last || last-n <= 64)
		if got := s.take(&forwarded{from: 2, frame: n}); got != want {
			t.Errorf("step %d: frame %d after %d: first time %v, want %v", i, n, last, got, want)
		}
		naive[n], last = true, max(last, n)
	}
	if !s.take(&forwarded{from: 3, frame: 100}) || !s.take(&forwarded{from: 2, bulk: true, frame: 100}) {
		t.Error("frames of another host, or of another kind, count as seen")
	}
}
