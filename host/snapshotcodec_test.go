package host

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
		{"offer", "30" + "07" + "ac02" + "03" + "65" + "8001" + h, snapshotOffer{group: 7, index: 300, term: 3, firstIndex: 101, manifestBytes: 128, hash: someHash(0xab)}.encode()},
		{"ask", "31" + "07" + h + "09" + "01" + "02" + "000003" + "03ac0201", snapshotAsk{group: 7, hash: someHash(0xab), number: 9, restarts: true, ranges: []blockRange{{manifestPart, 0, 3}, {2, 300, 1}}}.encode()},
		{"block", "32" + "07" + h + "03" + "ac02" + "68656c6c6f", snapshotBlock{group: 7, hash: someHash(0xab), at: blockAt{2, 300}, content: []byte("hello")}.encode()},
		{"end", "33" + "07" + h + "05", snapshotEnd{group: 7, hash: someHash(0xab), why: endFull}.encode()},
	} {
		if got := hex.EncodeToString(c.body); got != c.want {
			t.Errorf("%s is\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// What is written is read.
func TestSnapshotRecords(t *testing.T) {
	offer := snapshotOffer{group: 1 << 60, index: 1 << 50, term: 9, firstIndex: 1, manifestBytes: maxOfferedManifest, hash: someHash(1)}
	if got, err := decodeSnapshotOffer(offer.encode()); err != nil || got != offer {
		t.Errorf("%+v, %v, want %+v", got, err, offer)
	}
	for _, ask := range []snapshotAsk{
		{group: 1, hash: someHash(2), number: 1},
		{group: 1, hash: someHash(2), number: 1 << 63, restarts: true, ranges: []blockRange{{manifestPart, 5, 1}, {0, 0, windowBlocks - 1}}},
	} {
		if got, err := decodeSnapshotAsk(ask.encode()); err != nil || !reflect.DeepEqual(got, ask) {
			t.Errorf("%+v, %v, want %+v", got, err, ask)
		}
	}
	block := snapshotBlock{group: 3, hash: someHash(3), at: blockAt{manifestPart, 0}, content: bytes.Repeat([]byte{7}, snapshotBlockBytes)}
	if got, err := decodeSnapshotBlock(block.encode()); err != nil || !reflect.DeepEqual(got, block) {
		t.Errorf("%+v, %v", got.at, err)
	}
	for why := endDone; why <= endSenderBusy; why++ {
		end := snapshotEnd{group: 3, hash: someHash(4), why: why}
		if got, err := decodeSnapshotEnd(end.encode()); err != nil || got != end {
			t.Errorf("%+v, %v, want %+v", got, err, end)
		}
		if strings.HasPrefix(why.String(), "end ") {
			t.Errorf("reason %d has no words", why)
		}
	}
}

// What is larger than its bound, is cut off, or has something behind it is refused whole.
func TestSnapshotRecordsAreRefused(t *testing.T) {
	ask := func(ranges ...blockRange) []byte {
		return snapshotAsk{group: 1, hash: someHash(1), number: 1, ranges: ranges}.encode()
	}
	offer := snapshotOffer{group: 1, index: 1, term: 1, manifestBytes: 1, hash: someHash(1)}
	large, empty := offer, offer
	large.manifestBytes, empty.manifestBytes = maxOfferedManifest+1, 0
	cases := map[string][]byte{
		"a manifest that is too large": large.encode(),
		"an empty manifest":            empty.encode(),
		"more behind an offer":         append(offer.encode(), 0),
		"a range without blocks":       ask(blockRange{0, 0, 0}),
		"more blocks than a window":    ask(blockRange{0, 0, windowBlocks}, blockRange{1, 0, 1}),
		"a block number beyond all":    ask(blockRange{0, maxBlockNumber + 1, 1}),
		"no number":                    snapshotAsk{group: 1}.encode(),
		"an unknown flag":              func() []byte { b := ask(); b[len(b)-2] = 2; return b }(),
		"an empty block":               snapshotBlock{group: 1}.encode(),
		"a block that is too large":    snapshotBlock{group: 1, content: make([]byte, snapshotBlockBytes+1)}.encode(),
		"an unknown end":               snapshotEnd{group: 1, why: endSenderBusy + 1}.encode(),
		"no end":                       snapshotEnd{group: 1}.encode(),
		"more behind an end":           append(snapshotEnd{group: 1, why: endDone}.encode(), 0),
	}
	for what, body := range cases {
		if err := decodeAnySnapshotRecord(body); !errors.Is(err, errBadSnapshotRecord) {
			t.Errorf("%s: error %v, want errBadSnapshotRecord", what, err)
		}
	}
	for _, body := range [][]byte{offer.encode(), ask(blockRange{0, 0, 1}), snapshotEnd{group: 1, why: endDone}.encode()} {
		for n := 1; n < len(body); n++ {
			if err := decodeAnySnapshotRecord(body[:n]); !errors.Is(err, errBadSnapshotRecord) {
				t.Errorf("%d of %d bytes of kind %d: error %v, want errBadSnapshotRecord", n, len(body), body[0], err)
			}
		}
	}
}

func decodeAnySnapshotRecord(body []byte) (err error) {
	switch body[0] {
	case control.SnapshotOffer:
		_, err = decodeSnapshotOffer(body)
	case control.SnapshotAsk:
		_, err = decodeSnapshotAsk(body)
	case control.SnapshotBlock:
		_, err = decodeSnapshotBlock(body)
	case control.SnapshotEnd:
		_, err = decodeSnapshotEnd(body)
	}
	return err
}

// FuzzSnapshotRecord: whatever another host sends is refused, or it is read and means the same when it is
// written again.
func FuzzSnapshotRecord(f *testing.F) {
	f.Add(snapshotOffer{group: 1, index: 2, term: 3, firstIndex: 4, manifestBytes: 5, hash: someHash(6)}.encode())
	f.Add(snapshotAsk{group: 1, hash: someHash(2), number: 3, restarts: true, ranges: []blockRange{{manifestPart, 0, 1}, {4, 5, 6}}}.encode())
	f.Add(snapshotBlock{group: 1, hash: someHash(2), at: blockAt{3, 4}, content: []byte("content")}.encode())
	f.Add(snapshotEnd{group: 1, hash: someHash(2), why: endAbsent}.encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		var first, again any
		var err, errAgain error
		switch body[0] {
		case control.SnapshotOffer:
			var o snapshotOffer
			if o, err = decodeSnapshotOffer(body); err == nil {
				first = o
				again, errAgain = decodeSnapshotOffer(o.encode())
			}
		case control.SnapshotAsk:
			var a snapshotAsk
			if a, err = decodeSnapshotAsk(body); err == nil {
				first = a
				again, errAgain = decodeSnapshotAsk(a.encode())
			}
		case control.SnapshotBlock:
			var k snapshotBlock
			if k, err = decodeSnapshotBlock(body); err == nil {
				first = k
				again, errAgain = decodeSnapshotBlock(k.encode())
			}
		case control.SnapshotEnd:
			var e snapshotEnd
			if e, err = decodeSnapshotEnd(body); err == nil {
				first = e
				again, errAgain = decodeSnapshotEnd(e.encode())
			}
		}
		if err != nil && !errors.Is(err, errBadSnapshotRecord) {
			t.Fatalf("error %v, want errBadSnapshotRecord", err)
		}
		if errAgain != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("%+v becomes %+v, %v", first, again, errAgain)
		}
	})
}
