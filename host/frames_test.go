package host

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/reads"
	"github.com/millrace/millrace/host/internal/versions"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/golden"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Frames of released versions. testdata/released/frames-REVISION.txt has the bytes of each kind of frame, as
// that revision writes them. A line is a name and the bytes in hexadecimal. frames.txt is of this tree.
//
// TestReleasedFrames decodes the lines of all files, and compares fields. It also encodes the same fields,
// and demands the old bytes. Hosts of both revisions speak version 3 of the transport protocol, so the old
// one reads what this tree writes. A kind that the old one does not know is dropped there, and counted.
//
// A release adds a file: copy frames.txt and handshake.txt (transport/tcp) under its name. A revision that
// lacks this test makes its own: copy both tests and internal/golden into it, drop the rows that do not
// compile, and run them with -frames.write FILE. If a form has to change, hosts must agree on it first, and
// the row then encodes the form that the old host is spoken to with.

var framesWrite = flag.String("frames.write", "", "TestReleasedFrames writes the frames of this tree to this file")

// frame is a row: a value, its bytes, and how they are decoded.
type frame struct {
	name   string
	as     transport.Kind
	body   []byte
	value  any // nil: decode it from body
	decode func(body []byte) (any, error)
}

// Decoders of different types, for the table.
func decoder[T any](f func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) { return f(b) }
}

type inGroup[T any] struct {
	group uint64
	value T
}

func groupDecoder[T any](f func([]byte) (uint64, T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		group, value, err := f(b)
		return inGroup[T]{group, value}, err
	}
}

type forwarded struct {
	proposals.Forward
	headers  []session.Header
	commands []string
}

func decodeForwarded(body []byte) (any, error) {
	f, rest, err := proposals.DecodeForward(body)
	all := forwarded{Forward: f}
	for len(rest) > 0 && err == nil {
		var h session.Header
		var command []byte
		h, command, rest, err = proposals.NextCommand(rest)
		all.headers, all.commands = append(all.headers, h), append(all.commands, string(command))
	}
	return all, err
}

type located struct {
	id   uint64
	said peers.Location
}

func decodeLocated(body []byte) (any, error) {
	var all []located
	err := peers.DecodeAddresses(body, func(id uint64, said peers.Location) error {
		all = append(all, located{id, said})
		return nil
	})
	return all, err
}

func decodeDivergence(body []byte) (any, error) {
	r, _, err := divergence.Decode(body)
	return r, err
}

type read struct {
	reads.Record
	isQuestion bool
}

func decodeRead(body []byte) (any, error) {
	r, isQuestion, err := reads.DecodeRecord(body)
	return read{r, isQuestion}, err
}

func decodeBatch(body []byte) (any, error) { return transport.DecodeBody(body, nil) }

func number(n byte) (b [32]byte) {
	for i := range b {
		b[i] = n + byte(i)
	}
	return b
}

func directoryNumber(n byte) transport.Incarnation {
	b := number(n)
	return transport.Incarnation(b[:])
}

