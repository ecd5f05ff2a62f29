package reads

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/outcome"
	"pgregory.net/rapid"
)

// What is encoded is decoded, and every proper prefix and every extension is refused.
func TestReadRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := Record{Group: rapid.Uint64().Draw(rt, "group"), Life: rapid.Uint64().Draw(rt, "life"), Number: rapid.Uint64().Draw(rt, "number")}
		body, question := r.Question(), rapid.Bool().Draw(rt, "question")
		if !question {
			r.Index = rapid.Uint64().Draw(rt, "index")
			body = r.Answer()
		}
		if back, is, err := DecodeRecord(body); err != nil || back != r || is != question {
			rt.Fatalf("have %+v, %v, want %+v", back, err, r)
		}
		if cut := rapid.IntRange(1, len(body)-1).Draw(rt, "cut"); cut < len(body) {
			if back, _, err := DecodeRecord(body[:cut]); err == nil {
				rt.Fatalf("%d of %d bytes are read as %+v", cut, len(body), back)
			}
		}
		if back, _, err := DecodeRecord(append(body, 0)); err == nil {
			rt.Fatalf("a byte too many is read as %+v", back)
		}
	})
}

func FuzzReadRecord(f *testing.F) {
	f.Add(Record{Group: 1, Life: 2, Number: 3}.Question())
	f.Add(Record{Group: 1, Life: 2, Number: 3, Index: 4}.Answer())
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 || body[0] != control.ReadQuestion && body[0] != control.ReadAnswer {
			return
		}
		if r, question, err := DecodeRecord(body); err == nil {
			again := r.Answer()
			if question {
				again = r.Question()
			}
			if is, _, err := DecodeRecord(again); err != nil || is != r {
				t.Fatalf("%x: %+v, again %+v, %v", body, r, is, err)
			}
		}
	})
}

// The heap of reads gives the lowest index first, whatever is taken out of the middle.
func TestReadHeap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h heap
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
				r := &Read{at: outcome.ReadAt{Index: rapid.Uint64Range(0, 20).Draw(rt, "index")}}
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

// Of one life of a host the record with the highest number stays, because it covers the others. A host that
// has started again counts from the beginning, so its record takes the place whatever its number is.
func TestTheLatestRecordOfEachHostStays(t *testing.T) {
	var records []Record
	for _, step := range []struct {
		put  Record
		want uint64 // the number that stays for that host
	}{
		{Record{From: 1, Life: 7, Number: 5}, 5},
		{Record{From: 1, Life: 7, Number: 4}, 5},
		{Record{From: 2, Life: 9, Number: 3}, 3},
		{Record{From: 1, Life: 7, Number: 6}, 6},
		{Record{From: 1, Life: 8, Number: 1}, 1},
		{Record{From: 1, Life: 8, Number: 2}, 2},
	} {
		records = keepLatest(records, step.put)
		i := slices.IndexFunc(records, func(r Record) bool { return r.From == step.put.From })
		if have := records[i]; have.Number != step.want || have.Life != step.put.Life {
			t.Errorf("after %+v there is %+v, want number %d", step.put, have, step.want)
		}
	}
	if len(records) != 2 {
		t.Errorf("%d records of 2 hosts", len(records))
	}
}
