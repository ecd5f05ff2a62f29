package wal

import (
	"fmt"

	"github.com/millrace/millrace/wal/record"
)

// windowBytes is how much of a segment is read at once.
const windowBytes = 256 << 10

// recordWalker goes over the records of the log after a place, across the ends of segments, through a
// window of the file. Only the header of a record that the caller does not ask for has to be in the
// window. The caller knows where to end.
type recordWalker struct {
	table *table
	seg   *segment
	off   int64  // of the record that is next
	chain uint32 // before it
	last  uint32 // the segment to end in
	end   int64  // where in it, or before

	window []byte // the segment, beginning at at
	at     int64
}

// show makes the window hold n bytes at off, and more of what will be wanted. At the end of the
// segment it holds less.
func (w *recordWalker) show(n int64) ([]byte, error) {
	if w.off >= w.at && w.off+n <= w.at+int64(len(w.window)) {
		return w.window[w.off-w.at:], nil
	}
	limit := w.seg.size
	if w.seg.id == uint64(w.last) {
		limit = min(limit, max(w.end, w.off+n))
	}
	size := max(0, min(max(n, windowBytes), limit-w.off))
	if int64(cap(w.window)) < size {
		w.window = make([]byte, size)
	}
	w.window, w.at = w.window[:size], w.off
	if size == 0 {
		return nil, nil
	}
	w.table.stats.coldReads.Add(1)
	if err := w.seg.readAt(w.window, w.off); err != nil {
		w.window = w.window[:0]
		return nil, err
	}
	return w.window, nil
}

// header returns the header of the next record. At the end of a segment's records it continues in the next
// segment.
func (w *recordWalker) header() (record.Header, record.Flaw, error) {
	for {
		b, err := w.show(record.HeaderBytes)
		if err != nil {
			return record.Header{}, record.FlawNone, err
		}
		space := w.seg.size - w.off
		h, why := record.ParseHeader(b, w.seg.head.Seal(), w.off)
		if why == record.FlawShort && h.Length > 0 && h.Bytes() <= space {
			why = record.FlawNone // of the window only
		}
		if why == record.FlawNone || w.seg.id >= uint64(w.last) {
			return h, why, nil
		}
		// Whatever stands here, the records end if the next segment says so.
		at := *w
		crossed, err := w.cross()
		if crossed != record.FlawNone && why != record.FlawZero && why != record.FlawShort {
			*w, w.window = at, nil
			return h, why, nil
		}
		if crossed != record.FlawNone || err != nil {
			return record.Header{}, crossed, err
		}
	}
}

// body returns the body of the next record, whose header is h, until the next step.
func (w *recordWalker) body(h record.Header) ([]byte, record.Flaw, error) {
	b, err := w.show(h.Bytes())
	if err != nil {
		return nil, record.FlawNone, err
	}
	if int64(len(b)) < h.Bytes() {
		return nil, record.FlawShort, nil
	}
	body, why := record.ParseBody(b, h, w.chain)
	return body, why, nil
}

// skip goes to the record after the one with header h.
func (w *recordWalker) skip(h record.Header) {
	w.off += h.Bytes()
	w.chain = h.Chain
}

// cross goes to the first record of the next segment, if that says that the records of this one end here.
func (w *recordWalker) cross() (record.Flaw, error) {
	next := w.table.segment(w.seg.id + 1)
	if next == nil {
		return record.FlawNone, errDropped
	}
	from := record.End{Segment: w.seg.id, Offset: w.off, Chain: w.chain}
	var head [record.SegmentHeaderBytes]byte
	if err := next.readAt(head[:], 0); err != nil {
		return record.FlawNone, err
	}
	h, ok := record.ParseSegmentHeader(head[:])
	if !ok {
		return record.Flaw(fmt.Sprintf("the header of segment %d, which follows, is damaged", next.id)), nil
	}
	w.seg, w.off, w.chain, w.window = next, record.SegmentHeaderBytes, h.CRC, w.window[:0]
	link, why, err := w.header()
	if why != record.FlawNone || err != nil {
		return why, err
	}
	body, why, err := w.body(link)
	if why != record.FlawNone || err != nil {
		return why, err
	}
	if link.Kind != record.KindLink || record.ParseLink(link, body) != from {
		return record.Flaw(fmt.Sprintf("the records of segment %d end at %d, and segment %d says otherwise", from.Segment, from.Offset, next.id)), nil
	}
	return record.FlawNone, nil
}