// framesOf returns the table. No two fields of a row have the same value.
func framesOf() (all []frame) {
	hash := number(100)
	add := func(name string, as transport.Kind, body []byte, value any, decode func([]byte) (any, error)) {
		all = append(all, frame{name, as, body, value, decode})
	}
	small := func(name string, body []byte, value any, decode func([]byte) (any, error)) {
		add(name, transport.Control, body, value, decode)
	}
	for _, e := range consensusFrames() {
		add(e.Message.Type.String(), transport.Consensus, transport.AppendBody(nil, []transport.Envelope{e}), []transport.Envelope{e}, decodeBatch)
	}
	add("a batch", transport.Consensus, transport.AppendBody(nil, consensusFrames()), consensusFrames(), decodeBatch)

	p := pulse.Record{Pulses: true, Life: 11, Version: 12, HasList: true, Lines: []pulse.Line{{Group: 7, Term: 3, Commit: 300}, {Group: 9, Term: 4, Commit: 500}},
		Answers: true, Answer: pulse.Answer{Life: 13, Version: 14, Known: true, Excluded: []uint64{8, 600}}}
	add("pulse", transport.Pulse, p.Append(nil), p, decoder(pulse.Decode))
	short := pulse.Record{Pulses: true, Life: 1<<64 - 1, Version: 15}
	add("pulse of a known list", transport.Pulse, short.Append(nil), short, decoder(pulse.Decode))

	same := func(b []byte) (any, error) { return b, nil }
	small("greeting", []byte{control.Greeting, greetsAll | greetsAsk}, []byte{1, 3}, same)
	small("greeting that asks for settings", []byte{control.Greeting, greetsSet}, []byte{1, 4}, same)
	refusal := members.Refusal{Group: 7, Bound: directoryNumber(1)}
	small("refusal", refusal.Encode(), refusal, decoder(members.DecodeRefusal))
	small("stranger", members.EncodeStranger(300), uint64(300), decoder(members.DecodeStranger))
	removed := members.Removed{Group: 7, Version: 812, Incarnation: directoryNumber(2)}
	small("removed", removed.Encode(), removed, decoder(members.DecodeRemoved))
	ask := members.RosterRecord{Group: 7, Version: 813}
	small("roster question", ask.Encode(), ask, decoder(members.DecodeRoster))
	roster := members.RosterRecord{Group: 7, Roster: rosterOfFrames()}
	small("roster answer", roster.Encode(), roster, decoder(members.DecodeRoster))

	applied := leadership.AppliedRecord{Group: 7, Term: 3, Number: 21}
	small("applied question", applied.Encode(control.AppliedQuestion), applied, decoder(leadership.DecodeApplied))
	applied.Applied = 900
	small("applied answer", applied.Encode(control.AppliedAnswer), applied, decoder(leadership.DecodeApplied))
	small("view question", leadership.EncodeViewQuestion(7), inGroup[[]uint64]{group: 7}, groupDecoder(leadership.DecodeView))
	small("view answer", leadership.EncodeView(7, []uint64{2, 300}), inGroup[[]uint64]{7, []uint64{2, 300}}, groupDecoder(leadership.DecodeView))

	forward := forwarded{Forward: proposals.Forward{Group: 7, Term: 3, Frame: 4711}, commands: []string{"first", "", "third"}}
	body := proposals.AppendForward(nil, forward.Forward)
	for i, command := range forward.commands {
		h := session.Header{HasMark: true, Mark: session.Mark{Number: 40 + uint64(i), Low: 31}}
		_ = h.Mark.ID.UnmarshalText([]byte("0123456789abcdef0123456789abcdef.5"))
		forward.headers = append(forward.headers, h)
		body = proposals.AppendCommand(body, h, []byte(command))
	}
	small("forward", body, forward, decodeForwarded)
	add("forward in bulk", transport.Bulk, body, forward, decodeForwarded)
	for why := proposals.NoLeader; why <= proposals.TooLarge; why++ {
		r := proposals.Refusal{Group: 7, Frame: 4712, Why: why, Sure: why == proposals.NoSpace}
		small(fmt.Sprintf("forward refusal %d", why), r.Encode(), r, decoder(proposals.DecodeRefusal))
	}

	question := read{reads.Record{Group: 7, Life: 1 << 40, Number: 22}, true}
	small("read question", question.Question(), question, decodeRead)
	answer := read{reads.Record{Group: 7, Life: 1 << 40, Number: 23, Index: 901}, false}
	small("read answer", answer.Answer(), answer, decodeRead)

	report := &divergence.Report{Group: 7, Options: 1 << 50, Told: true, Watch: divergence.Watch{Form: "json", States: true}, Version: "v3",
		Checkpoints: []divergence.Checkpoint{{Index: 256, HasResults: true, HasDigest: true, Commands: 41, Results: 42, Digest: 43}, {Index: 512, Commands: 44}}}
	small("report", report.Encode(), report, decodeDivergence)
	stop := &divergence.Order{Group: 7, Index: 258, In: event.DivergedResults, Form: "json", Version: "v4", Sum: 45}
	small("stop", stop.Encode(), stop, decodeDivergence)
	finding := &divergence.Finding{Group: 7, Index: 259, Agreed: 257, In: event.DivergedState, Version: "v5", Members: []event.DivergedMember{{ID: 2, Minority: true, Sum: 46, Version: "v6"}, {ID: 3, Sum: 47, Version: "v7"}}}
	small("finding", finding.Encode(), finding, decodeDivergence)

	offer := bulk.Offer{Group: 7, Index: 902, Term: 3, FirstIndex: 600, ManifestBytes: 2048, Hash: hash}
	small("snapshot offer", offer.Encode(), offer, decoder(bulk.DecodeOffer))
	asked := bulk.Ask{Group: 7, Hash: hash, Number: 24, Restarts: true, Ranges: []bulk.Range{{Part: bulk.ManifestPart, Block: 0, Blocks: 2}, {Part: 4, Block: 5, Blocks: 6}}}
	small("snapshot ask", asked.Encode(), asked, decoder(bulk.DecodeAsk))
	block := bulk.Block{Group: 7, Hash: hash, At: bulk.Place{Part: 4, Block: 300}, Content: []byte("content")}
	add("snapshot block", transport.Bulk, block.Encode(), block, decoder(bulk.DecodeBlock))
	block.Content = bytes.Repeat([]byte("content."), bulk.BlockBytes/8)
	add("snapshot block of two frames", transport.Bulk, block.Encode(), block, decoder(bulk.DecodeBlock))
	for why := bulk.Done; why <= bulk.SenderBusy; why++ {
		end := bulk.End{Group: 7, Hash: hash, Why: why}
		small(fmt.Sprintf("snapshot end %d", why), end.Encode(), end, decoder(bulk.DecodeEnd))
	}

	grant := membership.Grant{Time: 6 * time.Second, Life: 7 * time.Second, Token: membership.Token{Hash: membership.TokenHash(hash[:32]), Learner: true}}
	key := membership.Rekey{ID: 2, Incarnation: directoryNumber(8), Key: membership.Key(hash)}
	skip := entry.Skip{ID: membership.PlanID(hash[8:24]), At: raftpb.Position{Index: 811, Pos: 2}}
	held := entry.Skip{ID: membership.PlanID(hash[8:24]), At: raftpb.Position{Index: 811, Pos: 2}, Step: entry.SkipHeld}
	upgrade := entry.Version{ID: membership.PlanID(hash[9:25]), To: 3}
	for _, data := range [][]byte{
		append([]byte{entry.PlanKind}, planOfFrames().Encode()...), append([]byte{entry.CancelKind}, hash[:16]...),
		append([]byte{entry.GrantKind}, grant.Encode()...), append([]byte{entry.RekeyKind}, key.Encode()...), skip.Encode(), held.Encode(), upgrade.Encode(),
	} {
		q := plans.RequestOf(0, data)
		small(fmt.Sprintf("plan request %d of %d bytes", data[0], len(data)), q.Encode(7), inGroup[plans.Request]{7, q}, groupDecoder(plans.DecodeRequest))
	}
	refused := plans.Answer{Group: 7, ID: membership.PlanID(hash[:16]), Why: "the members have changed"}
	small("plan answer", refused.Encode(), refused, decoder(plans.DecodeAnswer))
	join := plans.JoinRefused{Group: 7, Why: "the token was used"}
	small("join refused", join.Encode(), join, decoder(plans.DecodeJoinRefused))

	body = []byte{control.Addresses}
	at := []located{{2, peers.Location{Said: "two:7001", Incarnation: directoryNumber(3), Generation: 25}}, {3, peers.Location{Said: "three:7001"}}}
	for _, l := range at {
		body = l.said.Append(body, l.id)
	}
	small("addresses", body, at, decodeLocated)
	set := peers.Settings{1: 100, 2: 200}
	small("settings", set.Encode(), set, decoder(peers.DecodeSettings))

	small("load question", placement.EncodeQuestion(26), []byte{control.LoadQuestion, 26}, same)
	load := placement.Load{Number: 27, Leads: 1000, Unfit: placement.DiskStands, Zone: "east"}
	small("load answer", load.Encode(), load, decoder(placement.DecodeLoad))
	moved := placement.Moved{Group: 7, MoveName: placement.MoveName{Term: 3, Number: 28}, Asked: true}
	small("moved", moved.Encode(), moved, decoder(placement.DecodeMoved))

	// The fields of these records belong to package objects: 7 is the group, then term and number, and of an
	// answer through, lost, and two ids.
	small("object question", []byte{control.ObjectQuestion, 7, 3, 29}, nil, decoder(objects.Decode))
	small("object answer", append([]byte{control.ObjectAnswer, 7, 3, 30, 50, 51, 2}, hash[:32]...), nil, decoder(objects.Decode))

	small("version question", versions.EncodeQuestion(7, 52), versions.Record{Group: 7, Number: 52}, decoder(versions.Decode))
	said := versions.Said{Can: statemachine.Versions{Lowest: 1, Highest: 3}, At: 2}
	small("version answer", versions.EncodeAnswer(7, 53, said), versions.Record{Group: 7, Number: 53, Said: said}, decoder(versions.Decode))
	return all
}

