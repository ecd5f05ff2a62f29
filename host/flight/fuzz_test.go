package flight

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// FuzzReplay: whatever is in a file, or in the records of a stretch, reading and replaying it end with a
// result or an error, and explain every step. Records have no checks of their own, so that the second half of
// the inputs gets behind the checks of the file.
func FuzzReplay(f *testing.F) {
	for seed := range uint64(2) {
		w := newFixture(f, seed, MinBytes, Data(seed))
		w.run(60)
		var b bytes.Buffer
		w.members[0].must(w.members[0].recorder.WriteTo(&b, Meta{Tick: time.Millisecond}))
		f.Add(b.Bytes())
		f.Add(w.members[1].file().Stretches[0].records)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Read(bytes.NewReader(b))
		if err != nil {
			file = &File{Stretches: []Stretch{{Group: 1, Number: 1, records: b}}}
		}
		for _, g := range file.Groups() {
			r, err := Replay(context.Background(), file, g, func(s *Step) error {
				if text := s.Input() + strings.Join(s.Effects(), "\n"); text == "" {
					t.Error("a step without a sentence")
				}
				return nil
			})
			if r.Steps == 0 && err == nil && len(file.Stretches) > 0 && len(file.Stretches[0].records) > 0 {
				t.Error("records without a step, and no error")
			}
		}
	})
}
