package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The handshake. The one who dials says who it is and whom it believes to be talking to; the one who accepts answers
// with a verdict, and after a welcome is silent for the rest of the connection's life. Integers are little-endian.
//
//	hello, 40 bytes  ┌──────────────┬─────────────┬─────────────┬──────────┬────────┬────────────┐
//	                 │ magic     8B │ version u32 │ cluster u64 │ from u64 │ to u64 │ crc32c u32 │
//	                 └──────────────┴─────────────┴─────────────┴──────────┴────────┴────────────┘
//	verdict, 12 bytes┌──────────────┬─────────────┐
//	                 │ magic     8B │ verdict u32 │
//	                 └──────────────┴─────────────┘
//
// An address may by now belong to another host, or to another cluster, or to something that is no host at all: each
// is found here, before the first message. It is identification; it is no proof, which only TLS can give.

const (
	magic        = "millrace"
	version      = 1
	helloBytes   = 40
	verdictBytes = 12
)

type hello struct {
	version           uint32
	cluster, from, to uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h hello) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, h.version)
	dst = binary.LittleEndian.AppendUint64(dst, h.cluster)
	dst = binary.LittleEndian.AppendUint64(dst, h.from)
	dst = binary.LittleEndian.AppendUint64(dst, h.to)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

var errNotHello = errors.New("what came first is not a hello of this protocol")

func parseHello(b []byte) (hello, error) {
	if len(b) != helloBytes || string(b[:8]) != magic ||
		crc32.Checksum(b[:36], castagnoli) != binary.LittleEndian.Uint32(b[36:]) {
		return hello{}, errNotHello
	}
	return hello{
		version: binary.LittleEndian.Uint32(b[8:]),
		cluster: binary.LittleEndian.Uint64(b[12:]),
		from:    binary.LittleEndian.Uint64(b[20:]),
		to:      binary.LittleEndian.Uint64(b[28:]),
	}, nil
}

// verdict is the answer to a hello.
type verdict uint32

const (
	welcome verdict = iota
	otherVersion
	otherCluster
	otherHost
	unknownSender
	sameHost
)

func (v verdict) String() string {
	switch v {
	case welcome:
		return "welcome"
	case otherVersion:
		return "the hosts speak different versions of the transport protocol"
	case otherCluster:
		return "the hosts belong to different clusters"
	case otherHost:
		return "the address belongs to a host with another id"
	case unknownSender:
		return "the dialing host is not in the address book"
	case sameHost:
		return "the dialing host has the id of the host that it dialed"
	}
	return fmt.Sprintf("verdict %d, which this version does not know", uint32(v))
}

// judge decides whether h is welcome at the host that would itself say here; knows is its address book.
func judge(h hello, cluster, id uint64, knows func(uint64) bool) verdict {
	switch {
	case h.version != version:
		return otherVersion
	case h.cluster != cluster:
		return otherCluster
	case h.to != id:
		return otherHost
	case h.from == id:
		return sameHost
	case !knows(h.from):
		return unknownSender
	}
	return welcome
}

func (v verdict) append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, magic...), uint32(v))
}

var errNotVerdict = errors.New("what answered is not a host of this protocol")

func readVerdict(r io.Reader) (verdict, error) {
	var b [verdictBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	if string(b[:8]) != magic {
		return 0, errNotVerdict
	}
	return verdict(binary.LittleEndian.Uint32(b[8:])), nil
}

func readHello(r io.Reader) (hello, error) {
	var b [helloBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return hello{}, err
	}
	return parseHello(b[:])
}
