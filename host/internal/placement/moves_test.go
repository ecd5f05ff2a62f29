package placement

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
)

// What a host says is read back, and what no host says is refused.
func TestRecords(t *testing.T) {
	load := Load{Number: 7, Leads: 1, Unfit: DiskStands, Zone: "east"}
	if have, err := DecodeLoad(load.Encode()); err != nil || have != load {
		t.Errorf("have %+v, %v, want %+v", have, err, load)
	}
	if _, err := DecodeLoad(Load{Number: 1 << 60, Leads: MaxLeads, Unfit: 99, Zone: strings.Repeat("z", MaxZone)}.Encode()); err != nil {
		t.Errorf("a later version: %v", err)
	}
	moved := Moved{Group: 3, MoveName: MoveName{4, 2}, Asked: true}
	if have, err := DecodeMoved(moved.Encode()); err != nil || have != moved {
		t.Errorf("have %+v, %v", have, err)
	}
	for _, body := range [][]byte{
		{control.LoadAnswer}, {control.LoadAnswer, 1, 1},
		Load{Zone: strings.Repeat("z", MaxZone+1)}.Encode(), Load{Zone: "\xff"}.Encode(), Load{Leads: MaxLeads + 1}.Encode(),
	} {
		if _, err := DecodeLoad(body); !errors.Is(err, control.ErrBad) {
			t.Errorf("%v is a load: %v", body, err)
		}
	}
	for _, body := range [][]byte{{control.Moved, 1, 1, 1}, {control.Moved, 1, 1, 1, 2}, {control.Moved, 1, 1, 1, 1, 1}} {
		if _, err := DecodeMoved(body); !errors.Is(err, control.ErrBad) {
			t.Errorf("%v is a move: %v", body, err)
		}
	}
}

// Hand-overs count for a while, each once, and the latest of them are kept.
func TestMoves(t *testing.T) {
	var m Moves
	for tick := range int64(2 * MaxPlacements) {
		m.Record(tick)
	}
	last := int64(2*MaxPlacements - 1)
	if n := m.Count(last, 100); n != MaxPlacements {
		t.Errorf("%d hand-overs, want the latest %d", n, MaxPlacements)
	}
	if n := m.Count(last+98, 100); n != 2 {
		t.Errorf("%d hand-overs within 100 ticks, want 2", n)
	}
	if m.Rests(0) {
		t.Error("no caller has asked for a hand-over, and placement rests")
	}
	m.RestUntil(50)
	m.RestUntil(40)
	if !m.Rests(49) || m.Rests(50) {
		t.Error("placement does not rest until tick 50")
	}
	name := m.NameNext(3)
	if next := m.NameNext(3); name != (MoveName{3, 1}) || next != (MoveName{3, 2}) || m.IsNew(next) {
		t.Errorf("hand-overs of a term are named %v and %v", name, next)
	}
	for _, row := range []struct {
		name MoveName
		want bool
	}{{MoveName{3, 1}, false}, {MoveName{3, 4}, true}, {MoveName{3, 4}, false}, {MoveName{3, 3}, false}, {MoveName{5, 1}, true}, {MoveName{4, 9}, false}} {
		if have := m.IsNew(row.name); have != row.want {
			t.Errorf("%v is new: %v, want %v", row.name, have, row.want)
		}
	}
}
