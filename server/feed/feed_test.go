package feed

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func batchOf(rev int64, events, bytes int) Batch {
	b := Batch{Revision: rev}
	for range events {
		b.Events = append(b.Events, Event{Event: &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: fmt.Append(nil, rev), Value: make([]byte, bytes), ModRevision: rev}}})
	}
	return b
}

// TestRing publishes batches of random sizes. A reader gets every revision at or behind its cursor, once and
// in order, or hears that it is behind; and the ring has no more than its bytes.
func TestRing(t *testing.T) {
	const most = 20_000
	rng := rand.New(rand.NewPCG(1, 1))
	f := New(most, 1)
	rev, cursor, behind := int64(1), int64(2), 0
	for range 5000 {
		var batches []Batch
		for range rng.IntN(4) {
			rev++
			batches = append(batches, batchOf(rev, 1+rng.IntN(3), rng.IntN(300)))
		}
		f.Publish(batches, rev)
		if _, _, bytes := f.Bounds(); bytes > most {
			t.Fatalf("it has %d bytes, at most %d", bytes, most)
		}
		if rng.IntN(20) != 0 {
			continue
		}
		if rng.IntN(3) == 0 { // the oldest that it claims to have
			cursor, _, _ = f.Bounds()
		}
		got, next, late := f.Next(cursor)
		if late {
			behind++
			cursor = rev + 1
			continue
		}
		for _, b := range got {
			if b.Revision != cursor {
				t.Fatalf("at cursor %d it has revision %d", cursor, b.Revision)
			}
			cursor++
		}
		if next != cursor || next != rev+1 {
			t.Fatalf("the next cursor is %d behind revision %d, the feed is at %d", next, cursor-1, rev)
		}
	}
	if behind == 0 {
		t.Error("the reader was never behind")
	}
}

func TestFutureAndRestored(t *testing.T) {
	f := New(1<<20, 10)
	wait := f.Wait()
	if b, next, behind := f.Next(20); len(b) > 0 || next != 20 || behind {
		t.Errorf("a cursor in the future: %v, %d, %v", b, next, behind)
	}
	if _, _, behind := f.Next(10); !behind {
		t.Error("a cursor before the first revision is not behind")
	}
	f.Publish([]Batch{batchOf(11, 1, 1)}, 11)
	select {
	case <-wait:
	default:
		t.Error("the wait has not ended")
	}
	wait = f.Wait()
	f.Restored(30)
	select {
	case <-wait:
	default:
		t.Error("the wait has not ended with another state")
	}
	if _, _, behind := f.Next(12); !behind {
		t.Error("a cursor of the former state is not behind")
	}
	if b, next, behind := f.Next(31); len(b) > 0 || next != 31 || behind || f.Restores() != 1 {
		t.Errorf("the cursor of the new state: %v, %d, %v", b, next, behind)
	}
}

func TestMany(t *testing.T) {
	f := New(1<<30, 1)
	var batches []Batch
	for rev := int64(2); rev <= 3*maxBatches; rev++ {
		batches = append(batches, batchOf(rev, 1, 1))
	}
	f.Publish(batches, 3*maxBatches)
	cursor := int64(2)
	for range 3 {
		b, next, behind := f.Next(cursor)
		if behind || len(b) > maxBatches || len(b) == 0 || next != b[len(b)-1].Revision+1 {
			t.Fatalf("%d batches, next %d", len(b), next)
		}
		cursor = next
	}
	if cursor != 3*maxBatches+1 {
		t.Errorf("three calls lead to %d", cursor)
	}
}

func TestRange(t *testing.T) {
	for _, c := range []struct {
		key, end, of string
		want         bool
	}{
		{"a", "", "a", true}, {"a", "", "b", false}, {"a", "c", "b", true}, {"a", "c", "c", false}, {"a", "\x00", "z", true}, {"b", "\x00", "a", false},
	} {
		if have := (Range{[]byte(c.key), []byte(c.end)}).Contains([]byte(c.of)); have != c.want {
			t.Errorf("[%q, %q) contains %q: %v", c.key, c.end, c.of, have)
		}
	}
}
