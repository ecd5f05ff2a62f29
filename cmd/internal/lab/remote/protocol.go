// A member is one member of a lab's cluster as a process of its own: a host made of the lab's
// components (package rig), a port for loads, and a port for the health checks of whatever runs the process.
// The other side puts the load on.
//
//	protocol.go         what a load asks of a member
//	memberplan.go       what a member is told, and which combinations are refused
//	memberprocess.go    the life of the process
//	memberserve.go      answers to loads
//	memberhealth.go     answers to health checks

package remote

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// A request is a kind, a group and what the kind says. A Client carries it.
//
//	kind u8, group u32 (from 0), rest
const requestHeadBytes = 5

// MemberKind is what a load asks for.
type MemberKind byte

// The kinds. Answers are client.Done with the text named here, or client.Failed with a sentence, or
// client.Unknown if what was asked for may have been done. Propose and Lead are also answered with
// client.NotTaken and the id of the leader, in decimal, or nothing.
const (
	KindHello   MemberKind = 'h' // who this is: Hello, as JSON
	KindUsage   MemberKind = 'u' // what the process has used: Usage, as JSON. A rest of one byte 1 starts a new peak of memory
	KindGroups  MemberKind = 'g' // how its groups are: []GroupState, as JSON
	KindPropose MemberKind = 'p' // rest: a command; the answer is that it is acknowledged
	KindRead    MemberKind = 'r' // rest: a way to read, as text; the answer has the values that it saw, u64
	KindForm    MemberKind = 'f' // rest: offset u64; the answer is a piece of the machine's form: length of the form u64, bytes
	KindLead    MemberKind = 'l' // rest: a member u64; the leader hands over to it
	KindEcho    MemberKind = 'e' // the answer is the rest
)

// formPieceBytes is the most of a form that one answer carries.
const formPieceBytes = 4 << 20

// MemberRequest returns the bytes of a request.
func MemberRequest(k MemberKind, group int, rest ...byte) []byte {
	return append(RequestHead(make([]byte, 0, requestHeadBytes+len(rest)), k, group), rest...)
}

// RequestHead appends what is before the rest.
func RequestHead(to []byte, k MemberKind, group int) []byte {
	return binary.LittleEndian.AppendUint32(append(to, byte(k)), uint32(group))
}

// HeadBytes is the length of what RequestHead appends.
const HeadBytes = requestHeadBytes

func memberParseRequest(b []byte, groups int) (k MemberKind, group int, rest []byte, err error) {
	if len(b) < requestHeadBytes {
		return 0, 0, nil, fmt.Errorf("a request of %d bytes, want at least %d", len(b), requestHeadBytes)
	}
	n := binary.LittleEndian.Uint32(b[1:])
	if uint64(n) >= uint64(groups) {
		return 0, 0, nil, fmt.Errorf("group %d, and this member has groups 0 to %d", n, groups-1)
	}
	return MemberKind(b[0]), int(n), b[requestHeadBytes:], nil
}

// Protocol is the version of all this. Members and loads of different versions do not talk.
const Protocol = 1

// Hello is who a member is.
type Hello struct {
	Protocol    int
	ID          uint64
	Life        uint64   // a random number of this process
	Members     []string // where the members listen for each other, by id from 1
	Cluster     uint64   // a number that follows from Members
	Components  Components
	Version     string // of the program
	Environment archive.Environment
}

// Usage is what a process has used since it began.
type Usage struct {
	Life      uint64
	Process   load.Usage
	Counters  load.Counters
	PeakBytes int64 // of memory
	HeapBytes float64
}

// GroupState is how one member's part in a group is.
type GroupState struct {
	Leader  uint64 // 0: it knows none
	Term    uint64
	Founded bool
	Machine load.MachineState
	Run     load.Run
	Broken  string // what was wrong with an entry; empty: nothing
	Err     string // why the group has stopped; empty: it has not
}

// FormPiece reads the answer to KindForm.
func FormPiece(text []byte) (total int64, piece []byte, err error) {
	if len(text) < 8 {
		return 0, nil, errors.New("a piece of a form without its length")
	}
	return int64(binary.LittleEndian.Uint64(text)), text[8:], nil
}

// DecodeAnswer reads an answer in JSON.
func DecodeAnswer[T any](text []byte) (v T, err error) {
	if err = json.Unmarshal(text, &v); err != nil {
		err = fmt.Errorf("an answer that is not understood: %w", err)
	}
	return v, err
}
