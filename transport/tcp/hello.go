package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"unicode"

	"github.com/millrace/millrace/transport"
)

// The handshake. The host that dials sends a hello: its introduction, and the id of the host that it wants to
// reach. The host that accepts answers with a verdict: a welcome with its own introduction, or a refusal with
// a reason. After a welcome the accepting host sends nothing more on the connection. Integers are
// little-endian.
//
//	hello    ┌──────────┬─────────────┬────────┬───────┬──────────────────────────┬────────────┐
//	         │ magic 8B │ version u32 │ to u64 │ n u32 │ introduction, n bytes    │ crc32c u32 │
//	         └──────────┴─────────────┴────────┴───────┴──────────────────────────┴────────────┘
//	verdict  ┌──────────┬─────────────┬───────┬─────────────────────────────────┬────────────┐
//	         │ magic 8B │ verdict u32 │ n u32 │ introduction or reason, n bytes │ crc32c u32 │
//	         └──────────┴─────────────┴───────┴─────────────────────────────────┴────────────┘
//
// By now an address may belong to another host, to another cluster, to the same host with another directory,
// or to a program that is no host at all. The handshake detects each of these before the first message. It
// identifies a host and proves nothing; proof needs TLS.
//
// Invariant: before a hello is completely read and checked, its sender costs at most
// transport.MaxIntroductionBytes of memory.

const (
	magic            = "millrace"
	version          = 2
	helloHeadBytes   = 24
	verdictHeadBytes = 16
	maxReasonBytes   = 8 << 10
)

type hello struct {
	version uint32
	to      uint64
	from    transport.Introduction // empty if the version is unknown
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h hello) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, h.version)
	dst = binary.LittleEndian.AppendUint64(dst, h.to)
	return appendBody(dst, at, h.from.Append(nil))
}

// appendBody completes the message that began at dst[at:] with the length of the body, the body, and the
// checksum of everything.
func appendBody(dst []byte, at int, body []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

var errNotHello = errors.New("the connection does not begin with a hello of this protocol")

// readHello reads a hello. For an unknown version it reads only the header.
func readHello(r io.Reader) (hello, error) {
	var head [helloHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return hello{}, err
	}
	if string(head[:8]) != magic {
		return hello{}, errNotHello
	}
	h := hello{version: binary.LittleEndian.Uint32(head[8:]), to: binary.LittleEndian.Uint64(head[12:])}
	if h.version != version {
		return h, nil
	}
	body, err := readBody(r, head[:], transport.MaxIntroductionBytes)
	if err != nil {
		return hello{}, fmt.Errorf("%w: %w", errNotHello, err)
	}
	if h.from, err = transport.DecodeIntroduction(body); err != nil {
		return hello{}, fmt.Errorf("%w: %w", errNotHello, err)
	}
	return h, nil
}

// readBody reads the body and the checksum that follow a header, whose last four bytes are the length. The
// checksum covers both.
func readBody(r io.Reader, head []byte, maxBytes int) ([]byte, error) {
	n := binary.LittleEndian.Uint32(head[len(head)-4:])
	if int64(n) > int64(maxBytes) {
		return nil, fmt.Errorf("body of %d bytes, want at most %d", n, maxBytes)
	}
	b := make([]byte, n+4)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	body := b[:n]
	have := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
	if want := binary.LittleEndian.Uint32(b[n:]); have != want {
		return nil, fmt.Errorf("checksum is %08x, want %08x", have, want)
	}
	return body, nil
}

// verdict is the answer to a hello.
type verdict struct {
	code verdictCode
	host transport.Introduction // the accepting host, with a welcome
	why  string                 // the reason in words, with a refusal
}

type verdictCode uint32

const (
	welcome      verdictCode = iota
	otherVersion             // has this value in every version
	refused
)

func (v verdict) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.code))
	body := []byte(v.why[:min(len(v.why), maxReasonBytes)])
	if v.code == welcome {
		body = v.host.Append(nil)
	}
	return appendBody(dst, at, body)
}

var errNotVerdict = errors.New("the answer is not a verdict of this protocol")

// readVerdict reads a verdict. The other host chose the reason, so unprintable characters are replaced.
func readVerdict(r io.Reader) (verdict, error) {
	var head [verdictHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return verdict{}, err
	}
	if string(head[:8]) != magic {
		return verdict{}, errNotVerdict
	}
	v := verdict{code: verdictCode(binary.LittleEndian.Uint32(head[8:]))}
	if v.code == otherVersion {
		v.why = "the hosts speak different versions of the transport protocol"
		return v, nil
	}
	body, err := readBody(r, head[:], max(transport.MaxIntroductionBytes, maxReasonBytes))
	switch {
	case err != nil:
		return verdict{}, fmt.Errorf("%w: %w", errNotVerdict, err)
	case v.code == welcome:
		if v.host, err = transport.DecodeIntroduction(body); err != nil {
			return verdict{}, fmt.Errorf("%w: %w", errNotVerdict, err)
		}
	default:
		v.why = printable(string(body[:min(len(body), maxReasonBytes)]))
	}
	return v, nil
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// judge decides whether host id welcomes a hello. known says whether the sender is in the address book. Admit
// is asked first, because different founding lists explain why a host is not in the book.
func judge(h hello, id uint64, known bool, admit func(transport.Introduction) error) verdict {
	if h.version != version {
		return verdict{code: otherVersion, why: fmt.Sprintf("the hosts speak different versions of the transport protocol: %d there, %d here", h.version, version)}
	}
	why := ""
	switch {
	case h.to != id:
		why = fmt.Sprintf("host %d dialed host %d, but this address belongs to host %d", h.from.ID, h.to, id)
	case h.from.ID == id:
		why = fmt.Sprintf("the dialing host and the dialed host have the same id, %d", id)
	default:
		if err := admit(h.from); err != nil {
			why = err.Error()
		} else if !known {
			why = fmt.Sprintf("host %d is not in the address book of host %d", h.from.ID, id)
		}
	}
	if why != "" {
		return verdict{code: refused, why: why}
	}
	return verdict{code: welcome}
}
