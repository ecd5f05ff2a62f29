package flight

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"runtime/debug"
	"slices"
	"time"
)

// A recording on a disk. All numbers are varints, if nothing else is said. A check is the CRC-32C, in 4
// bytes, little endian, of everything between the end of the part before and the check.
//
//	magic    16 bytes "millrace flight\x01": the last is the version of the format
//	header   length, Meta as JSON, check
//	stretch  'S', group, number, time, continues, length, records, check     any number of them
//	end      'E', number of stretches, check
//
// The time of a stretch is that of its beginning, in nanoseconds of Meta.Clock. A stretch continues (1) if it
// begins where the stretch of the same group before it ends. Stretches are sorted by group and number. A file
// without an end is cut off. Records are encoded as codec.go says; each stretch begins with a Start or a
// Checkpoint.

const (
	magic = "millrace flight\x01"

	stretchMark, endMark = 'S', 'E'

	// MaxFileBytes is the longest file that is read.
	MaxFileBytes = 1 << 30
	maxMetaBytes = 1 << 20
)

// Meta says where a recording comes from.
type Meta struct {
	Host    uint64 `json:"host"`
	Cluster uint64 `json:"cluster,omitempty"`
	Version string `json:"version"` // of the program that recorded
	Reason  string `json:"reason"`  // why the file was written
	// WallMillis is when it was written, in milliseconds since 1970, and Clock the same by the host's clock.
	WallMillis int64         `json:"wall_ms"`
	Clock      time.Duration `json:"clock"`
	Tick       time.Duration `json:"tick"` // the length of one
	// Data says which part of the users' commands is in the file.
	Data string `json:"data"`
}

// Version names the version of this program, as a file does.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return info.Main.Version + " " + s.Value
			}
		}
		return info.Main.Version
	}
	return "unknown"
}

// WriteTo writes everything that is recorded of the given groups, or of all if none are given, as a file.
// Groups may record meanwhile: of each, the records end at some whole one.
func (r *Recorder) WriteTo(w io.Writer, m Meta, groups ...uint64) error {
	m.Clock, m.Data = r.now(), r.data.String()
	stretches := r.stretches(groups)
	out := bufio.NewWriter(w)
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, _ = out.WriteString(magic) // an error stays until Flush
	writePart(out, appendBytes(nil, text))
	written := uint64(0)
	for _, s := range stretches {
		records := s.bytes()
		if len(records) == 0 {
			continue // it has just begun
		}
		written++
		head := []byte{stretchMark}
		for _, v := range [...]uint64{s.group, s.seq, uint64(s.at)} {
			head = binary.AppendUvarint(head, v)
		}
		writePart(out, appendBytes(appendBool(head, s.continues), records))
	}
	writePart(out, binary.AppendUvarint([]byte{endMark}, written))
	return out.Flush()
}

func writePart(out *bufio.Writer, b []byte) {
	_, _ = out.Write(binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

// stretches returns the stretches of the given groups, or of all.
func (r *Recorder) stretches(groups []uint64) []*stretch {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.full)
	for _, s := range r.open {
		all = append(all, s)
	}
	if len(groups) > 0 {
		all = slices.DeleteFunc(all, func(s *stretch) bool { return !slices.Contains(groups, s.group) })
	}
	slices.SortFunc(all, func(a, b *stretch) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.seq, b.seq)) })
	return all
}

// Bytes returns the memory that the recorder uses.
func (r *Recorder) Bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// File is a recording.
type File struct {
	Meta      Meta
	Stretches []Stretch // by group and number
	// Cut says that the end of the file is missing: it was cut off, or is still being written. What is before
	// the cut is whole.
	Cut bool
}

// Stretch is a stretch of a group's recording that replays by itself.
type Stretch struct {
	Group, Number uint64
	At            time.Time // of its beginning, by the wall clock when the file was written
	Continues     bool
	records       []byte
}

// Groups returns the groups of a file, in ascending order.
func (f *File) Groups() (groups []uint64) {
	for i := range f.Stretches {
		if g := f.Stretches[i].Group; len(groups) == 0 || groups[len(groups)-1] != g {
			groups = append(groups, g)
		}
	}
	return groups
}

