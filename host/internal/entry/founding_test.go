package entry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/transport"
)

// What is encoded is decoded again, and bytes that are not an encoding are refused or mean what they encode.
func TestFoundingCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Binding
		for _, id := range rapid.SliceOfNDistinct(rapid.Uint64(), 1, 9, rapid.ID).Draw(t, "ids") {
			b = append(b, BoundMember{ID: id, Incarnation: transport.Incarnation{1, byte(id), 15: rapid.Byte().Draw(t, "incarnation")}})
		}
		slices.SortFunc(b, func(a, c BoundMember) int {
			if a.ID < c.ID {
				return -1
			}
			return 1
		})
		data := EncodeFound(b)
		if back, err := DecodeFounding(data); err != nil || !slices.Equal(back, b) {
			t.Fatalf("%v became %v (%v)", b, back, err)
		}
		for _, m := range b {
			if i, bound := b.Of(m.ID); !bound || i != m.Incarnation {
				t.Fatalf("%v binds host %d to %v, %v", b, m.ID, i, bound)
			}
		}
		promise := time.Duration(rapid.Int64Range(1, int64(MaxPromise)).Draw(t, "promise"))
		promised := binary.LittleEndian.AppendUint64(slices.Clone(data), uint64(promise))
		promised[0] |= FoundPromises
		if back, err := DecodeFounding(promised); err != nil || !slices.Equal(back, b) || PromiseOf(promised) != promise || PromiseOf(data) != 0 {
			t.Fatalf("%v with promises of %v became %v with %v (%v)", b, promise, back, PromiseOf(promised), err)
		}
		for _, wrong := range []uint64{0, uint64(MaxPromise) + 1, 1 << 63} {
			binary.LittleEndian.PutUint64(promised[len(data):], wrong)
			if _, err := DecodeFounding(promised); !errors.Is(err, ErrBadFounding) {
				t.Fatalf("a promise of %d ns is accepted (%v)", wrong, err)
			}
		}
		mangled := slices.Clone(data)
		mangled[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= rapid.Byte().Draw(t, "bits")
		mangled = mangled[:rapid.IntRange(0, len(mangled)).Draw(t, "length")]
		switch back, err := DecodeFounding(mangled); {
		case err != nil:
			if !errors.Is(err, ErrBadFounding) {
				t.Fatalf("%v", err)
			}
		case back == nil && !bytes.Equal(mangled, EncodeFounded()), back != nil && !bytes.Equal(EncodeFound(back), mangled):
			t.Fatalf("%x is accepted as %v", mangled, back)
		}
	})
}
