package raft

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace/millrace/raft/raftpb"
)

// The stories in testdata are told in a small language. After each command every node hands out what it wants
// done, and the output says what that is:
//
//	1→2 MsgApp …                 left for a peer; it is in the network until deliver or drop
//	1 to write … , then …        queued at the append worker, with the responses that leave once it is durable
//	1 to apply …                 queued at the apply worker
//
// Commands:
//
//	cluster nodes=3 [founders=N by=snapshot|bootstrap] [prevote] [check-quorum] [lease] [sync]
//	        [window=N] [message-bytes=N] [heartbeat=TICKS] [apply-bytes=N] [step-down] [no-validation]
//	        the input lines give the content of a node's disk: 2: term 3, log 1 1 2 (the terms of the entries)
//	campaign ID
//	propose ID COMMAND...        all before the next hand-out
//	tick ID [n=N]
//	deliver, drop [from=ID] [to=ID] [type=MsgApp] [n=N]
//	                             the first N messages under way that fit (default: all there are now)
//	append-thread ID [n=N] [hold]
//	                             execute queued writes (default: all) and release their responses; those to the
//	                             node itself are delivered, unless they are held back until answers
//	answers ID
//	apply-thread ID [n=N]
//	crash ID, restart ID [applied=N]
//	unreachable ID PEER
//	change ID [v1] [transition=auto|implicit|explicit] [v2 l3 r4...]
//	                             propose a membership change; an empty one leaves a joint configuration
//	compact ID through=N         make a snapshot of the state machine, and drop the log
//	report-snapshot ID PEER [failed]
//	forge ID FROM type=MsgHeartbeatResp [context=HEX], forge ID FROM type=MsgProp change=HEX
//	                             a message that no correct peer sends, in the term of node ID
//	config [ID...]               the configurations in force
//	transfer ID TARGET, forget-leader ID
//	read ID NAME...              all before the next hand-out; the context is NAME/ID.COUNT
//	status [ID...], progress ID, log [ID...]
//	stabilize [ID...]            let these nodes (default: all) work and exchange messages until all is done;
//	                             print what changed