// consensusFrames are messages of all types that hosts send each other, with every field that they have.
func consensusFrames() []transport.Envelope {
	entries := []raftpb.Entry{
		{Term: 3, Index: 301, Data: []byte("data")},
		{Term: 4, Index: 302, Type: raftpb.EntryConfChangeV2, Data: (&raftpb.ConfChangeV2{}).Append(nil)},
		{Term: 4, Index: 303, Type: raftpb.EntryHost, Data: append([]byte{entry.CancelKind}, make([]byte, 16)...)},
		{Term: 5, Index: 304, Type: raftpb.EntryBatch, Data: raftpb.AppendBatch(nil, []byte("one"), []byte("two"))},
	}
	ms := []raftpb.Message{
		{Type: raftpb.MsgApp, LogTerm: 2, Index: 300, Entries: entries, Commit: 299},
		{Type: raftpb.MsgAppResp, LogTerm: 2, Index: 300, Commit: 298, Reject: true, RejectHint: 297},
		{Type: raftpb.MsgHeartbeat, Commit: 299, Context: []byte("round 5")},
		{Type: raftpb.MsgHeartbeatResp, Context: []byte("round 5")},
		{Type: raftpb.MsgVote, LogTerm: 4, Index: 304, Context: []byte("CampaignTransfer")},
		{Type: raftpb.MsgVoteResp, Reject: true},
		{Type: raftpb.MsgPreVote, LogTerm: 4, Index: 304},
		{Type: raftpb.MsgPreVoteResp, Reject: true},
		{Type: raftpb.MsgTimeoutNow},
	}
	var all []transport.Envelope
	for i, m := range ms {
		m.From, m.To, m.Term = 1, 2, 6
		all = append(all, transport.Envelope{Group: 7 + uint64(i), Message: m})
	}
	return all
}

