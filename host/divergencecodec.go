package host

import (
	"encoding/binary"
	"fmt"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
)

// What members tell each other about divergence, in bodies of kind transport.Control. Numbers are uvarints;
// sums are u64, little-endian.
//
//	report:  40 │ format 2 │ group │ options sum │ form sum │ told u8: 0 or 1 │ version: length, bytes │
//	         n, at most 8 │ n × checkpoint
//	         checkpoint: index, ascending │ flags u8: 1 results, 2 digest │ 3 sums: commands, results, digest
//	stop:    41 │ format 2 │ group │ index │ in u8 │ form sum │ version: length, bytes │ sum
//	finding: 42 │ format 2 │ group │ index, 0: the members agree │ agreed │ in u8 │ version: length, bytes │
//	         n, at most 255 │ n × member
//	         member: id │ minority u8: 0 or 1 │ sum │ version: length, bytes
const (
	// divergenceFormat changes when the sums are computed in another way: then they are not compared. A record
	// of another format is left alone.
	divergenceFormat byte = 2

	reportsResults byte = 1
	reportsDigest  byte = 2
)

// divergedIn gives each DivergedIn its byte.
var divergedIn = [...]event.DivergedIn{event.DivergedOptions, event.DivergedCommands, event.DivergedResults, event.DivergedState}

func (r *report) encode() []byte {
	b := binary.AppendUvarint([]byte{control.Report, divergenceFormat}, r.group)
	b = binary.LittleEndian.AppendUint64(b, r.options)
	b = binary.LittleEndian.AppendUint64(b, r.form)
	b = append(b, entry.BoolByte(r.told))
	b = appendVersion(b, r.version)
	b = binary.AppendUvarint(b, uint64(len(r.checkpoints)))
	for _, c := range r.checkpoints {
		flags := byte(0)
		if c.hasResults {
			flags |= reportsResults
		}
		if c.hasDigest {
			flags |= reportsDigest
		}
		b = append(binary.AppendUvarint(b, c.index), flags)
		for _, sum := range []uint64{c.commands, c.results, c.digest} {
			b = binary.LittleEndian.AppendUint64(b, sum)
		}
	}
	return b
}

func appendVersion(b []byte, version string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(version))), version...)
}

// controlReader reads a control record about divergence. After the first error it returns zeros.
type controlReader struct {
	rest []byte
	err  error
}

func newControlReader(body []byte) *controlReader {
	r := &controlReader{}
	if len(body) < 2 || body[1] != divergenceFormat {
		r.fail("%d bytes about divergence, in a form that this program does not know", len(body))
		return r
	}
	r.rest = body[2:]
	return r
}

func (r *controlReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", control.ErrBad, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

func (r *controlReader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.fail("what members say about divergence is cut off")
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *controlReader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.bytes(max(n, 0))
	if n <= 0 {
		r.fail("what members say about divergence ends in the middle of a number")
		return 0
	}
	return v
}

func (r *controlReader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *controlReader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail("what members say about divergence has %d in place of 0 or 1", b)
	}
	return b == 1
}

// in reads what members differ in.
func (r *controlReader) in() event.DivergedIn {
	if in := r.byte(); int(in) < len(divergedIn) {
		return divergedIn[in]
	} else {
		r.fail("members differ in %d, which this program does not know", in)
	}
	return ""
}

func (r *controlReader) sum() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *controlReader) version() string {
	n := r.number()
	if n > maxVersionBytes {
		r.fail("the version of a state machine has %d bytes, want at most %d", n, maxVersionBytes)
		return ""
	}
	return string(r.bytes(int(n)))
}

func (r *controlReader) end() error {
	if len(r.rest) > 0 {
		r.fail("%d bytes follow what members say about divergence", len(r.rest))
	}
	return r.err
}

func decodeReport(body []byte) (report, error) {
	r := newControlReader(body)
	p := report{group: r.number(), options: r.sum(), form: r.sum(), told: r.bool(), version: r.version()}
	n := r.number()
	if n > sentCheckpoints {
		r.fail("a report of %d checkpoints, want at most %d", n, sentCheckpoints)
	}
	for last := uint64(0); n > 0 && r.err == nil; n-- {
		c := checkpoint{index: r.number()}
		flags := r.byte()
		c.hasResults, c.hasDigest = flags&reportsResults != 0, flags&reportsDigest != 0
		c.commands, c.results, c.digest = r.sum(), r.sum(), r.sum()
		if r.err == nil && (c.index <= last || flags > reportsResults|reportsDigest) {
			r.fail("a checkpoint at entry %d with flags %#x follows one at entry %d", c.index, flags, last)
		}
		last = c.index
		p.checkpoints = append(p.checkpoints, c)
	}
	if err := r.end(); err != nil {
		return report{}, err
	}
	return p, nil
}

func (o *stopOrder) encode() []byte {
	b := binary.AppendUvarint([]byte{control.Stop, divergenceFormat}, o.group)
	b = appendIn(binary.AppendUvarint(b, o.index), o.in)
	b = binary.LittleEndian.AppendUint64(b, o.form)
	return binary.LittleEndian.AppendUint64(appendVersion(b, o.version), o.sum)
}

func appendIn(b []byte, in event.DivergedIn) []byte {
	return append(b, byte(max(slices.Index(divergedIn[:], in), 0)))
}

func decodeStop(body []byte) (stopOrder, error) {
	r := newControlReader(body)
	o := stopOrder{group: r.number(), index: r.number(), in: r.in(), form: r.sum(), version: r.version(), sum: r.sum()}
	if err := r.end(); err != nil {
		return stopOrder{}, err
	}
	return o, nil
}

// encodeFinding encodes what a leader tells the members: what it has found, or that they agree (Index 0).
func encodeFinding(d *event.Diverged) []byte {
	b := binary.AppendUvarint([]byte{control.Finding, divergenceFormat}, d.Group)
	b = binary.AppendUvarint(binary.AppendUvarint(b, d.Index), d.Agreed)
	b = appendVersion(appendIn(b, d.In), d.Version)
	members := d.Members[:min(len(d.Members), 255)]
	b = append(b, byte(len(members)))
	for _, m := range members {
		b = append(binary.AppendUvarint(b, m.ID), entry.BoolByte(m.Minority))
		b = appendVersion(binary.LittleEndian.AppendUint64(b, m.Sum), m.Version)
	}
	return b
}

func decodeFinding(body []byte) (event.Diverged, error) {
	r := newControlReader(body)
	d := event.Diverged{Group: r.number(), Index: r.number(), Agreed: r.number(), In: r.in(), Version: r.version()}
	for n := r.byte(); n > 0 && r.err == nil; n-- {
		m := event.DivergedMember{ID: r.number(), Minority: r.bool(), Sum: r.sum(), Version: r.version()}
		if last := len(d.Members) - 1; last >= 0 && m.ID <= d.Members[last].ID {
			r.fail("member %d follows member %d among those that differ", m.ID, d.Members[last].ID)
		}
		d.Members = append(d.Members, m)
	}
	if err := r.end(); err != nil {
		return event.Diverged{}, err
	}
	return d, nil
}

// isForeign reports whether a record about divergence is of another format.
func isForeign(body []byte) bool { return len(body) > 1 && body[1] != divergenceFormat }
