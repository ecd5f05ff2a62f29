package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/millrace/millrace/raft/raftpb"
)

// An encoded manifest. Numbers are little endian.
//
//	 0        8        12       16       20
//	+--------+--------+--------+--------+------------------------------+
//	| magic  | version| length | CRC32C | body: length bytes           |
//	| 8      | 4      | 4      | 4      |                              |
//	+--------+--------+--------+--------+------------------------------+
//
// The CRC32C covers the 16 bytes before it and the body. The body:
//
//	8 cluster | 8 group | 8 index | 8 term
//	4 lists: voters, learners, outgoing voters, next learners: each 4 number | 8 id ...
//	1 auto-leave: 0 or 1
//	4 number of members: each 8 id | 16 incarnation
//	4 length | host's block
//	1 length | version of the machine
//	4 number of parts: each
//	    1 kind | 2 length | name | 8 bytes | 32 SHA-256 | 4 CRC32C of each block ...
//
// Each manifest has exactly one encoding, so that its hash names it: nothing may follow the last part, and
// the number of checksums follows from the length of the part.
const (
	manifestMagic   = "MRACESNP"
	manifestVersion = 1
	headBytes       = 20
	checkAt         = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// confLists are the lists of a configuration in the order of the format.
func confLists(c *raftpb.ConfState) [4]*[]uint64 {
	return [4]*[]uint64{&c.Voters, &c.Learners, &c.VotersOutgoing, &c.LearnersNext}
}

// EncodedBytes returns the length of the encoded manifest: what Append appends.
func (m *Manifest) EncodedBytes() int64 {
	n := int64(headBytes + 4*8 + 1 + 4 + 24*len(m.Members) + 4 + len(m.Host) + 1 + len(m.Machine) + 4)
	for _, ids := range confLists(&m.Conf) {
		n += 4 + 8*int64(len(*ids))
	}
	for i := range m.Parts {
		n += partBytes(len(m.Parts[i].Name)) + 4*int64(len(m.Parts[i].Sums))
	}
	return n
}

// partBytes is what a part takes in a manifest, without its checksums of blocks.
func partBytes(nameBytes int) int64 { return int64(1 + 2 + nameBytes + 8 + 32) }

// Append appends the encoded manifest to b. A manifest that is not valid is refused with a *FormatError.
func (m *Manifest) Append(b []byte) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return b, err
	}
	le := binary.LittleEndian
	start := len(b)
	b = append(b, manifestMagic...)
	b = le.AppendUint32(b, manifestVersion)
	b = le.AppendUint32(b, uint32(m.EncodedBytes()-headBytes))
	b = le.AppendUint32(b, 0)
	for _, v := range []uint64{m.Cluster, m.Group, m.Index, m.Term} {
		b = le.AppendUint64(b, v)
	}
	for _, ids := range confLists(&m.Conf) {
		b = le.AppendUint32(b, uint32(len(*ids)))
		for _, id := range *ids {
			b = le.AppendUint64(b, id)
		}
	}
	leave := byte(0)
	if m.Conf.AutoLeave {
		leave = 1
	}
	b = append(b, leave)
	b = le.AppendUint32(b, uint32(len(m.Members)))
	for _, member := range m.Members {
		b = append(le.AppendUint64(b, member.ID), member.Incarnation[:]...)
	}
	b = append(le.AppendUint32(b, uint32(len(m.Host))), m.Host...)
	b = append(append(b, byte(len(m.Machine))), m.Machine...)
	b = le.AppendUint32(b, uint32(len(m.Parts)))
	for i := range m.Parts {
		p := &m.Parts[i]
		b = append(b, byte(p.Kind))
		b = append(le.AppendUint16(b, uint16(len(p.Name))), p.Name...)
		b = append(le.AppendUint64(b, uint64(p.Bytes)), p.SHA256[:]...)
		for _, sum := range p.Sums {
			b = le.AppendUint32(b, sum)
		}
	}
	le.PutUint32(b[start+checkAt:], manifestCheck(b[start:]))
	return b, nil
}

// manifestCheck is the CRC32C of an encoded manifest.
func manifestCheck(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:checkAt], castagnoli), castagnoli, b[headBytes:])
}

