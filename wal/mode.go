package wal

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A mode says when an append counts: when this member may acknowledge it. The first three keep Raft's
// promise and differ in when they sync. The others do not, and are for data that can be rebuilt. In every
// mode but memory, terms, votes, membership entries and snapshots are durable before they count; a segment
// is synced before the log rolls over for the second time after it; and Close syncs.
//
//	mode                      an append counts when                                     it survives
//	sync                      its own write and fdatasync are done, in Append           a power cut
//	group                     an fdatasync that began after its last byte was written   a power cut
//	                          is done; one covers all that waited
//	group-delay(d,bytes,n)    as group, but the fdatasync may wait up to d from the     a power cut
//	                          first append that waits for it, or until n entries or
//	                          bytes wait
//	unsafe-interval(d,bytes)  it is written; fdatasync after each d or bytes at most    the process
//	unsafe-os                 it is written; the kernel syncs when it likes             the process
//	memory                    it is in memory; no file is touched                       nothing
//
// A power cut takes from an unsafe mode what was written since the last fdatasync; a member in memory must
// rejoin under a new identity. After a power cut a log of an unsafe mode says so (Log.Fence): its member must
// not vote until it has caught up.

// Mode is the one setting of durability. The zero value is ModeGroup.
type Mode struct {
	Kind ModeKind
	// Delay is the longest that a flush waits (group-delay), or the time between two flushes
	// (unsafe-interval). Only for those.
	Delay time.Duration
	// Bytes ends the wait of group-delay and unsafe-interval early; 0 is no limit.
	Bytes int64
	// Entries ends the wait of group-delay early; 0 is no limit.
	Entries int
}

// ModeKind is a mode without its numbers.
type ModeKind int

// The kinds.
const (
	KindGroup ModeKind = iota
	KindSync
	KindGroupDelay
	KindUnsafeInterval
	KindUnsafeOS
	KindMemory
)

// The modes without numbers.
var (
	ModeGroup    = Mode{}
	ModeSync     = Mode{Kind: KindSync}
	ModeUnsafeOS = Mode{Kind: KindUnsafeOS}
	ModeMemory   = Mode{Kind: KindMemory}
)

// ModeGroupDelay returns the mode group-delay.
func ModeGroupDelay(d time.Duration, bytes int64, entries int) Mode {
	return Mode{Kind: KindGroupDelay, Delay: d, Bytes: bytes, Entries: entries}
}

// ModeUnsafeInterval returns the mode unsafe-interval.
func ModeUnsafeInterval(d time.Duration, bytes int64) Mode {
	return Mode{Kind: KindUnsafeInterval, Delay: d, Bytes: bytes}
}

// modeKinds are in the order of ModeKind.
var modeKinds = [...]struct {
	name       string
	maxDelay   time.Duration // 0: it takes no numbers
	hasEntries bool
	unsafe     bool
}{
	{name: "group"},
	{name: "sync"},
	{name: "group-delay", maxDelay: time.Second, hasEntries: true},
	{name: "unsafe-interval", maxDelay: time.Hour, unsafe: true},
	{name: "unsafe-os", unsafe: true},
	{name: "memory", unsafe: true},
}

// Unsafe reports whether the mode lets an append count before it is durable.
func (m Mode) Unsafe() bool { return m.known() && modeKinds[m.Kind].unsafe }

func (m Mode) known() bool { return m.Kind >= 0 && int(m.Kind) < len(modeKinds) }

// Validate reports what is wrong with the mode, in one sentence.
func (m Mode) Validate() error {
	if !m.known() {
		return fmt.Errorf("wal: durability mode %d is unknown; use one of %s", int(m.Kind), modeNames())
	}
	k := modeKinds[m.Kind]
	switch {
	case k.maxDelay == 0 && (m.Delay != 0 || m.Bytes != 0 || m.Entries != 0):
		return fmt.Errorf("wal: durability mode %s takes no numbers, but has delay %v, %d bytes, %d entries; leave them out, or use group-delay", k.name, m.Delay, m.Bytes, m.Entries)
	case k.maxDelay > 0 && (m.Delay <= 0 || m.Delay > k.maxDelay):
		return fmt.Errorf("wal: durability mode %s has a delay of %v; use more than 0, and at most %v", k.name, m.Delay, k.maxDelay)
	case m.Bytes < 0 || m.Entries < 0:
		return fmt.Errorf("wal: durability mode %s has limits of %d bytes and %d entries; use 0 for none, or more", k.name, m.Bytes, m.Entries)
	case m.Entries > 0 && !k.hasEntries:
		return fmt.Errorf("wal: durability mode %s takes no number of entries, but has %d; use bytes", k.name, m.Entries)
	}
	return nil
}

func modeNames() string {
	var names []string
	for _, k := range modeKinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// String returns the mode as ParseMode reads it: group, or group-delay(3ms,65536,100).
func (m Mode) String() string {
	if !m.known() {
		return fmt.Sprintf("ModeKind(%d)", int(m.Kind))
	}
	k := modeKinds[m.Kind]
	switch {
	case k.maxDelay == 0:
		return k.name
	case k.hasEntries:
		return fmt.Sprintf("%s(%v,%d,%d)", k.name, m.Delay, m.Bytes, m.Entries)
	}
	return fmt.Sprintf("%s(%v,%d)", k.name, m.Delay, m.Bytes)
}

// ParseMode is the inverse of String; limits may be left out.
func ParseMode(s string) (Mode, error) {
	name, rest, _ := strings.Cut(s, "(")
	for kind, k := range modeKinds {
		if k.name != name {
			continue
		}
		m := Mode{Kind: ModeKind(kind)}
		if err := m.parseNumbers(s[len(name):], rest); err != nil {
			return Mode{}, fmt.Errorf("wal: durability mode %q: %w", s, err)
		}
		return m, m.Validate()
	}
	return Mode{}, fmt.Errorf("wal: durability mode %q is unknown; use one of %s", s, modeNames())
}

// parseNumbers reads all, which is "(delay,bytes,entries)" or empty. rest is all without its first letter.
func (m *Mode) parseNumbers(all, rest string) (err error) {
	if all == "" {
		return nil
	}
	inner, ok := strings.CutSuffix(rest, ")")
	fields := strings.Split(inner, ",")
	if !ok || len(fields) > 3 {
		return fmt.Errorf("%q is not (delay), (delay,bytes) or (delay,bytes,entries)", all)
	}
	if m.Delay, err = time.ParseDuration(fields[0]); err != nil {
		return err
	}
	if len(fields) > 1 {
		if m.Bytes, err = strconv.ParseInt(fields[1], 10, 64); err != nil {
			return err
		}
	}
	if len(fields) > 2 {
		m.Entries, err = strconv.Atoi(fields[2])
	}
	return err
}
