package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Introduction is what a host says of itself when a connection begins, before the first message. A transport
// carries it and compares only ids. Receiver.Admit decides with which hosts to speak.
//
// It identifies a host and proves nothing: a host that lies is believed. Only Key is proved.
type Introduction struct {
	ID uint64
	// Cluster is the number of the host's cluster. Derived means that the host which first opened the
	// directory derived the number from Members; otherwise an operator chose it.
	Cluster uint64
	Derived bool
	// Incarnation is drawn at random when a host's directory is made. A host that comes back with another one
	// has lost what it promised.
	Incarnation Incarnation
	// Generation is higher in each life of a directory, and Life is drawn at random for each life. Two
	// hosts on copies of the same directory differ in at least one of them.
	Generation uint64
	Life       uint64
	// Past has the lives before this one, at most MaxPast of them. The last is of generation Generation-1,
	// the life before it of Generation-2, and so on. Each is the low half of that Life; 0: not known. A
	// copy or an old backup of a directory has another past than the original, however often it has started
	// since.
	Past []uint32
	// Addr is the address on which the host listens, for messages to operators.
	Addr string
	// Members is the founding list: ids in ascending order, with their first addresses.
	Members []Member
	// Key is the SHA-256 of the public key (SubjectPublicKeyInfo) of the certificate with which the peer
	// has proved ID. It is zero without TLS: the peer has proved nothing. The transport that made the
	// connection sets it. It is not a part of the encoding, so no peer can choose it.
	Key [32]byte
	// Proof is what the peer proves beside its id, by what Prover returns at its end; nil: nothing. Channel
	// is the value that both ends of the connection have in common, and no other connection has; zero without
	// TLS. Like Key it is not a part of the encoding.
	Proof   []byte
	Channel [32]byte
}

// MaxPast bounds Introduction.Past.
const MaxPast = 1024

// LifeAt returns the low half of Life in an earlier generation of the directory, or 0 if it is not known.
func (i Introduction) LifeAt(generation uint64) uint32 {
	if back := i.Generation - generation; generation < i.Generation && back <= uint64(len(i.Past)) {
		return i.Past[uint64(len(i.Past))-back]
	}
	return 0
}

// FitPast forgets the oldest lives of which there is no place in the encoding, beside any proof.
func (i *Introduction) FitPast() {
	size := introductionHeadBytes + 2 + len(i.Addr) + 4 + 2 + MaxProofBytes
	for _, m := range i.Members {
		size += 8 + 2 + len(m.Addr)
	}
	most := min(MaxPast, max(0, MaxIntroductionBytes-size)/4)
	i.Past = i.Past[max(0, len(i.Past)-most):]
}

// MaxProofBytes bounds Introduction.Proof.
const MaxProofBytes = 2 << 10

// Member is one line of a founding list.
type Member struct {
	ID   uint64 `json:"id"`
	Addr string `json:"addr"`
}

// Incarnation names a directory: 128 random bits, the id of the log in it. They distinguish directories that
// differ by accident, and are no secret.
type Incarnation [16]byte

func (d Incarnation) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Incarnation) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Incarnation) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(d) {
		return fmt.Errorf("transport: %.40q is not an incarnation of 32 hexadecimal digits", text)
	}
	copy(d[:], b)
	return nil
}

// MaxIntroductionBytes bounds an encoded Introduction, and so how much an unknown host can make another one
// read.
const MaxIntroductionBytes = 16 << 10

// ErrBadIntroduction is wrapped by every error about bytes that are not a valid Introduction.
var ErrBadIntroduction = errors.New("transport: bad introduction")

// The encoding is little-endian. A string is its length and its bytes, and must be printable, as it is
// written to logs.
//
//	id u64 │ cluster u64 │ derived u8 │ incarnation 16 B │ generation u64 │ life u64 │ addr string │ n u16 │
//	n × (id u64, addr string) │ n u16 │ n × past u32 │ of a host that proves something: length u16 │ proof
//	string: length u16 │ bytes
const introductionHeadBytes = 8 + 8 + 1 + 16 + 8 + 8