// DecodeManifest reads what Append wrote, and nothing else: the manifest that it returns is valid and has the
// encoding b. It returns a *FormatError otherwise. What it allocates is bounded by the length of b. The
// manifest does not share memory with b.
func DecodeManifest(b []byte) (Manifest, error) {
	if err := rejectHead(b); err != nil {
		return Manifest{}, err
	}
	d := decoder{b: b, at: headBytes}
	m := Manifest{Cluster: d.uint64(), Group: d.uint64(), Index: d.uint64(), Term: d.uint64()}
	for _, ids := range confLists(&m.Conf) {
		for range d.count(8, "ids of members") {
			*ids = append(*ids, d.uint64())
		}
	}
	switch leave := d.byte(); leave {
	case 0, 1:
		m.Conf.AutoLeave = leave == 1
	default:
		d.reject(fmt.Sprintf("auto-leave is %d, want 0 or 1", leave))
	}
	for range d.count(24, "members") {
		member := Member{ID: d.uint64()}
		copy(member.Incarnation[:], d.bytes(len(member.Incarnation)))
		m.Members = append(m.Members, member)
	}
	m.Host = append(m.Host, d.bytes(d.count(1, "bytes of the host's block"))...)
	m.Machine = string(d.bytes(int(d.byte())))
	n := d.count(int(partBytes(1)), "parts")
	if n > 0 {
		m.Parts = make([]Part, 0, n)
	}
	for range n {
		m.Parts = append(m.Parts, d.part())
	}
	if d.err == nil && d.at != len(b) {
		d.reject(fmt.Sprintf("%d bytes follow the last part", len(b)-d.at))
	}
	if d.err != nil {
		return Manifest{}, d.err
	}
	return m, m.Validate()
}

// rejectHead checks the first bytes and the checksum.
func rejectHead(b []byte) error {
	le := binary.LittleEndian
	switch {
	case len(b) < headBytes:
		return &FormatError{Offset: int64(len(b)), What: fmt.Sprintf("manifest has %d bytes, want at least %d", len(b), headBytes)}
	case string(b[:8]) != manifestMagic:
		return &FormatError{What: fmt.Sprintf("manifest begins with %q, want %q", b[:8], manifestMagic)}
	case le.Uint32(b[8:]) != manifestVersion:
		return &FormatError{Offset: 8, What: fmt.Sprintf("manifest has format version %d, and this program reads version %d; use the program that wrote it", le.Uint32(b[8:]), manifestVersion)}
	case len(b) > MaxManifestBytes || int64(le.Uint32(b[12:])) != int64(len(b)-headBytes):
		return &FormatError{Offset: 12, What: fmt.Sprintf("manifest has %d bytes and names a body of %d, want %d and %d more, at most %d in all", len(b), le.Uint32(b[12:]), headBytes, le.Uint32(b[12:]), MaxManifestBytes)}
	}
	if want, have := le.Uint32(b[checkAt:]), manifestCheck(b); want != have {
		return &FormatError{Offset: checkAt, What: fmt.Sprintf("manifest has the CRC32C %#08x, want %#08x", have, want)}
	}
	return nil
}

// decoder reads a body. After the first error it returns zeros.
type decoder struct {
	b   []byte
	at  int
	err error
}

func (d *decoder) reject(what string) {
	if d.err == nil {
		d.err = &FormatError{Offset: int64(d.at), What: what}
	}
}

// bytes returns the next n bytes, which share memory with the input.
func (d *decoder) bytes(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.b)-d.at {
		d.reject(fmt.Sprintf("%d bytes are left, want %d", len(d.b)-d.at, n))
		return nil
	}
	d.at += n
	return d.b[d.at-n : d.at]
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads the number of things of which each takes at least size bytes, and refuses more than are left.
func (d *decoder) count(size int, things string) int {
	b := d.bytes(4)
	if b == nil {
		return 0
	}
	n := binary.LittleEndian.Uint32(b)
	if left := len(d.b) - d.at; int64(n)*int64(size) > int64(left) {
		d.reject(fmt.Sprintf("%d %s take %d bytes or more, and %d are left", n, things, int64(n)*int64(size), left))
		return 0
	}
	return int(n)
}

func (d *decoder) part() Part {
	p := Part{Kind: Kind(d.byte())}
	if b := d.bytes(2); b != nil {
		p.Name = string(d.bytes(int(binary.LittleEndian.Uint16(b))))
	}
	n := d.uint64()
	copy(p.SHA256[:], d.bytes(len(p.SHA256)))
	if left := int64(len(d.b) - d.at); n > uint64(left/4)*BlockBytes {
		d.reject(fmt.Sprintf("part %q has %d bytes, and the %d bytes that are left hold the checksums of %d", p.Name, n, left, left/4*BlockBytes))
		return p
	}
	p.Bytes = int64(n)
	sums := d.bytes(4 * int(blocksOf(p.Bytes)))
	if len(sums) > 0 {
		p.Sums = make([]uint32, len(sums)/4)
	}
	for i := range p.Sums {
		p.Sums[i] = binary.LittleEndian.Uint32(sums[4*i:])
	}
	return p
}
