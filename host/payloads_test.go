package host

import (
	"bytes"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// someBlocks returns n blocks of a pool, each with one hold, and the data of each.
func someBlocks(n int) (p *arena.Pool, refs []arena.Ref, data [][]byte) {
	p = arena.New(arena.Options{BlockBytes: 8, IdleBytes: 1 << 10, Poison: true})
	f := arena.NewFiller(p)
	defer f.Close()
	for range n {
		var d []byte
		d, refs = f.Copy([]byte("12345678"), refs)
		data = append(data, d)
	}
	return p, refs, data
}

func checkHome(t *testing.T, p *arena.Pool) {
	t.Helper()
	if err := p.Home(); err != nil {
		t.Error(err)
	}
}

// TestATurnThatLeavesMessages takes one message of three, which have their data in one frame's blocks: the
// turn holds them, and the inbox does for the next one.
func TestATurnThatLeavesMessages(t *testing.T) {
	p, refs, data := someBlocks(2)
	b := anInbox(1<<20, 1<<20)
	if n := b.enqueueMessages(make([]raftpb.Message, 3), 3*heldBytes(raftpb.Message{}), blocksThrough{refs, 9}); n != 0 {
		t.Fatal(n)
	}
	for turn := range 3 {
		var in inputs
		b.beginTurn(&in, 1)
		if len(in.messages) != 1 || len(in.blocks) != 2 || in.blocks[1].last != 9 || arena.IsPoisoned(data[0]) {
			t.Fatalf("turn %d: %d messages, blocks %v, data %q", turn, len(in.messages), in.blocks, data[0])
		}
		for _, h := range in.blocks {
			h.block.Release()
		}
	}
	checkHome(t, p)

	_, refs, data = someBlocks(1)
	b.enqueueMessages(make([]raftpb.Message, 1), 100, blocksThrough{refs, 9})
	b.close()
	if arena.IsPoisoned(data[0]) {
		t.Error("an inbox that closes lets a turn's data be overwritten")
	}
}

// TestBlocksOfTheCore: the turn holds a block until the core needs its entries no more.
func TestBlocksOfTheCore(t *testing.T) {
	p, refs, data := someBlocks(3)
	var h heldBlocks
	refs[0].Retain()
	refs[1].Retain()
	h.add([]blockHold{{refs[0], 5}, {refs[1], 7}, {refs[0], 9}, {refs[2], 12}, {refs[1], 8}})
	held := func() (all []bool) {
		for _, d := range data {
			all = append(all, !arena.IsPoisoned(d))
		}
		return all
	}
	for _, step := range []struct {
		st   raft.BasicStatus
		want []bool
	}{
		{raft.BasicStatus{Durable: 8, LastIndex: 12}, []bool{true, true, true}}, // the first two have 9 and 8
		{raft.BasicStatus{Durable: 9, LastIndex: 12}, []bool{false, false, true}},
		{raft.BasicStatus{Durable: 10, LastIndex: 11}, []bool{false, false, true}},
		{raft.BasicStatus{Durable: 11, LastIndex: 11}, []bool{false, false, false}}, // 12 was refused
	} {
		h.release(step.st)
		have := held()
		if have[0] != step.want[0] || have[2] != step.want[2] {
			t.Errorf("durable through %d of %d: held %v, want %v", step.st.Durable, step.st.LastIndex, have, step.want)
		}
	}
	checkHome(t, p)
}

// TestKeptBlocksOfTheCore: what another place than the append lane gets is not reused.
func TestKeptBlocksOfTheCore(t *testing.T) {
	for name, leave := range map[string]func(h *heldBlocks){
		"sent":     func(h *heldBlocks) { h.handsOut(raftpb.Message{Entries: make([]raftpb.Entry, 1)}) },
		"the end":  func(h *heldBlocks) { h.keep() },
		"too many": func(h *heldBlocks) { _, more, _ := someBlocks(maxHeldBlocks); h.add(holds(more)) },
	} {
		p, refs, data := someBlocks(2)
		var h heldBlocks
		h.add(holds(refs))
		h.handsOut(raftpb.Message{})
		if all := h.all(); !slices.Equal(all, refs) {
			t.Errorf("%s: %d blocks, want %d", name, len(all), len(refs))
		}
		leave(&h)
		if len(h.all()) != 0 || string(data[0]) != "12345678" {
			t.Errorf("%s: %d blocks are held, the data is %q", name, len(h.all()), data[0])
		}
		checkHome(t, p)
	}
}

func holds(refs []arena.Ref) (all []blockHold) {
	for _, r := range refs {
		all = append(all, blockHold{r, 9})
	}
	return all
}

// TestIntake: commands of a machine that borrows are copied into blocks, while there is space for more. All
// else gets memory of its own. Nothing stays in the buffer of the connection.
func TestIntake(t *testing.T) {
	p := arena.New(arena.Options{BlockBytes: 1 << 10, IdleBytes: 1 << 20, Poison: true})
	var in intake
	in.init(p, 1<<10)
	for _, row := range []struct {
		name    string
		kind    raftpb.MessageType
		entry   raftpb.EntryType
		borrows bool
		blocks  int
	}{
		{"a program that keeps commands", raftpb.MsgApp, raftpb.EntryNormal, false, 0},
		{"a change of members", raftpb.MsgApp, raftpb.EntryConfChangeV2, true, 0},
		{"another message", raftpb.MsgProp, raftpb.EntryNormal, true, 0},
		{"commands", raftpb.MsgApp, raftpb.EntryNormal, true, 2},
		{"no space for more", raftpb.MsgApp, raftpb.EntryNormal, true, 0},
	} {
		lent := bytes.Repeat([]byte{'c'}, 900)
		m := raftpb.Message{Type: row.kind, Entries: []raftpb.Entry{{Type: row.entry, Data: lent[:100]}, {Type: row.entry, Data: lent}, {}}}
		refs := in.own(&m, row.borrows, nil)
		clear(lent)
		if len(refs) != row.blocks || m.Entries[0].Data[99] != 'c' || m.Entries[1].Data[899] != 'c' {
			t.Errorf("%s: %d blocks, want %d; data %q", row.name, len(refs), row.blocks, m.Entries[0].Data)
		}
		if row.blocks == 0 {
			continue
		}
		defer arena.ReleaseAll(refs)
	}
	in.close()
}