type script struct{ *testCluster }

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			t.Skip("not a story")
		}
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			s.run(t, d, &out)
			if out.Len() == 0 {
				return "ok\n"
			}
			return out.String()
		})
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData, out *strings.Builder) {
	var ids []uint64
	for _, a := range d.CmdArgs {
		if id, err := strconv.ParseUint(a.Key, 10, 64); err == nil && len(a.Vals) == 0 {
			ids = append(ids, id)
		}
	}
	switch d.Cmd {
	case "cluster":
		s.cluster(t, d)
	case "campaign":
		s.tell(out, s.host(ids[0]).input((*RawNode).Campaign))
	case "propose":
		for _, a := range d.CmdArgs[1:] {
			s.tell(out, s.host(ids[0]).input(func(rn *RawNode) error { return rn.Propose([]byte(a.Key)) }))
		}
	case "tick":
		for range number(t, d, "n", 1) {
			_ = s.host(ids[0]).input(func(rn *RawNode) error { rn.Tick(); return nil })
			s.handOut(out)
		}
	case "change":
		s.tell(out, s.change(t, d, s.host(ids[0])))
	case "compact":
		s.host(ids[0]).compact(uint64(number(t, d, "through", 0)))
	case "report-snapshot":
		status := SnapshotFinish
		if d.HasArg("failed") {
			status = SnapshotFailure
		}
		_ = s.host(ids[0]).input(func(rn *RawNode) error { rn.ReportSnapshot(ids[1], status); return nil })
	case "forge":
		s.tell(out, s.forge(t, d, s.host(ids[0]), ids[1]))
	case "config":
		for _, h := range s.these(ids) {
			if h.node != nil {
				fmt.Fprintf(out, "%d %v\n", h.id(), h.node.Status().Config)
			}
		}
	case "read":
		for _, a := range d.CmdArgs[1:] {
			s.tell(out, s.host(ids[0]).ask(a.Key))
		}
	case "transfer":
		s.tell(out, s.host(ids[0]).input(func(rn *RawNode) error { return rn.TransferLeader(ids[1]) }))
	case "forget-leader":
		s.tell(out, s.host(ids[0]).input((*RawNode).ForgetLeader))
	case "unreachable":
		_ = s.host(ids[0]).input(func(rn *RawNode) error { rn.ReportUnreachable(ids[1]); return nil })
	case "deliver", "drop":
		s.network(t, d, out)
	case "append-thread":
		s.appendThread(s.host(ids[0]), number(t, d, "n", 1<<30), d.HasArg("hold"), out)
	case "answers":
		s.hearOwn(s.host(ids[0]), out)
	case "apply-thread":
		h := s.host(ids[0])
		for range min(number(t, d, "n", 1<<30), len(h.applies)) {
			m, _ := h.runApply()
			fmt.Fprintf(out, "%d applied %s\n", h.id(), describeEntries(m.Entries))
			s.hearOwn(h, out)
		}
	case "crash":
		s.host(ids[0]).crash()
	case "restart":
		s.host(ids[0]).restart(0, uint64(number(t, d, "applied", 0)))
		s.status(s.hosts[ids[0]-1:ids[0]], out)
	case "status":
		s.status(s.these(ids), out)
	case "progress":
		s.progress(s.host(ids[0]), out)
	case "log":
		for _, h := range s.these(ids) {
			fmt.Fprintf(out, "%d log  %s\n  disk %s term %d, vote %d, commit %d\n", h.id(), describeEntries(allEntries(h.node)),
				describeEntries(h.disk.entries), h.disk.hardState.Term, h.disk.hardState.Vote, h.disk.hardState.Commit)
		}
	case "stabilize":
		s.stabilize(s.these(ids), out)
		return
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	s.handOut(out)
}

func (s *script) tell(out *strings.Builder, err error) {
	if err != nil {
		fmt.Fprintf(out, "refused: %v\n", err)
	}
}

func number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	d.MaybeScanArgs(t, key, &otherwise)
	return otherwise
}

func (s *script) these(ids []uint64) []*host {
	if len(ids) == 0 {
		return s.hosts
	}
	var hosts []*host
	for _, id := range ids {
		hosts = append(hosts, s.host(id))
	}
	return hosts
}

func (s *script) change(t *testing.T, d *datadriven.TestData, h *host) error {
	c := raftpb.ConfChangeV2{}
	var words []string
	v1 := false
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "v1":
			v1 = true
		case "transition":
			c.Transition = map[string]raftpb.ConfChangeTransition{"auto": 0, "implicit": 1, "explicit": 2}[a.Vals[0]]
		default:
			words = append(words, a.Key)
		}
	}
	var err error
	c.Changes, err = raftpb.ConfChangesFromString(strings.Join(words, " "))
	must(t, err)
	var change raftpb.ConfChangeI = c
	if v1 {
		change = raftpb.ConfChange{Type: c.Changes[0].Type, NodeID: c.Changes[0].NodeID}
	}
	return h.input(func(rn *RawNode) error { return rn.ProposeConfChange(change) })
}

func (s *script) forge(t *testing.T, d *datadriven.TestData, h *host, from uint64) error {
	var kind, context, change string
	d.ScanArgs(t, "type", &kind)
	d.MaybeScanArgs(t, "context", &context)
	d.MaybeScanArgs(t, "change", &change)
	m := raftpb.Message{Type: raftpb.MessageType(raftpb.MessageType_value[kind]), From: from, To: h.id()}
	var err error
	m.Context, err = hex.DecodeString(context)
	must(t, err)
	if m.Type != raftpb.MsgProp {
		m.Term = h.node.raft.term
	} else {
		data, err := hex.DecodeString(change)
		must(t, err)
		m.Entries = []raftpb.Entry{{Type: raftpb.EntryConfChange, Data: data}}
	}
	return h.input(func(rn *RawNode) error { return rn.Step(m) })
}