func planOfFrames() *membership.Plan {
	stages, err := membership.Founded([]membership.Member{{ID: 1, Incarnation: directoryNumber(4), Addr: "one:7001"}, {ID: 2, Incarnation: directoryNumber(5), Addr: "two:7001"}}).
		Make([]membership.Want{{Member: membership.Member{ID: 2}, Op: membership.Demote}})
	if err != nil {
		panic(err)
	}
	id := number(60)
	return &membership.Plan{ID: membership.PlanID(id[:16]), Base: 810, Stages: stages}
}

func rosterOfFrames() *membership.Roster {
	r := membership.Founded([]membership.Member{{ID: 1, Incarnation: directoryNumber(6), Addr: "one:7001"}, {ID: 2, Incarnation: directoryNumber(7), Addr: "two:7001"}})
	r.Version, r.Changed, r.Time = 812, 811, 5*time.Second
	return r
}

// TestReleasedFrames: this tree reads what released versions write, and writes what they read.
func TestReleasedFrames(t *testing.T) {
	var lines golden.Lines
	has, kinds := map[string]bool{}, map[byte]bool{}
	for _, f := range framesOf() {
		if has[f.name] = true; f.as == transport.Control || f.as == transport.Bulk {
			kinds[f.body[0]] = true
			if err := control.Validate(f.as, f.body); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
		}
		lines = append(lines, golden.Line{Name: f.name, Bytes: transport.AppendFrames(nil, f.as, f.body)})
	}
	for _, r := range control.Records {
		if !kinds[r.Kind] {
			t.Errorf("no frame has a record of kind %d, %q: add a row", r.Kind, r.Name)
		}
	}
	for m := raftpb.MessageType(0); m < 64; m++ {
		if mayTravel(m) && !has[m.String()] {
			t.Errorf("no frame has a message of type %v: add a row", m)
		}
	}
	if *framesWrite != "" {
		if err := lines.Write(*framesWrite); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("../testdata/released/frames*.txt")
	if err != nil || len(files) < 2 {
		t.Fatalf("frames of released versions: %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { readsFrames(t, file) })
	}
}

func readsFrames(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := golden.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]frame{}
	for _, f := range framesOf() {
		known[f.name] = f
	}
	for _, l := range lines {
		f, is := known[l.Name]
		if !is {
			t.Errorf("%q: this tree has no such frame any more", l.Name)
			continue
		}
		if now := transport.AppendFrames(nil, f.as, f.body); !l.Is(now) {
			t.Errorf("%q is written as\n%x\nwhich that version does not read; it writes\n%s", l.Name, now, l.Text())
		}
		delete(known, l.Name)
		if l.Bytes == nil {
			continue
		}
		want := f.value
		if want == nil {
			want, _ = f.decode(f.body)
		}
		err := transport.OpenFrames(l.Bytes, f.as.Class(), transport.DefaultFrameBytes, func(b transport.Body) error {
			if err := b.Validate(); err != nil || b.Kind != f.as {
				return fmt.Errorf("a body of kind %v: %w", b.Kind, err)
			}
			have, err := f.decode(b.Bytes)
			if err == nil && !reflect.DeepEqual(have, want) {
				t.Errorf("%q says\n%+v\nand is read as\n%+v", l.Name, want, have)
			}
			return err
		})
		if err != nil {
			t.Errorf("%q cannot be read: %v", l.Name, err)
		}
	}
	if filepath.Base(file) == "frames.txt" && len(known) > 0 {
		for name := range known {
			t.Errorf("%s lacks %q: write it with -frames.write, and look at the difference", file, name)
		}
	}
}
