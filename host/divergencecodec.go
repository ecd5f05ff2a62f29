package host

import (
	"encoding/binary"
	"fmt"
)

// What members tell each other about divergence, in bodies of kind transport.Control. Numbers are uvarints;
// sums are u64, little-endian.
//
//	report:  40 │ format 1 │ group │ options sum │ version: length, bytes │ n, at most 8 │ n × checkpoint
//	         checkpoint: index, ascending │ flags u8: 1 results, 2 digest │ 3 sums: commands, results, digest
//	stop:    41 │ format 1 │ group │ index │ in u8 │ version: length, bytes │ sum
const (
	reportKind byte = 40
	stopKind   byte = 41

	// divergenceFormat changes when the sums are computed in another way: then they are not compared.
	divergenceFormat byte = 1

	reportsResults byte = 1
	reportsDigest  byte = 2
)

// divergedIn gives each DivergedIn its byte.
var divergedIn = [...]DivergedIn{DivergedOptions, DivergedCommands, DivergedResults, DivergedState}

func (r *report) encode() []byte {
	b := binary.AppendUvarint([]byte{reportKind, divergenceFormat}, r.group)
	b = binary.LittleEndian.AppendUint64(b, r.options)
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
		r.err = fmt.Errorf("%w: %s", errBadControl, fmt.Sprintf(format, args...))
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
	p := report{group: r.number(), options: r.sum(), version: r.version()}
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
	b := binary.AppendUvarint([]byte{stopKind, divergenceFormat}, o.group)
	b = binary.AppendUvarint(b, o.index)
	for i, in := range divergedIn {
		if in == o.in {
			b = append(b, byte(i))
		}
	}
	return binary.LittleEndian.AppendUint64(appendVersion(b, o.version), o.sum)
}

func decodeStop(body []byte) (stopOrder, error) {
	r := newControlReader(body)
	o := stopOrder{group: r.number(), index: r.number()}
	in := r.byte()
	if int(in) < len(divergedIn) {
		o.in = divergedIn[in]
	} else {
		r.fail("an order to stop because of difference %d, which this program does not know", in)
	}
	o.version, o.sum = r.version(), r.sum()
	if err := r.end(); err != nil {
		return stopOrder{}, err
	}
	return o, nil
}
