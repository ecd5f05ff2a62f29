package proposals

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
	r := Forward{Group: 7, Term: 3, Frame: 1 << 40}
	body := AppendForward(nil, r)
	commands := []string{"first", "", "a longer one that comes last"}
	for i, command := range commands {
		body = AppendCommand(body, session.Header{Mark: someMark(uint64(i+5), 5), HasMark: true}, []byte(command))
	}
	got, rest, err := DecodeForward(body)
	if err != nil || got != r {
		t.Fatalf("%+v, %v, want %+v", got, err, r)
	}
	for i, want := range commands {
		h, command, others, err := NextCommand(rest)
		if err != nil || string(command) != want || h.Mark != someMark(uint64(i+5), 5) {
			t.Fatalf("command %d is %q of %+v, %v", i, command, h.Mark, err)
		}
		rest = others
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes are left", len(rest))
	}
	refusal := Refusal{Group: 7, Frame: 1 << 40, Why: NoSpace, Sure: true}
	if got, err := DecodeRefusal(refusal.Encode()); err != nil || got != refusal {
		t.Errorf("%+v, %v, want %+v", got, err, refusal)
	}
}

// A peer may not forward what only the leader decides: a stamp, or a command without a session.
func TestForwardIsRefused(t *testing.T) {
	for name, h := range map[string]session.Header{
		"no session": {},
		"a stamp":    {Mark: someMark(1, 1), HasMark: true, Stamp: time.Hour, HasStamp: true},
	} {
		if _, _, _, err := NextCommand(AppendCommand(nil, h, []byte("x"))); !errors.Is(err, ErrBadForward) {
			t.Errorf("%s: error %v, want errBadForward", name, err)
		}
	}
	for _, body := range [][]byte{{control.Forward}, {control.Forward, 1, 1}, {control.Forward, 1, 1, 0, 5}, {control.Forward, 1, 1, 1}} {
		if _, _, err := DecodeForward(body); !errors.Is(err, ErrBadForward) {
			t.Errorf("%v: error %v, want errBadForward", body, err)
		}
	}
	for _, body := range [][]byte{{control.ForwardRefusal}, {control.ForwardRefusal, 1, 1, 0, 1}, {control.ForwardRefusal, 1, 1, 9, 1}, {control.ForwardRefusal, 1, 1, 1, 2}, {control.ForwardRefusal, 1, 1, 1, 1, 1}} {
		if _, err := DecodeRefusal(body); !errors.Is(err, ErrBadForward) {
			t.Errorf("%v: error %v, want errBadForward", body, err)
		}
	}
}

// FuzzForward: whatever another host sends is read or refused, and what is read keeps its bytes.
func FuzzForward(f *testing.F) {
	body := AppendForward(nil, Forward{Group: 1, Term: 2, Frame: 3})
	body = AppendCommand(body, session.Header{Mark: someMark(9, 2), HasMark: true}, []byte("command"))
	f.Add(body)
	f.Add(Refusal{Group: 1, Frame: 3, Why: NoLeader, Sure: true}.Encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		if r, err := DecodeRefusal(body); err == nil && body[0] == control.ForwardRefusal {
			if again, err := DecodeRefusal(r.Encode()); err != nil || again != r {
				t.Fatalf("%+v becomes %+v, %v", r, again, err)
			}
		}
		r, rest, err := DecodeForward(body)
		if err != nil {
			return
		}
		again := AppendForward(nil, r)
		for len(rest) > 0 {
			h, command, others, err := NextCommand(rest)
			if err != nil {
				return
			}
			if err := h.Mark.Validate(); err != nil {
				t.Fatal(err)
			}
			again = AppendCommand(again, h, command)
			rest = others
		}
		if r2, rest, err := DecodeForward(again); err != nil || r2 != r || !bytes.HasSuffix(again, rest) {
			t.Fatalf("%+v becomes %+v, %v", r, r2, err)
		}
	})
}
