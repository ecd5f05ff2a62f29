package pulse

import (
	"errors"
	"fmt"
	"testing"
)

// No record of another host panics, what is read is what was written, and what is kept is bounded by its
// bytes.
func FuzzDecode(f *testing.F) {
	list := Record{Pulses: true, Life: 5, Version: 7, HasList: true, Lines: []Line{{7, 3, 0}, {9, 1, 1 << 40}}}
	answer := Record{Answers: true, Answer: Answer{Life: 7, Version: 1, Known: true, Excluded: []uint64{4, 7}}}
	for _, r := range []Record{list, answer, {Pulses: true, Life: 5, Version: 7}, {Answers: true, Answer: Answer{Life: 7, Version: 1}}, {}} {
		f.Add(r.Append(nil))
	}
	both := list
	both.Answers, both.Answer = true, answer.Answer
	f.Add(both.Append(nil))
	f.Add([]byte{3, 5, 7, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, record []byte) {
		r, err := Decode(record)
		if err == nil {
			again, err := Decode(r.Append(nil))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
				t.Fatalf("%+v was read, and is %+v (%v) when it is written and read again", r, again, err)
			}
		}
		if cap(r.Lines)*3+cap(r.Answer.Excluded) > len(record) {
			t.Fatalf("%d bytes make %d lines and %d exclusions", len(record), cap(r.Lines), cap(r.Answer.Excluded))
		}
	})
}

// A host lists at most MaxEntries groups, so what another one sends beyond that is refused, whatever its
// length: a byte of a record can take sixteen of memory.
func TestTooManyGroupsAreRefused(t *testing.T) {
	for _, row := range []struct {
		groups  int
		refused bool
	}{{MaxEntries, false}, {MaxEntries + 1, true}, {1 << 20, true}} {
		list, answer := Record{Pulses: true, HasList: true}, Record{Answers: true, Answer: Answer{Known: true}}
		for id := range uint64(row.groups) {
			list.Lines = append(list.Lines, Line{id + 1, 1, 1})
			answer.Answer.Excluded = append(answer.Answer.Excluded, id+1)
		}
		for what, r := range map[string]Record{"a list": list, "an answer": answer} {
			if _, err := Decode(r.Append(nil)); errors.Is(err, ErrBad) != row.refused {
				t.Errorf("%s of %d groups: %v, want it refused: %v", what, row.groups, err, row.refused)
			}
		}
	}
}