func (s *script) cluster(t *testing.T, d *datadriven.TestData) {
	change := func(c *Config) {
		c.PreVote, c.CheckQuorum = d.HasArg("prevote"), d.HasArg("check-quorum")
		if d.HasArg("lease") {
			c.CheckQuorum, c.ReadOnlyOption = true, ReadOnlyLeaseBased
		}
		c.AsyncStorageWrites = !d.HasArg("sync")
		c.HeartbeatTick = number(t, d, "heartbeat", 1)
		c.MaxInflightMsgs = number(t, d, "window", 16)
		c.MaxSizePerMsg = uint64(number(t, d, "message-bytes", 1<<20))
		c.MaxCommittedSizePerReady = uint64(number(t, d, "apply-bytes", 0))
		c.StepDownOnRemoval, c.DisableConfChangeValidation = d.HasArg("step-down"), d.HasArg("no-validation")
	}
	if d.HasArg("founders") {
		var by string
		d.ScanArgs(t, "by", &by)
		how := map[string]foundation{"snapshot": bySnapshot, "bootstrap": byBootstrap}[by]
		s.testCluster = newGrowingCluster(number(t, d, "nodes", 3), number(t, d, "founders", 1), how, change)
		return
	}
	s.testCluster = newTestCluster(number(t, d, "nodes", 3), change)
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(strings.NewReplacer(":", " ", ",", " ").Replace(line))
		id, _ := strconv.Atoi(words[0])
		disk := s.hosts[id-1].disk
		term, _ := strconv.ParseUint(words[2], 10, 64)
		disk.hardState.Term = term
		var terms []uint64
		for _, w := range words[4:] {
			term, _ := strconv.ParseUint(w, 10, 64)
			terms = append(terms, term)
		}
		must(t, disk.Append(logOfTerms(terms...)))
	}
	s.start()
}

// network delivers or drops the first messages that fit.
func (s *script) network(t *testing.T, d *datadriven.TestData, out *strings.Builder) {
	fits := func(m raftpb.Message) bool {
		for _, a := range d.CmdArgs {
			have := map[string]string{"type": m.Type.String(), "from": fmt.Sprint(m.From), "to": fmt.Sprint(m.To)}
			if h, asked := have[a.Key]; asked && h != a.Vals[0] {
				return false
			}
		}
		return true
	}
	left := number(t, d, "n", 1<<30)
	for i, seen, present := 0, 0, len(s.net); seen < present && left > 0; seen++ {
		if !fits(s.net[i]) {
			i++
			continue
		}
		left--
		if d.Cmd == "drop" {
			fmt.Fprintf(out, "lost: %s\n", describe(s.drop(i)))
			continue
		}
		m, err := s.deliver(i)
		fmt.Fprintf(out, "heard: %s\n", describe(m))
		s.tell(out, err)
		s.handOut(out)
	}
}

func (s *script) appendThread(h *host, n int, hold bool, out *strings.Builder) {
	for range min(n, len(h.appends)) {
		m, _ := h.runAppend()
		fmt.Fprintf(out, "%d wrote %s\n", h.id(), describeWrite(m))
		if !hold {
			s.hearOwn(h, out)
		}
	}
}

func (s *script) hearOwn(h *host, out *strings.Builder) {
	for len(h.inbox) > 0 {
		h.hearOwn(0)
	}
	s.handOut(out)
}

