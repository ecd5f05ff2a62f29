package bulk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
)

func someHash(b byte) (h [32]byte) {
	for i := range h {
		h[i] = b
	}
	return h
}

// The records that hosts of different versions must agree on, byte for byte.
func TestSnapshotRecordsGolden(t *testing.T) {
	h := strings.Repeat("ab", 32)
	for _, c := range []struct {
		name, want string
		body       []byte
	}{
		{"offer", "30" + "07" + "ac02" + "03" + "65" + "8001" + h, Offer{Group: 7, Index: 300, Term: 3, FirstIndex: 101, ManifestBytes: 128, Hash: someHash(0xab)}.Encode()},
		{"ask", "31" + "07" + h + "09" + "01" + "02" + "000003" + "03ac0201", Ask{Group: 7, Hash: someHash(0xab), Number: 9, Restarts: true, Ranges: []Range{{ManifestPart, 0, 3}, {2, 300, 1}}}.Encode()},
		{"block", "32" + "07" + h + "03" + "ac02" + "68656c6c6f", Block{Group: 7, Hash: someHash(0xab), At: Place{2, 300}, Content: []byte("hello")}.Encode()},
		{"end", "33" + "07" + h + "05", End{Group: 7, Hash: someHash(0xab), Why: Full}.Encode()},
	} {
		if got := hex.EncodeToString(c.body); got != c.want {
			t.Errorf("%s is\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// What is written is read.
func TestSnapshotRecords(t *testing.T) {
	offer := Offer{Group: 1 << 60, Index: 1 << 50, Term: 9, FirstIndex: 1, ManifestBytes: MaxManifest, Hash: someHash(1)}
	if got, err := DecodeOffer(offer.Encode()); err != nil || got != offer {
		t.Errorf("%+v, %v, want %+v", got, err, offer)
	}
	for _, ask := range []Ask{
		{Group: 1, Hash: someHash(2), Number: 1},
		{Group: 1, Hash: someHash(2), Number: 1 << 63, Restarts: true, Ranges: []Range{{ManifestPart, 5, 1}, {0, 0, WindowBlocks - 1}}},
	} {
		if got, err := DecodeAsk(ask.Encode()); err != nil || !reflect.DeepEqual(got, ask) {
			t.Errorf("%+v, %v, want %+v", got, err, ask)
		}
	}
	block := Block{Group: 3, Hash: someHash(3), At: Place{ManifestPart, 0}, Content: bytes.Repeat([]byte{7}, BlockBytes)}
	if got, err := DecodeBlock(block.Encode()); err != nil || !reflect.DeepEqual(got, block) {
		t.Errorf("%+v, %v", got.At, err)
	}
	for why := Done; why <= SenderBusy; why++ {
		end := End{Group: 3, Hash: someHash(4), Why: why}
		if got, err := DecodeEnd(end.Encode()); err != nil || got != end {
			t.Errorf("%+v, %v, want %+v", got, err, end)
		}
		if strings.HasPrefix(why.String(), "end ") {
			t.Errorf("reason %d has no words", why)
		}
	}
}

// What is larger than its bound, is cut off, or has something behind it is refused whole.
func TestSnapshotRecordsAreRefused(t *testing.T) {
	ask := func(ranges ...Range) []byte {
		return Ask{Group: 1, Hash: someHash(1), Number: 1, Ranges: ranges}.Encode()
	}
	offer := Offer{Group: 1, Index: 1, Term: 1, ManifestBytes: 1, Hash: someHash(1)}
	large, empty := offer, offer
	large.ManifestBytes, empty.ManifestBytes = MaxManifest+1, 0
	cases := map[string][]byte{
		"a manifest that is too large": large.Encode(),
		"an empty manifest":            empty.Encode(),
		"more behind an offer":         append(offer.Encode(), 0),
		"a range without blocks":       ask(Range{0, 0, 0}),
		"more blocks than a window":    ask(Range{0, 0, WindowBlocks}, Range{1, 0, 1}),
		"a block number beyond all":    ask(Range{0, maxBlockNumber + 1, 1}),
		"no number":                    Ask{Group: 1}.Encode(),
		"an unknown flag":              func() []byte { b := ask(); b[len(b)-2] = 2; return b }(),
		"an empty block":               Block{Group: 1}.Encode(),
		"a block that is too large":    Block{Group: 1, Content: make([]byte, BlockBytes+1)}.Encode(),
		"an unknown end":               End{Group: 1, Why: SenderBusy + 1}.Encode(),
		"no end":                       End{Group: 1}.Encode(),
		"more behind an end":           append(End{Group: 1, Why: Done}.Encode(), 0),
	}
	for what, body := range cases {
		if err := decodeAnySnapshotRecord(body); !errors.Is(err, errBadRecord) {
			t.Errorf("%s: error %v, want errBadSnapshotRecord", what, err)
		}
	}
	for _, body := range [][]byte{offer.Encode(), ask(Range{0, 0, 1}), End{Group: 1, Why: Done}.Encode()} {
		for n := 1; n < len(body); n++ {
			if err := decodeAnySnapshotRecord(body[:n]); !errors.Is(err, errBadRecord) {
				t.Errorf("%d of %d bytes of kind %d: error %v, want errBadSnapshotRecord", n, len(body), body[0], err)
			}
		}
	}
}

func decodeAnySnapshotRecord(body []byte) (err error) {
	switch body[0] {
	case control.SnapshotOffer:
		_, err = DecodeOffer(body)
	case control.SnapshotAsk:
		_, err = DecodeAsk(body)
	case control.SnapshotBlock:
		_, err = DecodeBlock(body)
	case control.SnapshotEnd:
		_, err = DecodeEnd(body)
	}
	return err
}

// FuzzSnapshotRecord: whatever another host sends is refused, or it is read and means the same when it is
// written again.
func FuzzSnapshotRecord(f *testing.F) {
	f.Add(Offer{Group: 1, Index: 2, Term: 3, FirstIndex: 4, ManifestBytes: 5, Hash: someHash(6)}.Encode())
	f.Add(Ask{Group: 1, Hash: someHash(2), Number: 3, Restarts: true, Ranges: []Range{{ManifestPart, 0, 1}, {4, 5, 6}}}.Encode())
	f.Add(Block{Group: 1, Hash: someHash(2), At: Place{3, 4}, Content: []byte("content")}.Encode())
	f.Add(End{Group: 1, Hash: someHash(2), Why: Absent}.Encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		var first, again any
		var err, errAgain error
		switch body[0] {
		case control.SnapshotOffer:
			var o Offer
			if o, err = DecodeOffer(body); err == nil {
				first = o
				again, errAgain = DecodeOffer(o.Encode())
			}
		case control.SnapshotAsk:
			var a Ask
			if a, err = DecodeAsk(body); err == nil {
				first = a
				again, errAgain = DecodeAsk(a.Encode())
			}
		case control.SnapshotBlock:
			var k Block
			if k, err = DecodeBlock(body); err == nil {
				first = k
				again, errAgain = DecodeBlock(k.Encode())
			}
		case control.SnapshotEnd:
			var e End
			if e, err = DecodeEnd(body); err == nil {
				first = e
				again, errAgain = DecodeEnd(e.Encode())
			}
		}
		if err != nil && !errors.Is(err, errBadRecord) {
			t.Fatalf("error %v, want errBadSnapshotRecord", err)
		}
		if errAgain != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("%+v becomes %+v, %v", first, again, errAgain)
		}
	})
}