// Append appends the encoding of i to dst. Validate says whether another host will accept it.
func (i Introduction) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, i.ID)
	dst = binary.LittleEndian.AppendUint64(dst, i.Cluster)
	derived := byte(0)
	if i.Derived {
		derived = 1
	}
	dst = append(dst, derived)
	dst = append(dst, i.Incarnation[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, i.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, i.Life)
	dst = appendString(dst, i.Addr)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(i.Members)))
	for _, m := range i.Members {
		dst = binary.LittleEndian.AppendUint64(dst, m.ID)
		dst = appendString(dst, m.Addr)
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(i.Past)))
	for _, life := range i.Past {
		dst = binary.LittleEndian.AppendUint32(dst, life)
	}
	if len(i.Proof) > 0 {
		dst = appendString(dst, string(i.Proof))
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// Validate reports in one sentence why another host would refuse the encoding of i.
func (i Introduction) Validate() error {
	if len(i.Proof) > MaxProofBytes {
		return fmt.Errorf("%w: a proof of %d bytes, want at most %d", ErrBadIntroduction, len(i.Proof), MaxProofBytes)
	}
	if len(i.Past) > MaxPast {
		return fmt.Errorf("%w: %d earlier lives, want at most %d", ErrBadIntroduction, len(i.Past), MaxPast)
	}
	size := introductionHeadBytes + 2 + len(i.Addr) + 4 + 4*len(i.Past)
	if len(i.Proof) > 0 {
		size += 2 + len(i.Proof)
	}
	for n, m := range i.Members {
		if size += 8 + 2 + len(m.Addr); size > MaxIntroductionBytes {
			break
		}
		if !printable(m.Addr) {
			return fmt.Errorf("%w: the address %.80q of host %d has unprintable characters", ErrBadIntroduction, m.Addr, m.ID)
		}
		if n > 0 && m.ID <= i.Members[n-1].ID {
			return fmt.Errorf("%w: the founding list must have ascending ids: host %d follows host %d", ErrBadIntroduction, m.ID, i.Members[n-1].ID)
		}
	}
	if size > MaxIntroductionBytes {
		return fmt.Errorf("%w: the founding list of %d hosts takes more than %d bytes, the most that hosts exchange; shorten the addresses", ErrBadIntroduction, len(i.Members), MaxIntroductionBytes)
	}
	if !printable(i.Addr) {
		return fmt.Errorf("%w: the address %.80q has unprintable characters", ErrBadIntroduction, i.Addr)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// DecodeIntroduction decodes an Introduction, which must take all of b.
func DecodeIntroduction(b []byte) (Introduction, error) {
	if len(b) < introductionHeadBytes || len(b) > MaxIntroductionBytes || b[16] > 1 {
		return Introduction{}, fmt.Errorf("%w: %d bytes do not begin with a valid header", ErrBadIntroduction, len(b))
	}
	i := Introduction{
		ID:          binary.LittleEndian.Uint64(b),
		Cluster:     binary.LittleEndian.Uint64(b[8:]),
		Derived:     b[16] == 1,
		Incarnation: Incarnation(b[17:33]),
		Generation:  binary.LittleEndian.Uint64(b[33:]),
		Life:        binary.LittleEndian.Uint64(b[41:]),
	}
	rest := fieldReader(b[introductionHeadBytes:])
	i.Addr = rest.text()
	for n := rest.uint16(); n > 0 && rest != nil; n-- {
		i.Members = append(i.Members, Member{ID: rest.uint64(), Addr: rest.text()})
	}
	for n := rest.uint16(); n > 0 && rest != nil; n-- {
		i.Past = append(i.Past, rest.uint32())
	}
	if len(rest) > 0 {
		i.Proof = bytes.Clone(rest.take(int(rest.uint16())))
	}
	if rest == nil || len(rest) > 0 {
		return Introduction{}, fmt.Errorf("%w: %d bytes end inside a field, or continue after the last one", ErrBadIntroduction, len(b))
	}
	return i, i.Validate()
}

// fieldReader reads fields off a slice. It becomes nil when a field is incomplete, and then returns zeros.
type fieldReader []byte

func (c *fieldReader) take(n int) []byte {
	if *c == nil || len(*c) < n {
		*c = nil
		return nil
	}
	b := (*c)[:n]
	*c = (*c)[n:]
	return b
}

func (c *fieldReader) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *fieldReader) uint32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *fieldReader) uint64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *fieldReader) text() string { return string(c.take(int(c.uint16()))) }

// maxListText is the length, in bytes, at which a printed founding list is cut.
const maxListText = 1 << 10

// ListText formats a founding list for people: "1 at a:7000, 2 at b:7000".
func ListText(members []Member) string {
	var b strings.Builder
	for n, m := range members {
		if n > 0 {
			b.WriteString(", ")
		}
		if b.Len() > maxListText {
			fmt.Fprintf(&b, "and %d more", len(members)-n)
			break
		}
		fmt.Fprintf(&b, "%d at %.260s", m.ID, m.Addr)
	}
	return "[" + b.String() + "]"
}
