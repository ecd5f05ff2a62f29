package divergence

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
)

// What members tell each other about divergence, in bodies of kind transport.Control. Numbers are uvarints;
// sums are u64, little-endian.
//
//	report:  40 │ format 3 │ group │ options sum │ told u8: 0 or 1 │ form: length, bytes │
//	         states u8: 0 or 1 │ version: length, bytes │ n, at most 8 │ n × checkpoint
//	         checkpoint: index, ascending │ flags u8: 1 results, 2 digest │ 3 sums: commands, results, digest
//	stop:    41 │ format 3 │ group │ index │ in u8 │ form: length, bytes │ version: length, bytes │ sum
//	finding: 42 │ format 3 │ group │ index, 0: the members agree │ agreed │ in u8 │ version: length, bytes │
//	         n, at most 255 │ n × member
//	         member: id │ minority u8: 0 or 1 │ sum │ version: length, bytes
const (
	// format changes when the sums are computed in another way: then they are not compared. A record
	// of another format is left alone.
	format byte = 3

	reportsResults byte = 1
	reportsDigest  byte = 2
)

// MaxVersion bounds Machine.Version, in bytes.
const MaxVersion = 128

// Record is what a member tells another: *Report, *Order or *Finding.
type Record interface {
	Encode() []byte
	of() uint64
}

func (r *Report) of() uint64  { return r.Group }
func (o *Order) of() uint64   { return o.Group }
func (f *Finding) of() uint64 { return f.Group }

// Decode decodes a record, and returns the group that it is about. The record is nil if it has another
// format: then it is left alone. An error is control.ErrBad.
func Decode(body []byte) (r Record, group uint64, err error) {
	if len(body) > 1 && body[1] != format {
		return nil, 0, nil
	}
	switch body[0] {
	case control.Report:
		r, err = decodeReport(body)
	case control.Stop:
		r, err = decodeOrder(body)
	default:
		r, err = decodeFinding(body)
	}
	if err != nil {
		return nil, 0, err
	}
	return r, r.of(), nil
}

// divergedIn gives each DivergedIn its byte.
var divergedIn = [...]event.DivergedIn{event.DivergedOptions, event.DivergedCommands, event.DivergedResults, event.DivergedState}

// Encode implements Record.
func (r *Report) Encode() []byte {
	b := binary.AppendUvarint([]byte{control.Report, format}, r.Group)
	b = binary.LittleEndian.AppendUint64(b, r.Options)
	b = appendText(append(b, entry.BoolByte(r.Told)), r.Watch.Form)
	b = appendText(append(b, entry.BoolByte(r.Watch.States)), r.Version)
	b = binary.AppendUvarint(b, uint64(len(r.Checkpoints)))
	for _, c := range r.Checkpoints {
		flags := byte(0)
		if c.HasResults {
			flags |= reportsResults
		}
		if c.HasDigest {
			flags |= reportsDigest
		}
		b = append(binary.AppendUvarint(b, c.Index), flags)
		for _, sum := range []uint64{c.Commands, c.Results, c.Digest} {
			b = binary.LittleEndian.AppendUint64(b, sum)
		}
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// reader reads a control record about divergence. After the first error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func newReader(body []byte) *reader {
	r := &reader{}
	if len(body) < 2 || body[1] != format {
		r.fail("%d bytes about divergence, in a form that this program does not know", len(body))
		return r
	}
	r.rest = body[2:]
	return r
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", control.ErrBad, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

func (r *reader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.fail("what members say about divergence is cut off")
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.bytes(max(n, 0))
	if n <= 0 {
		r.fail("what members say about divergence ends in the middle of a number")
		return 0
	}
	return v
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail("what members say about divergence has %d in place of 0 or 1", b)
	}
	return b == 1
}

// in reads what members differ in.
func (r *reader) in() event.DivergedIn {
	if in := r.byte(); int(in) < len(divergedIn) {
		return divergedIn[in]
	} else {
		r.fail("members differ in %d, which this program does not know", in)
	}
	return ""
}

func (r *reader) sum() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) version() string { return r.text("version of a state machine", MaxVersion) }

func (r *reader) form() string { return r.text("form of results", MaxForm) }

func (r *reader) text(what string, most uint64) string {
	n := r.number()
	if n > most {
		r.fail("the %s has %d bytes, want at most %d", what, n, most)
		return ""
	}
	return string(r.bytes(int(n)))
}

func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail("%d bytes follow what members say about divergence", len(r.rest))
	}
	return r.err
}

func decodeReport(body []byte) (*Report, error) {
	r := newReader(body)
	p := &Report{Group: r.number(), Options: r.sum(), Told: r.bool(), Watch: Watch{Form: r.form(), States: r.bool()}, Version: r.version()}
	n := r.number()
	if n > sentCheckpoints {
		r.fail("a report of %d checkpoints, want at most %d", n, sentCheckpoints)
	}
	for last := uint64(0); n > 0 && r.err == nil; n-- {
		c := Checkpoint{Index: r.number()}
		flags := r.byte()
		c.HasResults, c.HasDigest = flags&reportsResults != 0, flags&reportsDigest != 0
		c.Commands, c.Results, c.Digest = r.sum(), r.sum(), r.sum()
		if r.err == nil && (c.Index <= last || flags > reportsResults|reportsDigest) {
			r.fail("a checkpoint at entry %d with flags %#x follows one at entry %d", c.Index, flags, last)
		}
		last = c.Index
		p.Checkpoints = append(p.Checkpoints, c)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return p, nil
}

// Encode implements Record.
func (o *Order) Encode() []byte {
	b := binary.AppendUvarint([]byte{control.Stop, format}, o.Group)
	b = appendIn(binary.AppendUvarint(b, o.Index), o.In)
	return binary.LittleEndian.AppendUint64(appendText(appendText(b, o.Form), o.Version), o.Sum)
}

func appendIn(b []byte, in event.DivergedIn) []byte {
	return append(b, byte(max(slices.Index(divergedIn[:], in), 0)))
}

func decodeOrder(body []byte) (*Order, error) {
	r := newReader(body)
	o := &Order{Group: r.number(), Index: r.number(), In: r.in(), Form: r.form(), Version: r.version(), Sum: r.sum()}
	if err := r.end(); err != nil {
		return nil, err
	}
	return o, nil
}

// Encode implements Record.
func (d *Finding) Encode() []byte {
	b := binary.AppendUvarint([]byte{control.Finding, format}, d.Group)
	b = binary.AppendUvarint(binary.AppendUvarint(b, d.Index), d.Agreed)
	b = appendText(appendIn(b, d.In), d.Version)
	members := d.Members[:min(len(d.Members), 255)]
	b = append(b, byte(len(members)))
	for _, m := range members {
		b = append(binary.AppendUvarint(b, m.ID), entry.BoolByte(m.Minority))
		b = appendText(binary.LittleEndian.AppendUint64(b, m.Sum), m.Version)
	}
	return b
}

func decodeFinding(body []byte) (*Finding, error) {
	r := newReader(body)
	d := &Finding{Group: r.number(), Index: r.number(), Agreed: r.number(), In: r.in(), Version: r.version()}
	for n := r.byte(); n > 0 && r.err == nil; n-- {
		m := event.DivergedMember{ID: r.number(), Minority: r.bool(), Sum: r.sum(), Version: r.version()}
		if last := len(d.Members) - 1; last >= 0 && m.ID <= d.Members[last].ID {
			r.fail("member %d follows member %d among those that differ", m.ID, d.Members[last].ID)
		}
		d.Members = append(d.Members, m)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return d, nil
}
