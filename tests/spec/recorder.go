package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/core"
	"github.com/millrace/millrace/sim/coverage"
)

// trace is a run of sim/core in the words of Trace.tla. A message is a record of a table, and events name it
// by its number there, so equal messages are one.
type trace struct {
	seed     uint64
	settings core.Settings
	max      int // events
	messages []string
	numbers  map[string]int // of messages, from 1
	heard    []int          // heard[i] is the last event that hears message i+1; 0: none
	changes  map[raftpb.EntryID]string
	events   []string
}

// record runs a seed and returns its first max events. ok is false if the seed cannot be watched step by
// step.
func record(seed uint64, ticks, max int) (t *trace, ok bool, err error) {
	t = &trace{
		seed: seed, settings: core.SettingsOf(seed), max: max, numbers: map[string]int{},
		changes: map[raftpb.EntryID]string{{}: conf(&raftpb.ConfState{})}, // never empty
	}
	if !t.settings.Async || t.settings.Batch || t.settings.Mixed || t.settings.Nodes > maxNodes {
		return nil, false, nil
	}
	_, err = core.Run(core.Options{Seed: seed, Ticks: ticks, Watch: t.watch, Choice: coverage.Choice{Without: notModelled}})
	return t, true, err
}

// notModelled are the faults of which the specification says nothing: disks that lie or lose what they had,
// for which members work without authority; full disks, where term and vote overtake entries; and clocks that
// jump, which are several ticks in one step.
var notModelled = []coverage.Fault{
	coverage.SyncError, coverage.LostSync, coverage.FullDisk, coverage.ReadError, coverage.BitFlip,
	coverage.MisdirectedWrite, coverage.LostDisk, coverage.RestoredDisk, coverage.ClockJump,
}

// maxNodes is how many nodes Trace.cfg has.
const maxNodes = 10

func (t *trace) full() bool { return len(t.events) >= t.max }

// add adds an event: its kind and fields.
func (t *trace) add(kind string, node uint64, format string, args ...any) {
	t.events = append(t.events, fmt.Sprintf("[k |-> %q, n |-> %d, %s]", kind, node, fmt.Sprintf(format, args...)))
}

func (t *trace) watch(e *core.Event) {
	if t.full() {
		return
	}
	switch e.Kind {
	case core.EventStart:
		t.add("start", e.Node, "a |-> %d, s |-> %s", e.Index, status(e))
	case core.EventStep:
		if e.Message == nil {
			t.add("step", e.Node, "s |-> %s", status(e))
			return
		}
		number := t.number(e.Message)
		t.heard[number-1] = len(t.events) + 1
		t.add("hear", e.Node, "m |-> %d, s |-> %s", number, status(e))
	case core.EventReady:
		t.ready(e)
	case core.EventSync:
		t.add("sync", e.Node, "count |-> %d", e.Writes)
	case core.EventConf:
		t.changes[raftpb.EntryID{Term: e.Term, Index: e.Index}] = conf(&e.Conf)
		t.add("conf", e.Node, "i |-> %d, c |-> %s, s |-> %s", e.Index, conf(&e.Conf), status(e))
	case core.EventCompact:
		t.add("compact", e.Node, "i |-> %d", e.Index)
	case core.EventCrash:
		d := &e.Disk
		t.add("crash", e.Node, "d |-> <<%d, %d, %d, %d, %d, %d>>", d.Hard.Term, d.Hard.Vote, d.Hard.Commit, d.Base, d.Last.Index, d.Last.Term)
	}
}

// ready adds what a Ready hands out: the messages that leave now, and the write with those that wait for it.
func (t *trace) ready(e *core.Event) {
	var now, wait, apply []int
	write, hard, first, entries, snapshot := "FALSE", "<<>>", uint64(0), 0, uint64(0)
	for i := range e.Ready.Messages {
		m := &e.Ready.Messages[i]
		switch m.To {
		case raft.LocalAppendThread:
			write, entries = "TRUE", len(m.Entries)
			if entries > 0 {
				first = m.Entries[0].Index
			}
			if m.Term != 0 {
				hard = fmt.Sprintf("<<%d, %d, %d>>", m.Term, m.Vote, m.Commit)
			}
			if m.Snapshot != nil {
				snapshot = m.Snapshot.Metadata.Index
			}
			t.note(m.Entries)
			wait = t.all(m.Responses)
		case raft.LocalApplyThread:
			apply = t.all(m.Responses)
		default:
			now = append(now, t.number(m))
		}
	}
	t.add("ready", e.Node, "now |-> %s, write |-> %s, hard |-> %s, first |-> %d, ents |-> %d, snap |-> %d, wait |-> %s, apply |-> %s",
		set(now), write, hard, first, entries, snapshot, set(wait), set(apply))
}

// note notes the changes of members among entries. What follows from one is known when a node applies it.
func (t *trace) note(entries []raftpb.Entry) {
	for i := range entries {
		if e := &entries[i]; e.Type.ChangesMembers() && t.changes[e.ID()] == "" {
			t.changes[e.ID()] = "[old |-> {}, new |-> {0}]"
		}
	}
}

func (t *trace) all(messages []raftpb.Message) (numbers []int) {
	for i := range messages {
		numbers = append(numbers, t.number(&messages[i]))
	}
	return numbers
}

// number returns the number of a message in the table.
func (t *trace) number(m *raftpb.Message) int {
	text := message(m)
	number, known := t.numbers[text]
	if !known {
		t.messages = append(t.messages, text)
		t.heard = append(t.heard, 0)
		number = len(t.messages)
		t.numbers[text] = number
	}
	return number
}

