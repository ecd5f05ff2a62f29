package entry

import (
	"fmt"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// Kinds of EntryHost that follow the founding. The plan's bytes follow, or its id, or those of a
// membership.Grant or a membership.Rekey. RescuedKind is the next. SkipKind and VersionKind change no
// members.
const (
	PlanKind   byte = 32
	CancelKind byte = 33
	EndKind    byte = 34
	GrantKind  byte = 35
	RekeyKind  byte = 36
)

// IsMemberEntry reports whether an entry changes the roster when it is in force, skips a command, or begins a
// version.
func IsMemberEntry(typ raftpb.EntryType, data []byte) bool {
	return typ.ChangesMembers() || typ == raftpb.EntryHost && len(data) > 0 && data[0] >= PlanKind && data[0] <= VersionKind
}

// Reject says what is wrong with the bytes of an entry of a type, or returns nil.
func Reject(e *raftpb.Entry) error {
	if err := RejectLater(e.Type, e.Data); err != nil {
		return fmt.Errorf("entry %d has %w; start this host with that version", e.Index, err)
	}
	switch {
	case e.Type == raftpb.EntryConfChangeV2:
		var cc raftpb.ConfChangeV2
		if err := cc.Unmarshal(e.Data); err != nil {
			return err
		}
		if len(cc.Context) == 0 {
			return nil // it leaves a joint configuration
		}
		_, err := membership.DecodeChange(cc.Context)
		return err
	case e.Type == raftpb.EntryHost && IsMemberEntry(e.Type, e.Data):
		if e.Data[0] == RescuedKind {
			_, err := DecodeRescued(e.Data)
			return err
		}
		_, err := IDOf(e.Data)
		return err
	case e.Type == raftpb.EntryHost:
		_, err := DecodeFounding(e.Data)
		return err
	case e.Type == raftpb.EntryBatch:
		_, err := raftpb.ReadBatch(e.Data)
		return err
	}
	return fmt.Errorf("entry of type %d, which hosts do not write", e.Type)
}

// namedPlan returns the plan that an entry cancels or ends.
func namedPlan(data []byte) (id membership.PlanID, err error) {
	if len(data) != 1+len(id) {
		return id, fmt.Errorf("%w: an entry of %d bytes ends a plan, want %d", membership.ErrFormat, len(data), 1+len(id))
	}
	return membership.PlanID(data[1:]), nil
}

// IDOf returns what names an entry of kind EntryHost that changes the roster, or what is wrong with its
// bytes. The name is the id of the plan that it begins or ends, or the first bytes of a token or a key.
func IDOf(data []byte) (id membership.PlanID, err error) {
	switch data[0] {
	case PlanKind:
		p, err := membership.DecodePlan(data[1:])
		return p.ID, err
	case GrantKind:
		t, err := membership.DecodeGrant(data[1:])
		return membership.PlanID(t.Token.Hash[:len(id)]), err
	case SkipKind:
		s, err := DecodeSkip(data)
		return s.ID, err
	case VersionKind:
		v, err := DecodeVersion(data)
		return v.ID, err
	case RekeyKind:
		k, err := membership.DecodeRekey(data[1:])
		return membership.PlanID(k.Key[:len(id)]), err
	}
	return namedPlan(data)
}

// nextByHost returns the roster after an entry of kind EntryHost.
func nextByHost(now *membership.Roster, e *raftpb.Entry) (*membership.Roster, error) {
	switch kind, body := e.Data[0], e.Data[1:]; kind {
	case SkipKind:
		return nil, fmt.Errorf("%w: it skips a command", membership.ErrRefused)
	case VersionKind:
		return nil, fmt.Errorf("%w: it begins a version", membership.ErrRefused)
	case PlanKind:
		p, err := membership.DecodePlan(body)
		if err != nil {
			return nil, err
		}
		return now.Begin(e.Index, p)
	case GrantKind:
		t, err := membership.DecodeGrant(body)
		if err != nil {
			return nil, err
		}
		return now.Grant(e.Index, t)
	case RekeyKind:
		k, err := membership.DecodeRekey(body)
		if err != nil {
			return nil, err
		}
		return now.Rekey(e.Index, k)
	default:
		id, err := namedPlan(e.Data)
		if err != nil {
			return nil, err
		}
		if kind == CancelKind {
			return now.Cancel(e.Index, id)
		}
		return now.End(e.Index, id)
	}
}

// RosterAfter returns the roster after an entry, and how the core's configuration becomes that of it; or why
// the entry changes nothing, on every member alike.
func RosterAfter(now *membership.Roster, e *raftpb.Entry) (*membership.Roster, []raftpb.ConfChangeV2, error) {
	switch {
	case e.Type != raftpb.EntryHost:
		var cc raftpb.ConfChangeV2
		if err := cc.Unmarshal(e.Data); err != nil {
			return nil, nil, err
		}
		next, err := now.Next(e.Index, cc)
		return next, []raftpb.ConfChangeV2{cc}, err
	case e.Data[0] == RescuedKind:
		r, err := DecodeRescued(e.Data)
		if err != nil {
			return nil, nil, err
		}
		return now.Rescue(e.Index, r.ID, r.Incarnation)
	}
	next, err := nextByHost(now, e)
	return next, nil, err
}
