package host

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/transport"
)

// FuzzFounding: what is decoded of a founding entry has these bytes, and a majority is bound.
func FuzzFounding(f *testing.F) {
	all := entry.Binding{{ID: 1, Incarnation: incarnationOf(1)}, {ID: 2, Incarnation: incarnationOf(2)}, {ID: 3, Incarnation: incarnationOf(3)}}
	f.Add(entry.EncodeFound(all))
	f.Add(entry.EncodeFounded())
	f.Add(entry.WithPromise(entry.EncodeFound(all), 1e9))
	f.Add(entry.EncodeFound(entry.Binding{all[0], all[1], {ID: 3}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := entry.DecodeFounding(data)
		if err != nil || b == nil {
			return
		}
		again := entry.EncodeFound(b)
		if data[0]&entry.FoundPromises != 0 {
			again = entry.WithPromise(again, entry.PromiseOf(data))
		}
		if !bytes.Equal(again, data) {
			t.Errorf("%x is %v, whose bytes are %x", data, b, again)
		}
	})
}

// FuzzReceive: whatever a member sends as messages of a group, the host lives, holds no memory when the turns
// are over, and does not take a lie for a mistake of its own.
func FuzzReceive(f *testing.F) {
	v := &view{self: 3, to: 1, leader: 2, term: 2, last: 5, committed: 4, matches: 3, lastTerm: 2}
	rng := rand.New(rand.NewPCG(1, 1))
	all := messageLies()
	for range 200 {
		if l := all[rng.IntN(len(all))](v); l.m.Type < 20 {
			f.Add(transport.AppendMessage(nil, theGroup, l.m), rng.IntN(2) == 0)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, leads bool) {
		l := openTestHost(t, 3)
		if leads {
			l.lead()
		}
		for range 2 {
			batch, _ := transport.DecodeBody(body, nil)
			for i := range batch { // as a connection demands
				batch[i].Message.From, batch[i].Message.To, batch[i].Group = 3, 1, theGroup
			}
			if len(batch) > 0 {
				transport.Detach(batch)
				(*inbound)(l.Host).Receive(3, batch)
			}
			l.manual.tick()
		}
		if err := l.group.Err(); err != nil && strings.Contains(err.Error(), "is a bug") {
			t.Fatal(err)
		}
		if m := l.Memory(); l.group.Err() == nil && m.Received.Used != 0 {
			t.Fatalf("%+v is held", m)
		}
	})
}
