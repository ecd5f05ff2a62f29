// Package admin is how a program on the same machine administers a running host: over a Unix socket in the
// host's directory, which only its owner can open. A host has one if Config.AdminSocket is set; millrace
// snapshot save, millrace objects scrub and millrace members use it.
//
// # Protocol
//
// A program connects, and sends requests, one after another. A request is a JSON object on one line of at
// most 64 KiB, and so is its answer:
//
//	{"do":"status"}                       {"status":{"host":1,"groups":[…]}}
//	{"do":"take","group":1}               {"snapshot":{"index":70,"term":2,"bytes":4096}}
//	{"do":"export","group":1}             {"streams":true}, then a stream
//	{"do":"flight"}                       {"flight":{"path":"…"}}, of one group or all
//	{"do":"verify-object","group":1}      {"object":{"id":"21ff…","bytes":4096,"left":0}}
//	members.go has what is about members
//	anything else                         {"error":"…"}, and the connection ends
//
// A stream is chunks, each with its length in 4 bytes, big endian, at most 1 MiB. Length 0 ends it, and a
// line follows that says how it went: {"snapshot":{…}}, or {"error":"…"}. So a reader tells a whole archive
// from one that was cut off. A request with a name that the host does not know is refused; in answers,
// unknown names are ignored.
//
// # Bounds
//
// A host serves 8 connections at a time, and tells the next one so. A connection that asks for nothing for
// a minute is closed. So is a connection that does not take what it has asked for: a slow reader of an
// export keeps disk space, not more. A program keeps its side open until it has the answer; when it closes
// it, what the host does for it is given up.
package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// SocketName is the name of the socket in a host's directory.
const SocketName = "admin.sock"

const (
	maxLineBytes   = 64 << 10
	maxChunkBytes  = 1 << 20
	maxConnections = 8
	// idleTimeout is how long a connection may ask for nothing, and takeTimeout how long it may not take a
	// chunk or an answer.
	idleTimeout = time.Minute
	takeTimeout = time.Minute
)

// The things to do.
const (
	doStatus = "status"
	doTake   = "take"
	doExport = "export"
	doFlight = "flight"
	doVerify = "verify-object"

	doMembers = "members"
	doPlan    = "plan"
	doExecute = "execute"
	doCancel  = "cancel"
	doAddress = "address"
	doToken   = "token"
	doKey     = "accept-key"
	doSkip    = "skip"
	doUpgrade = "upgrade"
)

// things are all of them; all but some are about one group.
var (
	things    = []string{doStatus, doTake, doExport, doVerify, doFlight, doMembers, doPlan, doExecute, doCancel, doAddress, doToken, doKey, doSkip, doUpgrade}
	groupless = []string{doStatus, doFlight, doAddress, doKey}
)

// request is what a client sends.
type request struct {
	Do    string `json:"do"`
	Group uint64 `json:"group,omitempty"`
	// Local exports what the member has applied, also if it cannot reach a quorum. Otherwise it first makes
	// sure that it has everything that was acknowledged.
	Local bool `json:"local,omitempty"`
	// After is of verify-object: the id of the object before the one that is verified; empty is the first one.
	After string `json:"after,omitempty"`

	Changes []Change `json:"changes,omitempty"` // of plan
	Plan    string   `json:"plan,omitempty"`    // of execute and cancel: its id
	Seen    string   `json:"seen,omitempty"`    // of execute: the state that was returned last
	ID      uint64   `json:"id,omitempty"`      // of address and accept-key; of token: for which host
	Addr    string   `json:"addr,omitempty"`    // of address
	Life    string   `json:"life,omitempty"`    // of token, as 1h30m
	Learner bool     `json:"learner,omitempty"` // of token
	Index   uint64   `json:"index,omitempty"`   // of skip
	Pos     uint32   `json:"pos,omitempty"`     // of skip, among the commands with this index
	Yes     bool     `json:"yes,omitempty"`     // of skip: do it
	Version uint32   `json:"version,omitempty"` // of upgrade
}

// answer is a line that a host sends. One field is set.
type answer struct {
	Error    string    `json:"error,omitempty"`
	Status   *Status   `json:"status,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Streams  bool      `json:"streams,omitempty"`
	Flight   *Flight   `json:"flight,omitempty"`
	Object   *Object   `json:"object,omitempty"`
	Members  *Members  `json:"members,omitempty"`
	Plan     *Plan     `json:"plan,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Skip     *Skip     `json:"skip,omitempty"`
	Upgrade  *Upgrade  `json:"upgrade,omitempty"`
	Token    *Token    `json:"token,omitempty"`
}

// Snapshot is the snapshot of a group. Bytes is the length of its content.
type Snapshot struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	Bytes int64  `json:"bytes"`
}

// Flight is a file that the flight recorder of a host has written, on the host's machine.
type Flight struct {
	Path string `json:"path"`
}

// Object is a large object that was verified.
type Object struct {
	ID     string `json:"id,omitempty"` // empty: there is none after the id that was asked for
	Bytes  int64  `json:"bytes"`
	Damage string `json:"damage,omitempty"` // what is wrong; the host fetches it again
	Left   int64  `json:"left"`             // the bytes of the objects after it
}

// Status is what a host says of itself.
type Status struct {
	Host    uint64 `json:"host"`
	Cluster uint64 `json:"cluster"`
	// Groups are the open groups, in ascending order, or the one that was asked for. The line bounds them:
	// More is how many are left out.
	Groups []Group `json:"groups"`
	More   int     `json:"more,omitempty"`
}

// Group is one group of a host.
type Group struct {
	Group     uint64    `json:"group"`
	Role      string    `json:"role"`
	Term      uint64    `json:"term"`
	Leader    uint64    `json:"leader"` // 0: not known
	Applied   uint64    `json:"applied"`
	Committed uint64    `json:"committed"`
	Durable   uint64    `json:"durable"`
	First     uint64    `json:"first_index"`
	Last      uint64    `json:"last_index"`
	Snapshot  *Snapshot `json:"snapshot,omitempty"` // the latest
	Stopped   string    `json:"stopped,omitempty"`  // why
}

// maxStatusGroups is the most groups of a status.
const maxStatusGroups = 100

// decodeRequest decodes a line, without its end.
func decodeRequest(line []byte) (r request, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err = d.Decode(&r); err == nil && d.More() {
		err = errors.New("something follows the object")
	}
	switch {
	case err != nil:
		return r, fmt.Errorf("a request of %d bytes is no request: %w", len(line), err)
	case !slices.Contains(things, r.Do):
		return r, fmt.Errorf("there is nothing to do that is called %.40q; want one of %s", r.Do, strings.Join(things, ", "))
	case !slices.Contains(groupless, r.Do) && r.Group == 0:
		return r, fmt.Errorf("%s needs a group", r.Do)
	case r.After != "" && r.Do != doVerify:
		return r, fmt.Errorf("after is for %s", doVerify)
	case r.Local && r.Do != doExport:
		return r, fmt.Errorf("local is for %s", doExport)
	}
	return r, r.rejectMemberRequest()
}

// readLine reads a line of at most maxLineBytes, and returns it without its end. io.EOF means that there is
// no more.
func readLine(r io.ByteReader) (line []byte, err error) {
	for {
		b, err := r.ReadByte()
		switch {
		case err == io.EOF && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case b == '\n':
			return line, nil
		case len(line) == maxLineBytes:
			return nil, errLongLine
		}
		line = append(line, b)
	}
}

var errLongLine = fmt.Errorf("a line has more than %d bytes", maxLineBytes)
