package raftpb

import (
	"fmt"
	"strconv"
)

// String writes values in protobuf's compact text form, as the generated code of etcd-io/raft v3.6 does, so
// that the logs of both can be compared. Fields come in the order of the schema, each as "name:value " with a
// trailing space; messages are in angle brackets; bytes are quoted with octal escapes. Zero values are left
// out, but bytes and a snapshot only if they are nil.
//
// The receivers are pointers, as in generated code. Hence a value prints like any Go struct, and a struct
// that embeds a HardState (raft.Ready) does not print like a HardState. raft.DescribeMessage and its
// relatives write the form for people.

// text is the output so far. Its methods add one field each, or nothing.
type text []byte

func (t *text) name(name string) { *t = append(append(*t, name...), ':') }

func (t *text) number(name string, v uint64) {
	if v != 0 {
		t.name(name)
		*t = append(strconv.AppendUint(*t, v, 10), ' ')
	}
}

func (t *text) numbers(name string, vs []uint64) {
	for _, v := range vs {
		t.name(name)
		*t = append(strconv.AppendUint(*t, v, 10), ' ')
	}
}

func (t *text) enum(name string, v fmt.Stringer, zero bool) {
	if !zero {
		t.name(name)
		*t = append(append(*t, v.String()...), ' ')
	}
}

func (t *text) flag(name string, v bool) {
	if v {
		t.name(name)
		*t = append(*t, "true "...)
	}
}

func (t *text) bytes(name string, v []byte) {
	if v != nil {
		t.name(name)
		*t = append(t.quoted(v), ' ')
	}
}

// quoted appends v in quotes. It escapes single bytes, because v need not be UTF-8.
func (t *text) quoted(v []byte) text {
	b := append(*t, '"')
	for _, c := range v {
		switch {
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func (t *text) message(name string, v fielded) {
	t.name(name)
	*t = append(*t, '<')
	v.fields(t)
	*t = append(*t, "> "...)
}

// fielded is a message. fields adds its fields to the text.
type fielded interface{ fields(*text) }

func textOf[T any, P interface {
	*T
	fielded
}](v P) string {
	if v == nil {
		return "<nil>"
	}
	var t text
	v.fields(&t)
	return string(t)
}

func (e *Entry) fields(t *text) {
	t.number("Term", e.Term)
	t.number("Index", e.Index)
	t.enum("Type", e.Type, e.Type == 0)
	t.bytes("Data", e.Data)
}

func (h *HardState) fields(t *text) {
	t.number("term", h.Term)
	t.number("vote", h.Vote)
	t.number("commit", h.Commit)
}

func (c *ConfState) fields(t *text) {
	t.numbers("voters", c.Voters)
	t.numbers("learners", c.Learners)
	t.numbers("voters_outgoing", c.VotersOutgoing)
	t.numbers("learners_next", c.LearnersNext)
	t.flag("auto_leave", c.AutoLeave)
}

// unset reports whether c holds nothing, not even an empty list.
func (c *ConfState) unset() bool {
	return c.Voters == nil && c.Learners == nil && c.VotersOutgoing == nil && c.LearnersNext == nil && !c.AutoLeave
}

func (s *SnapshotMetadata) fields(t *text) {
	if !s.ConfState.unset() {
		t.message("conf_state", &s.ConfState)
	}
	t.number("index", s.Index)
	t.number("term", s.Term)
}

func (s *Snapshot) fields(t *text) {
	t.bytes("data", s.Data)
	if m := &s.Metadata; m.Index != 0 || m.Term != 0 || !m.ConfState.unset() {
		t.message("metadata", m)
	}
}

func (m *Message) fields(t *text) {
	t.enum("type", m.Type, m.Type == 0)
	t.number("to", m.To)
	t.number("from", m.From)
	t.number("term", m.Term)
	t.number("logTerm", m.LogTerm)
	t.number("index", m.Index)
	for i := range m.Entries {
		t.message("entries", &m.Entries[i])
	}
	t.number("commit", m.Commit)
	t.number("vote", m.Vote)
	if m.Snapshot != nil {
		t.message("snapshot", m.Snapshot)
	}
	t.flag("reject", m.Reject)
	t.number("rejectHint", m.RejectHint)
	t.bytes("context", m.Context)
	for i := range m.Responses {
		t.message("responses", &m.Responses[i])
	}
}

func (c *ConfChange) fields(t *text) {
	t.enum("type", c.Type, c.Type == 0)
	t.number("node_id", c.NodeID)
	t.bytes("context", c.Context)
	t.number("id", c.ID)
}

func (c *ConfChangeSingle) fields(t *text) {
	t.enum("type", c.Type, c.Type == 0)
	t.number("node_id", c.NodeID)
}

func (c *ConfChangeV2) fields(t *text) {
	t.enum("transition", c.Transition, c.Transition == 0)
	for i := range c.Changes {
		t.message("changes", &c.Changes[i])
	}
	t.bytes("context", c.Context)
}

func (e *Entry) String() string            { return textOf(e) }
func (h *HardState) String() string        { return textOf(h) }
func (c *ConfState) String() string        { return textOf(c) }
func (s *SnapshotMetadata) String() string { return textOf(s) }
func (s *Snapshot) String() string         { return textOf(s) }
func (m *Message) String() string          { return textOf(m) }
func (c *ConfChange) String() string       { return textOf(c) }
func (c *ConfChangeSingle) String() string { return textOf(c) }
func (c *ConfChangeV2) String() string     { return textOf(c) }