// message returns the record that stands for a message: the one of Raft.tla, or one of type "none" for what
// the specification does not have (its term still counts).
func message(m *raftpb.Message) string {
	ends := fmt.Sprintf("term |-> %d, from |-> %d, to |-> %d", m.Term, m.From, m.To)
	request := func(kind string) string {
		ordered := strings.ToUpper(fmt.Sprint(string(m.Context) == "CampaignTransfer"))
		return fmt.Sprintf("[ty |-> %q, term |-> %d, from |-> %d, lt |-> %d, li |-> %d, ord |-> %s]", kind, m.Term, m.From, m.LogTerm, m.Index, ordered)
	}
	answer := func(kind string) string {
		switch {
		case !m.Reject:
			return fmt.Sprintf("[ty |-> %q, %s]", kind, ends)
		case m.Commit > 0:
			return fmt.Sprintf("[ty |-> \"refusal\", %s, idx |-> %d, lt |-> %d]", ends, m.Commit, m.LogTerm)
		}
		return fmt.Sprintf("[ty |-> \"denial\", %s]", ends)
	}
	switch m.Type {
	case raftpb.MsgApp:
		terms := make([]string, len(m.Entries))
		for i := range m.Entries {
			terms[i] = fmt.Sprint(m.Entries[i].Term)
		}
		return fmt.Sprintf("[ty |-> \"app\", %s, prev |-> %d, pterm |-> %d, ents |-> <<%s>>, commit |-> %d]", ends, m.Index, m.LogTerm, strings.Join(terms, ", "), m.Commit)
	case raftpb.MsgSnap:
		return fmt.Sprintf("[ty |-> \"snap\", %s, idx |-> %d, t |-> %d]", ends, m.Snapshot.Metadata.Index, m.Snapshot.Metadata.Term)
	case raftpb.MsgHeartbeat:
		return fmt.Sprintf("[ty |-> \"beat\", %s, pos |-> 0, commit |-> %d]", ends, m.Commit)
	case raftpb.MsgVote:
		return request("vote")
	case raftpb.MsgPreVote:
		return request("pre")
	case raftpb.MsgVoteResp:
		return answer("grant")
	case raftpb.MsgPreVoteResp:
		return answer("pregrant")
	case raftpb.MsgAppResp:
		if !m.Reject {
			return fmt.Sprintf("[ty |-> \"ack\", %s, idx |-> %d]", ends, m.Index)
		}
	case raftpb.MsgTimeoutNow:
		return fmt.Sprintf("[ty |-> \"order\", %s]", ends)
	case raftpb.MsgStorageAppendResp:
		snapshot := uint64(0)
		if m.Snapshot != nil {
			snapshot = m.Snapshot.Metadata.Index
		}
		return fmt.Sprintf("[ty |-> \"stable\", term |-> 0, from |-> %d, to |-> %d, idx |-> %d, ack |-> %d, snap |-> %d]", m.To, m.To, m.Index, m.Term, snapshot)
	case raftpb.MsgStorageApplyResp:
		through := m.Index
		if n := len(m.Entries); n > 0 {
			through = m.Entries[n-1].Index
		}
		return fmt.Sprintf("[ty |-> \"applied\", term |-> 0, from |-> %d, to |-> %d, idx |-> %d]", m.To, m.To, through)
	}
	return fmt.Sprintf("[ty |-> \"none\", %s]", ends)
}

func status(e *core.Event) string {
	role := [...]string{raft.StateFollower: "follower", raft.StateCandidate: "candidate", raft.StateLeader: "leader", raft.StatePreCandidate: "pre"}
	s := &e.Status
	return fmt.Sprintf("<<%q, %d, %d, %d, %d, %d, %d, %d, %d>>",
		role[s.RaftState], s.Term, s.Vote, s.Lead, s.Commit, s.Applied, s.LastIndex, e.LastTerm, s.Durable)
}

func conf(c *raftpb.ConfState) string {
	return fmt.Sprintf("[old |-> %s, new |-> %s]", set(c.VotersOutgoing), set(c.Voters))
}

func set[N int | uint64](members []N) string {
	text := make([]string, len(members))
	for i, m := range members {
		text[i] = fmt.Sprint(m)
	}
	return "{" + strings.Join(text, ", ") + "}"
}

// String returns the trace as a record of TLA+.
func (t *trace) String() string {
	var changes []string
	for id, c := range t.changes {
		changes = append(changes, fmt.Sprintf("(<<%d, %d>> :> %s)", id.Index, id.Term, c))
	}
	slices.Sort(changes)
	heard := make([]string, len(t.heard))
	for i, at := range t.heard {
		heard[i] = fmt.Sprint(at)
	}
	founders := make([]int, t.settings.Founders)
	for i := range founders {
		founders[i] = i + 1
	}
	list := func(items []string) string { return "<<\n    " + strings.Join(items, ",\n    ") + ">>" }
	upper := func(b bool) string { return strings.ToUpper(fmt.Sprint(b)) }
	return fmt.Sprintf("[seed |-> %d, founders |-> %s, preVote |-> %s, ignores |-> %s,\n  changes |-> %s,\n  msgs |-> %s,\n  heard |-> <<%s>>,\n  events |-> %s]",
		t.seed, set(founders), upper(t.settings.PreVote), upper(t.settings.Ignores),
		strings.Join(changes, " @@ "), list(t.messages), strings.Join(heard, ", "), list(t.events))
}

// module returns the module TraceData with these traces.
func module(traces []*trace) string {
	text := make([]string, len(traces))
	for i, t := range traces {
		text[i] = t.String()
	}
	return "---- MODULE TraceData ----\nEXTENDS Naturals, TLC\nTraces == <<\n" + strings.Join(text, ",\n") + ">>\n====\n"
}
