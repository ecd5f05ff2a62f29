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

// The handshake. The host that dials sends a hello: the versions of this protocol that it speaks, the class
// of the connection, the id of the host that it wants to reach, and its introduction. The host that accepts
// answers with a verdict: a welcome with its own introduction and the version that both will speak, the
// highest that they have in common; or a refusal with a reason. After a welcome the accepting host sends
// nothing more on the connection. Integers are little-endian.
//
//	hello    ┌──────────┬─────────────┬────────────┬───────────┬────────┬───────┬───────────────┬────────────┐
//	         │ magic 8B │ highest u32 │ lowest u32 │ class u32 │ to u64 │ n u32 │ introduction  │ crc32c u32 │
//	         └──────────┴─────────────┴────────────┴───────────┴────────┴───────┴───────────────┴────────────┘
//	verdict  ┌──────────┬─────────────┬─────────────┬───────┬─────────────────────────────────┬────────────┐
//	         │ magic 8B │ verdict u32 │ version u32 │ n u32 │ introduction or reason, n bytes │ crc32c u32 │
//	         └──────────┴─────────────┴─────────────┴───────┴─────────────────────────────────┴────────────┘
//
// Hello and verdict have this form in every version from 3 onwards: neither end knows the version when it
// sends them. A later version puts what it adds into frames. Version 2 had its number in place of highest,
// and is refused by it.
//
// By now an address may belong to another host, to another cluster, to the same host with another directory,
// or to a program that is no host at all. The handshake detects each of these before the first message. It
// identifies a host and proves nothing; proof needs TLS.
//
// Invariant: before a hello is completely read and checked, its sender costs at most
// transport.MaxIntroductionBytes of memory.

const (
	magic            = "millrace"
	helloHeadBytes   = 32
	verdictHeadBytes = 20
	maxReasonBytes   = 8 << 10
)

// versionRange is the versions of the transport protocol that a host speaks, both ends included.
type versionRange struct{ lowest, highest uint32 }

// spoken is what this program speaks. Version 3 has kinds and classes. Version 4 has frames of consensus with
// up to transport.MaxFrameBodyBytes; a receiver of this program takes them in version 3, too.
var spoken = versionRange{3, 4}

// largeFrames is the first version whose receivers take large frames.
const largeFrames = 4

func (v versionRange) has(version uint32) bool { return v.lowest <= version && version <= v.highest }

// common returns the highest version that both speak.
func (v versionRange) common(other versionRange) (version uint32, ok bool) {
	version = min(v.highest, other.highest)
	return version, v.has(version) && other.has(version)
}

func (v versionRange) String() string {
	if v.lowest >= v.highest { // a range that is empty came from another host
		return fmt.Sprintf("version %d", v.highest)
	}
	return fmt.Sprintf("versions %d to %d", v.lowest, v.highest)
}

type hello struct {
	versions versionRange
	class    transport.Class
	to       uint64
	from     transport.Introduction // empty if there is no common version
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h hello) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, h.versions.highest)
	dst = binary.LittleEndian.AppendUint32(dst, h.versions.lowest)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.class))
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

// refusalClass is in place of a class in a hello that only says why its sender does not continue.
const refusalClass = 1<<32 - 1

// appendRefusal appends a hello that refuses host to.
func appendRefusal(dst []byte, versions versionRange, to uint64, why string) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, versions.highest)
	dst = binary.LittleEndian.AppendUint32(dst, versions.lowest)
	dst = binary.LittleEndian.AppendUint32(dst, refusalClass)
	dst = binary.LittleEndian.AppendUint64(dst, to)
	return appendBody(dst, at, []byte(why[:min(len(why), maxReasonBytes)]))
}

// errSpeaksTLS is the error of readHello for a connection that begins with a TLS handshake.
var errSpeaksTLS = errors.New("the dialing host speaks TLS, and this one plain TCP; configure TLS on both, or on none")

var errNotHello = errors.New("the connection does not begin with a hello of this protocol")

// readHello reads a hello for a host that speaks versions. If there is no common one, or the class is
// unknown, it reads only the head.
func readHello(r io.Reader, versions versionRange) (hello, error) {
	var head [helloHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return hello{}, err
	}
	if head[0] == tlsHandshake && head[1] == 3 {
		return hello{}, errSpeaksTLS
	}
	if string(head[:8]) != magic {
		return hello{}, errNotHello
	}
	if binary.LittleEndian.Uint32(head[16:]) == refusalClass {
		why, err := readBody(r, head[:], maxReasonBytes)
		if err != nil {
			return hello{}, fmt.Errorf("%w: %w", errNotHello, err)
		}
		return hello{}, &certificateError{byPeer: true, err: fmt.Errorf("the dialing host refuses this one: %s", printable(string(why)))}
	}
	h := hello{
		versions: versionRange{lowest: binary.LittleEndian.Uint32(head[12:]), highest: binary.LittleEndian.Uint32(head[8:])},
		class:    transport.Class(min(binary.LittleEndian.Uint32(head[16:]), transport.Classes)),
		to:       binary.LittleEndian.Uint64(head[20:]),
	}
	if _, ok := versions.common(h.versions); !ok || h.class >= transport.Classes {
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
	code    verdictCode
	version uint32                 // of the connection, with a welcome
	host    transport.Introduction // the accepting host, with a welcome
	why     string                 // the reason in words, with a refusal
}

type verdictCode uint32

const (
	welcome      verdictCode = iota
	otherVersion             // has this value in every version
	refused
	refusedDirectory // transport.DirectoryRefused
	refusedCertificate
)

func (v verdict) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.code))
	dst = binary.LittleEndian.AppendUint32(dst, v.version)
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
	v := verdict{code: verdictCode(binary.LittleEndian.Uint32(head[8:])), version: binary.LittleEndian.Uint32(head[12:])}
	body, err := readBody(r, head[:], max(transport.MaxIntroductionBytes, maxReasonBytes))
	switch {
	case err != nil && v.code == otherVersion: // whose verdict may have another form
		v.why = "the hosts speak different versions of the transport protocol"
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

// judge decides whether host id, which speaks versions, welcomes a hello. known says whether the sender is in
// the address book. Admit is asked first, because different founding lists explain why a host is not in the
// book.
func judge(h hello, versions versionRange, id uint64, known bool, admit func(transport.Introduction) error) verdict {
	version, ok := versions.common(h.versions)
	if !ok {
		return verdict{code: otherVersion, why: fmt.Sprintf("the dialing host speaks %v of the transport protocol, host %d speaks %v, and they have none in common", h.versions, id, versions)}
	}
	why, code := "", refused
	switch {
	case h.class >= transport.Classes:
		why = fmt.Sprintf("the dialing host asks for a class of connection that host %d does not have", id)
	case h.to != id:
		why = fmt.Sprintf("host %d dialed host %d, but this address belongs to host %d; correct the address that host %d has for host %d", h.from.ID, h.to, id, h.from.ID, h.to)
	case h.from.ID == id:
		why = fmt.Sprintf("the dialing host and the dialed host have the same id, %d", id)
	default:
		if err := admit(h.from); err != nil {
			why = err.Error()
			if of := new(transport.DirectoryRefused); errors.As(err, &of) {
				code = refusedDirectory
			}
		} else if !known {
			why = fmt.Sprintf("host %d is not in the address book of host %d; if it should join, start it with a join token, or say on host %d where it is (SetPeer)", h.from.ID, id, id)
		}
	}
	if why != "" {
		return verdict{code: code, why: why}
	}
	return verdict{code: welcome, version: version}
}
