package timers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/timers"
)

// naive is what a Queue is, without a heap.
type naive map[string]time.Duration

func (n naive) expire(now time.Duration, most int) (keys []string) {
	var all []timers.Timer[string]
	for k, d := range n {
		all = append(all, timers.Timer[string]{Key: k, Deadline: d})
	}
	slices.SortFunc(all, func(a, b timers.Timer[string]) int {
		if a.Deadline != b.Deadline {
			return int(a.Deadline - b.Deadline)
		}
		return strings.Compare(a.Key, b.Key)
	})
	for _, t := range all {
		if t.Deadline > now || len(keys) == most {
			break
		}
		keys = append(keys, t.Key)
		delete(n, t.Key)
	}
	return keys
}

// TestQueueIsItsTwin compares random histories of a queue with those of a map: what expires, in which order,
// and what is left. Now and then the queue is encoded and decoded, or cloned.
func TestQueueIsItsTwin(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		q, twin, now := &timers.Queue[string]{}, naive{}, time.Duration(0)
		fired := 0
		for step := range 300 {
			key := fmt.Sprint(rng.IntN(1 + int(seed)%40))
			switch rng.IntN(8) {
			case 0, 1, 2: // also deadlines that have passed, and those of several keys
				deadline := now + time.Duration(rng.IntN(20)-5)
				q.Set(key, deadline)
				twin[key] = deadline
			case 3:
				_, had := twin[key]
				if got := q.Cancel(key); got != had {
					t.Fatalf("seed %d, step %d: Cancel(%s) is %v, want %v", seed, step, key, got, had)
				}
				delete(twin, key)
			case 4, 5:
				now += time.Duration(rng.IntN(4))
				most := rng.IntN(5)
				want := twin.expire(now, most)
				got := slices.Collect(q.Expire(now, most))
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: at %d %v expires, want %v", seed, step, now, got, want)
				}
				fired += len(got)
			case 6:
				b, err := q.MarshalBinary()
				again := &timers.Queue[string]{}
				if err = errors.Join(err, again.UnmarshalBinary(b)); err != nil {
					t.Fatal(err)
				}
				if second, _ := again.MarshalBinary(); !bytes.Equal(b, second) {
					t.Fatalf("seed %d, step %d: encoded %x, and %x after it was decoded", seed, step, b, second)
				}
				q = again
			case 7:
				clone := q.Clone()
				clone.Set("another", 0)
				clone.Cancel(key)
			}
			if err := same(q, twin); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		if seed > 0 && fired == 0 {
			t.Errorf("seed %d: nothing has expired", seed)
		}
	}
}

// same compares what a queue has with its twin.
func same(q *timers.Queue[string], twin naive) error {
	first, ok := q.Next()
	if q.Len() != len(twin) || ok != (len(twin) > 0) {
		return fmt.Errorf("%d timers, Next has one: %v; want %d", q.Len(), ok, len(twin))
	}
	before := time.Duration(math.MinInt64)
	for timer := range q.All() {
		d, ok := q.Deadline(timer.Key)
		switch {
		case !ok || d != timer.Deadline || twin[timer.Key] != d:
			return fmt.Errorf("%q is due at %v, %v, want %v", timer.Key, timer.Deadline, d, twin[timer.Key])
		case d < before || before == math.MinInt64 && d != first:
			return fmt.Errorf("%v after %v; Next is %v", d, before, first)
		}
		before = d
	}
	return nil
}

// TestExpireSetsAgain: the body of the loop may set its key again, and leave the loop.
func TestExpireSetsAgain(t *testing.T) {
	var q timers.Queue[int]
	for i := range 5 {
		q.Set(i, time.Duration(i))
	}
	times := 0
	for key := range q.Expire(1, 4) {
		q.Set(key, 1) // it is due at once, and bounded
		times++
	}
	if times != 4 || q.Len() != 5 {
		t.Errorf("%d expiries, %d timers; want 4 and 5", times, q.Len())
	}
	for range q.Expire(10, 10) {
		break
	}
	if q.Len() != 4 {
		t.Errorf("%d timers are left after one expiry, want 4", q.Len())
	}
}

