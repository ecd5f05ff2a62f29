package host

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/host/internal/control"
)

// What is encoded is decoded, and every proper prefix and every extension is refused.
func TestReadRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := readRecord{group: rapid.Uint64().Draw(rt, "group"), life: rapid.Uint64().Draw(rt, "life"), number: rapid.Uint64().Draw(rt, "number")}
		kind := control.ReadQuestion
		if rapid.Bool().Draw(rt, "answer") {
			kind, r.index = control.ReadAnswer, rapid.Uint64().Draw(rt, "index")
		}
		body := r.encode(kind)
		if back, err := decodeRead(body); err != nil || back != r {
			rt.Fatalf("have %+v, %v, want %+v", back, err, r)
		}
		if cut := rapid.IntRange(1, len(body)-1).Draw(rt, "cut"); cut < len(body) {
			if back, err := decodeRead(body[:cut]); err == nil {
				rt.Fatalf("%d of %d bytes are read as %+v", cut, len(body), back)
			}
		}
		if back, err := decodeRead(append(body, 0)); err == nil {
			rt.Fatalf("a byte too many is read as %+v", back)
		}
	})
}

func FuzzReadRecord(f *testing.F) {
	f.Add(readRecord{group: 1, life: 2, number: 3}.encode(control.ReadQuestion))
	f.Add(readRecord{group: 1, life: 2, number: 3, index: 4}.encode(control.ReadAnswer))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 || body[0] != control.ReadQuestion && body[0] != control.ReadAnswer {
			return
		}
		if r, err := decodeRead(body); err == nil {
			if again, err := decodeRead(r.encode(body[0])); err != nil || again != r {
				t.Fatalf("%x: %+v, again %+v, %v", body, r, again, err)
			}
		}
	})
}

// The heap of reads gives the lowest index first, whatever is taken out of the middle.
func TestReadHeap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h readHeap
		in := map[*Read]bool{}
		var all []*Read
		for range rapid.IntRange(0, 100).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				if len(all) > 0 {
					r := all[rapid.IntRange(0, len(all)-1).Draw(rt, "which")]
					h.remove(r)
					delete(in, r)
				}
			default:
				r := &Read{at: ReadAt{Index: rapid.Uint64Range(0, 20).Draw(rt, "index")}}
				h.push(r)
				in[r], all = true, append(all, r)
			}
			lowest := h.first()
			if (lowest == nil) != (len(in) == 0) || len(h) != len(in) {
				rt.Fatalf("%d reads, want %d", len(h), len(in))
			}
			for r := range in {
				if r.at.Index < lowest.at.Index {
					rt.Fatalf("first is %d, want %d", lowest.at.Index, r.at.Index)
				}
			}
		}
	})
}

// What a host says that is no member of the group answers no read: an index that is never reached would hang
// all bounded reads from then on.
func TestAnswersOfStrangersAreDropped(t *testing.T) {
	l := openTestHost(t, 3)
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, Members: []uint64{1, 2}}, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []uint64{2, 3} {
		r := readRecord{group: 2, life: l.life(), number: 1, index: 1 << 60}
		for _, kind := range []byte{control.ReadQuestion, control.ReadAnswer} {
			if err := l.takeRead(from, r.encode(kind)); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.inbox.mu.Lock()
	defer g.inbox.mu.Unlock()
	for _, records := range [][]readRecord{g.inbox.waiting.readQuestions, g.inbox.waiting.readAnswers} {
		if len(records) != 1 || records[0].from != 2 {
			t.Errorf("the turn gets %+v, want what host 2 has sent", records)
		}
	}
}

// Of one life of a host the record with the highest number stays, because it covers the others. A host that
// has started again counts from the beginning, so its record takes the place whatever its number is.
func TestTheLatestRecordOfEachHostStays(t *testing.T) {
	var records []readRecord
	for _, step := range []struct {
		put  readRecord
		want uint64 // the number that stays for that host
	}{
		{readRecord{from: 1, life: 7, number: 5}, 5},
		{readRecord{from: 1, life: 7, number: 4}, 5},
		{readRecord{from: 2, life: 9, number: 3}, 3},
		{readRecord{from: 1, life: 7, number: 6}, 6},
		{readRecord{from: 1, life: 8, number: 1}, 1},
		{readRecord{from: 1, life: 8, number: 2}, 2},
	} {
		records = putLatest(records, step.put)
		i := slices.IndexFunc(records, func(r readRecord) bool { return r.from == step.put.from })
		if have := records[i]; have.number != step.want || have.life != step.put.life {
			t.Errorf("after %+v there is %+v, want number %d", step.put, have, step.want)
		}
	}
	if len(records) != 2 {
		t.Errorf("%d records of 2 hosts", len(records))
	}
}
