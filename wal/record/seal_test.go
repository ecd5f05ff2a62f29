package record

import "testing"

// FirstNonZero looks at whole words first, and then at single bytes.
func TestFirstNonZero(t *testing.T) {
	for n := range 20 {
		zeros := make([]byte, n)
		if have := FirstNonZero(zeros); have != n || !AllZero(zeros) {
			t.Errorf("%d zeros: %d", n, have)
		}
		for at := range n {
			for _, v := range []byte{1, 0x80} {
				b := make([]byte, n)
				b[at] = v
				if have := FirstNonZero(b); have != at || AllZero(b) {
					t.Errorf("%d bytes with %#x at %d: %d", n, v, at, have)
				}
			}
		}
	}
}

// A segment whose header is damaged is read with the salt that its link shows. One without a valid link has
// the seal of the first version, which has no salt.
func TestGuessSeal(t *testing.T) {
	want := Seal{Segment: 5, Salt: 0x5a17_0123_4567, Version: FormatVersion}
	data := make([]byte, SegmentHeaderBytes+HeaderBytes+64)
	link := Header{Kind: KindLink, Length: LinkBytes}
	PutHeader(data[SegmentHeaderBytes:], link, want, SegmentHeaderBytes)
	if have := GuessSeal(data, 5); have != want {
		t.Errorf("have %+v, want %+v", have, want)
	}
	first := Seal{Segment: 5, Version: FirstVersion}
	PutHeader(data[SegmentHeaderBytes:], Header{Kind: KindWatermark}, want, SegmentHeaderBytes)
	if have := GuessSeal(data, 5); have != first {
		t.Errorf("without a link: have %+v, want %+v", have, first)
	}
	if have := GuessSeal(data[:SegmentHeaderBytes], 5); have != (Seal{}) {
		t.Errorf("of a segment that is cut short: %+v", have)
	}
}