// ErrForeign is the error of Read if the input is no recording at all.
var ErrForeign = errors.New("it is no recording of a flight recorder")

// ErrDamaged is the error of Read if a part of the input is not what was written.
var ErrDamaged = errors.New("the recording is damaged")

// Read reads a recording. A file that is cut off is no error (File.Cut). Otherwise the error is ErrForeign,
// ErrDamaged, or that of r.
func Read(r io.Reader) (*File, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > MaxFileBytes:
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrForeign, int64(MaxFileBytes))
	case !bytes.HasPrefix(b, []byte(magic[:len(magic)-1])):
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrForeign, magic[:len(magic)-1])
	case len(b) < len(magic):
		return &File{Cut: true}, nil
	case b[len(magic)-1] != magic[len(magic)-1]:
		return nil, fmt.Errorf("%w: its format is version %d, and this program reads version %d; use the millrace of the host's version", ErrForeign, b[len(magic)-1], magic[len(magic)-1])
	}
	f := &File{}
	p := parts{b: b, rest: b[len(magic):]}
	if err := f.read(&p); err != nil {
		return nil, fmt.Errorf("%w: byte %d: %w", ErrDamaged, len(b)-len(p.rest), err)
	}
	return f, nil
}

// parts reads the parts of a file.
type parts struct{ b, rest []byte }

// errCut ends the reading of a file without its end.
var errCut = errors.New("it is cut off")

// part reads a part: its fields by read, and then its check.
func (p *parts) part(read func(d *decoder)) error {
	d := decoder{b: p.rest}
	read(&d)
	body := len(p.rest) - len(d.b)
	check := d.hash()
	switch {
	case errors.Is(d.err, errShort):
		return errCut
	case d.err != nil:
		return d.err
	case check != crc32.Checksum(p.rest[:body], castagnoli):
		return errors.New("the check of a part does not match")
	}
	p.rest = d.b
	return nil
}

func (f *File) read(p *parts) error {
	var text []byte
	err := p.part(func(d *decoder) {
		if text = d.bytes(); len(text) > maxMetaBytes {
			d.fail("the header has %d bytes, want at most %d", len(text), maxMetaBytes)
		}
	})
	if err == nil {
		err = json.Unmarshal(text, &f.Meta)
	}
	for ended := false; err == nil && !ended; {
		ended, err = f.readStretch(p)
	}
	if errors.Is(err, errCut) {
		f.Cut = true
		return nil
	}
	if err == nil && len(p.rest) > 0 {
		err = fmt.Errorf("%d bytes follow its end", len(p.rest))
	}
	return err
}

// readStretch reads a stretch or the end.
func (f *File) readStretch(p *parts) (ended bool, err error) {
	var s Stretch
	var records []byte
	var count uint64
	err = p.part(func(d *decoder) {
		switch mark := d.byte(); {
		case d.err != nil:
		case mark == endMark:
			ended, count = true, d.uint()
		case mark == stretchMark:
			s.Group, s.Number = d.uint(), d.uint()
			s.At = time.UnixMilli(f.Meta.WallMillis).Add(time.Duration(d.uint()) - f.Meta.Clock)
			s.Continues = d.byte() == 1
			records = d.bytes()
		default:
			d.fail("a part has the unknown mark %q", mark)
		}
	})
	switch {
	case err != nil:
		return false, err
	case ended && count != uint64(len(f.Stretches)):
		return false, fmt.Errorf("it has %d stretches, and its end says %d", len(f.Stretches), count)
	case ended:
		return true, nil
	}
	if n := len(f.Stretches); n > 0 && cmp.Or(cmp.Compare(s.Group, f.Stretches[n-1].Group), cmp.Compare(s.Number, f.Stretches[n-1].Number)) <= 0 {
		return false, errors.New("its stretches are not in order")
	}
	s.records = records
	f.Stretches = append(f.Stretches, s)
	return false, nil
}

// Records returns the records of a stretch, one after another, and at last the error if one is malformed.
func (s *Stretch) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for d := (decoder{b: s.records}); len(d.b) > 0; {
			if r, err := d.next(); !yield(r, err) || err != nil {
				return
			}
		}
	}
}