// handOut takes every node's Ready and prints what is in it. A synchronous Ready is processed at once.
func (s *script) handOut(out *strings.Builder) {
	for _, h := range s.hosts {
		for rd, ok := h.takeReady(); ok; rd, ok = h.takeReady() {
			s.hearReads(h, out)
			if !h.cfg.AsyncStorageWrites {
				s.syncReady(h, rd, out)
				continue
			}
			for _, m := range rd.Messages {
				switch m.To {
				case LocalAppendThread:
					fmt.Fprintf(out, "  %d to write %s\n", h.id(), describeWrite(m))
				case LocalApplyThread:
					fmt.Fprintf(out, "  %d to apply %s\n", h.id(), describeEntries(m.Entries))
				default:
					fmt.Fprintf(out, "  %s\n", describe(m))
				}
			}
		}
	}
}

func (s *script) hearReads(h *host, out *strings.Builder) {
	for _, line := range h.heard {
		fmt.Fprintf(out, "  %s\n", line)
	}
	h.heard = nil
}

func (s *script) syncReady(h *host, rd Ready, out *strings.Builder) {
	if !IsEmptySnap(rd.Snapshot) {
		fmt.Fprintf(out, "  %d saves %s, sync\n", h.id(), describeSnapshot(&rd.Snapshot))
	}
	if len(rd.Entries) > 0 || !IsEmptyHardState(rd.HardState) {
		sync := ""
		if rd.MustSync {
			sync = ", sync"
		}
		fmt.Fprintf(out, "  %d saves %s (term %d, vote %d, commit %d)%s\n", h.id(), describeEntries(rd.Entries),
			rd.HardState.Term, rd.HardState.Vote, rd.HardState.Commit, sync)
	}
	for _, m := range rd.Messages {
		fmt.Fprintf(out, "  %s\n", describe(m))
	}
	if len(rd.CommittedEntries) > 0 {
		fmt.Fprintf(out, "  %d applies %s\n", h.id(), describeEntries(rd.CommittedEntries))
	}
	for h.runSync() {
	}
}

func (s *script) status(hosts []*host, out *strings.Builder) {
	for _, h := range hosts {
		fmt.Fprintln(out, statusLine(h))
	}
}

func statusLine(h *host) string {
	if h.node == nil {
		return fmt.Sprintf("%d has crashed", h.id())
	}
	st := h.node.BasicStatus()
	line := fmt.Sprintf("%d %s in term %d, leader %d, vote %d; applied %d, committed %d, durable %d, last %d", st.ID,
		strings.ToLower(strings.TrimPrefix(st.RaftState.String(), "State")), st.Term, st.Lead, st.Vote, st.Applied, st.Commit, st.Durable, st.LastIndex)
	if st.LeadTransferee != None {
		line += fmt.Sprintf("; hands over to %d", st.LeadTransferee)
	}
	return line
}

func (s *script) progress(h *host, out *strings.Builder) {
	if h.node.raft.leader == nil {
		fmt.Fprintln(out, "not a leader")
		return
	}
	for _, p := range h.node.raft.leader.members {
		pr := p.Progress
		fmt.Fprintf(out, "%d: %s\n", p.ID, pr.String())
		if pr.Match >= pr.Next {
			panic("progress is out of order")
		}
	}
}

// stabilize lets nodes work and exchange messages among themselves. Their messages to other nodes stay in the
// network.
func (s *script) stabilize(hosts []*host, out *strings.Builder) {
	among := func(id uint64) bool {
		for _, h := range hosts {
			if h.id() == id && h.node != nil {
				return true
			}
		}
		return false
	}
	var before []string
	for _, h := range s.hosts {
		before = append(before, statusLine(h))
	}
	for moved := true; moved; {
		moved = false
		for _, h := range hosts {
			moved = h.work() || moved
		}
		for i, seen, present := 0, 0, len(s.net); seen < present; seen++ {
			if m := s.net[i]; !among(m.From) || !among(m.To) {
				i++
				continue
			}
			_, err := s.deliver(i)
			s.tell(out, err)
			moved = true
		}
	}
	for i, h := range s.hosts {
		s.hearReads(h, out)
		if line := statusLine(h); line != before[i] {
			fmt.Fprintln(out, line)
		}
	}
}
