package raftpb

import (
	"bytes"
	"fmt"
	"testing"
)

func typeName(v any) string { return fmt.Sprintf("%T", v) }

// FuzzDecode feeds every decoder arbitrary bytes. Accepted input has one canonical encoding: encoding what
// was decoded, and decoding and encoding that once more, gives the same bytes.
func FuzzDecode(f *testing.F) {
	for _, g := range goldenVectors(f) {
		f.Add(g.bytes)
	}
	f.Add([]byte{0x3a, 0x00, 0x3a, 0x00})
	f.Add([]byte{0x72, 0x02, 0x72, 0x00})
	f.Add([]byte{0x7b, 0x08, 0x01, 0x7c})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.Clone(b)
		for name, fresh := range kinds {
			v := fresh()
			if err := v.Unmarshal(b); err != nil {
				continue
			}
			once := v.Append(nil)
			if len(once) != v.Size() {
				t.Fatalf("%s: %d bytes, Size says %d", name, len(once), v.Size())
			}
			again := fresh()
			if err := again.Unmarshal(once); err != nil {
				t.Fatalf("%s: own encoding %x is refused: %v", name, once, err)
			}
			if twice := again.Append(nil); !bytes.Equal(once, twice) {
				t.Fatalf("%s: encodes to %x, then to %x", name, once, twice)
			}
		}
		if !bytes.Equal(in, b) {
			t.Fatal("decoding changed its input")
		}
	})
}