// TestSooner: a clock hears when the first deadline becomes earlier, and not when it becomes later.
func TestSooner(t *testing.T) {
	var q timers.Queue[string]
	heard := func() bool {
		select {
		case <-q.Sooner():
			return true
		default:
			return false
		}
	}
	heard()
	other := &timers.Queue[string]{}
	other.Set("z", 1)
	for i, step := range []struct {
		does string
		f    func()
		want bool
	}{
		{"the first timer", func() { q.Set("a", 10) }, true},
		{"a later one", func() { q.Set("b", 20) }, false},
		{"the first is renewed", func() { q.Set("a", 30) }, false},
		{"another is first", func() { q.Set("b", 15) }, true},
		{"the first is cancelled", func() { q.Cancel("b") }, false},
		{"an earlier one", func() { q.Set("c", 1) }, true},
		{"a snapshot", func() { q.Replace(other) }, true},
	} {
		if step.f(); heard() != step.want {
			t.Errorf("step %d, %s: heard is %v, want %v", i, step.does, !step.want, step.want)
		}
	}
}

// TestKeys: each kind of key comes back, and a queue without an encoding says so.
func TestKeys(t *testing.T) {
	type id uint16
	tryKeys(t, "", "a", "\x00")
	tryKeys[int64](t, math.MinInt64, -1, 0, math.MaxInt64)
	tryKeys[id](t, 0, 1, math.MaxUint16)
	tryKeys[uint64](t, 0, math.MaxUint64)
	if err := new(timers.Queue[string]).UnmarshalText([]byte("?")); !errors.Is(err, timers.ErrEncoding) {
		t.Errorf("a text that is not base64: %v", err)
	}
	if _, err := new(timers.Queue[float64]).MarshalBinary(); err == nil || !strings.Contains(err.Error(), "use strings or whole numbers") {
		t.Errorf("keys of floats: %v", err)
	}
	var wide timers.Queue[uint64]
	wide.Set(1<<16, 1)
	b, err := wide.MarshalBinary()
	if err := new(timers.Queue[id]).UnmarshalBinary(b); err == nil {
		t.Error("a key of 17 bits is decoded into 16")
	}
	if err != nil {
		t.Error(err)
	}
}

func tryKeys[K interface {
	~string | ~int64 | ~uint16 | ~uint64
}](t *testing.T, all ...K) {
	t.Helper()
	var q, again timers.Queue[K]
	for i, key := range all {
		q.Set(key, []time.Duration{math.MinInt64, math.MaxInt64, 0, 0}[i])
	}
	b, err := q.MarshalBinary()
	if err = errors.Join(err, again.UnmarshalBinary(b)); err != nil {
		t.Fatal(err)
	}
	var state, restored struct{ Timers timers.Queue[K] }
	state.Timers.Replace(q.Clone())
	text, err := json.Marshal(&state)
	if err = errors.Join(err, json.Unmarshal(text, &restored)); err != nil {
		t.Fatal(err)
	}
	for _, back := range []*timers.Queue[K]{&again, &restored.Timers} {
		if !reflect.DeepEqual(slices.Collect(q.All()), slices.Collect(back.All())) {
			t.Errorf("%v became %v", slices.Collect(q.All()), slices.Collect(back.All()))
		}
	}
}

// FuzzUnmarshal: whatever the bytes are, a queue that is decoded has them as its encoding, and another one
// is as it was.
func FuzzUnmarshal(f *testing.F) {
	for _, keys := range []string{"", "a", "abcdef"} {
		var q timers.Queue[string]
		for i, key := range keys {
			q.Set(string(key), time.Duration(i*i/2)*time.Second)
		}
		b, _ := q.MarshalBinary()
		f.Add(b)
	}
	f.Add([]byte{1, 255, 255, 255, 255, 15})
	f.Add([]byte{1, 1, 0x80, 0, 0})
	f.Add([]byte{1, 2, 0, 1, 'a', 0, 1, 'a'})
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q timers.Queue[string]
		q.Set("before", 7)
		if err := q.UnmarshalBinary(b); err != nil {
			if d, ok := q.Deadline("before"); !ok || d != 7 || q.Len() != 1 || !errors.Is(err, timers.ErrEncoding) {
				t.Fatalf("after %v the queue has %d timers", err, q.Len())
			}
			return
		}
		again, err := q.MarshalBinary()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x is decoded, and encoded as %x (%v)", b, again, err)
		}
		n := q.Len()
		if expired := len(slices.Collect(q.Expire(math.MaxInt64, n+1))); expired != n {
			t.Fatalf("%d of %d timers expire", expired, n)
		}
	})
}

func BenchmarkRenew(b *testing.B) {
	var q timers.Queue[int]
	for i := range 100_000 {
		q.Set(i, time.Duration(i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Set(i%100_000, time.Duration(100_000+i))
	}
}
