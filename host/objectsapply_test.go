package host

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/vfs/crashfs"
	"pgregory.net/rapid"
)

// keepMachine keeps and releases the objects that its commands say, and notes what it is told.
type keepMachine struct {
	objects *Objects
	told    []string
}

func (m *keepMachine) UseObjects(o *Objects) { m.objects = o }

func (m *keepMachine) Apply(batch []statemachine.Command) error {
	for i := range batch {
		c := &batch[i]
		text := fmt.Sprintf("%d %s %v", c.Index, c.Data, c.Objects)
		var which byte
		if _, err := fmt.Sscanf(string(c.Data), "keep %d", &which); err == nil {
			text += fmt.Sprint(m.objects.Keep(object.ID{which}))
		} else if _, err := fmt.Sscanf(string(c.Data), "release %d", &which); err == nil {
			text += fmt.Sprint(m.objects.Release(object.ID{which}))
		}
		for _, id := range c.Objects {
			f, err := m.objects.Open(id)
			if err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		m.told = append(m.told, text)
	}
	return nil
}

// objectMember is the adapter of a group with objects, without host, log and core. It has the objects whose
// ids are given.
func objectMember(t interface{ Fatal(...any) }, m *keepMachine, ids ...object.ID) bareGroup {
	return bareMember(t, m, statemachine.CommandOptions{Objects: &statemachine.ObjectOptions{}}, func(s bareGroup) error {
		g := s.group
		g.life.status.Store(diagnosis.Status{})
		r := membership.Founded([]membership.Member{{ID: 1}, {ID: 2}, {ID: 3}})
		g.members.Rosters.Set(r, 0)
		k, err := objects.New(objects.Settings{Group: 1, Self: 1, FS: crashfs.New(), Dir: "/objects", Options: object.Options{MaxSets: 6}}, loneMember{(*objectGroup)(g)}, nil)
		if err != nil {
			return err
		}
		for _, id := range ids {
			putObject(t, k.Files(), id)
		}
		g.machine.objects = k
		m.objects, g.machine.apply.Hook = &Objects{k}, objectHook{k, s.Commands}
		return nil
	})
}

// loneMember is a group without log, lanes and turns.
type loneMember struct{ *objectGroup }

func (loneMember) LastIndex() uint64               { return 0 }
func (loneMember) Stay(int64)                      {}
func (loneMember) Want()                           {}
func (loneMember) Wake()                           {}
func (loneMember) Work(string, func() bool) func() { return func() {} }

func objectTable(s bareGroup) []byte {
	form, _ := s.group.machine.objects.Capture()
	return form
}

func putObject(t interface{ Fatal(...any) }, to *files.Store, id object.ID) (info files.Info) {
	w, err := to.Create(id, 100)
	if err == nil {
		if _, err = w.Write(bytes.Repeat(id[:1], 10)); err == nil {
			info, err = w.Publish()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// drawObjectEntries draws the entries of a group with a few objects.
func drawObjectEntries(rng *rand.Rand, n int, info map[object.ID]files.Info) (entries []statemachine.Entry) {
	var now time.Duration
	for i := range n {
		var h session.Header
		if rng.IntN(4) == 0 {
			now += time.Duration(rng.IntN(1500)) * time.Millisecond
			h.Stamp, h.HasStamp = now, true
		}
		if rng.IntN(3) == 0 {
			h.Mark, h.HasMark = session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: 1 + rng.Uint64N(uint64(i)/2+1), Low: 1}, true
		}
		id := object.ID{byte(1 + rng.IntN(8))}
		data := make([]byte, session.Room)
		switch rng.IntN(8) {
		case 0, 1:
			data = object.AppendOpening(data, object.Opening{ID: id, Bytes: 10, Hash: info[id].Hash, Manifest: 1, Uploader: 1, Life: time.Duration(1+rng.IntN(4)) * time.Second})
		case 2, 3:
			data = object.AppendHolding(data, object.Holding{ID: id, Holders: []object.Holder{{ID: 1}, {ID: 3}}[:1+min(rng.IntN(4), 1)]})
		case 4:
			data = append(object.AppendHead(data, []object.ID{id}), "name it"...)
		case 5:
			data = append(object.AppendHead(data, []object.ID{id}), fmt.Sprintf("keep %d", id[0])...)
		case 6:
			data = append(object.AppendHead(data, nil), fmt.Sprintf("keep %d", id[0])...)
		case 7:
			data = append(object.AppendHead(data, nil), fmt.Sprintf("release %d", id[0])...)
		}
		if rng.IntN(50) == 0 {
			data = append(data[:session.Room], 77) // no such command
		}
		entries = append(entries, statemachine.Entry{Index: uint64(i + 1), Term: 3, Data: h.Put(data)})
	}
	return entries
}

// Members that cut the log into other batches, or must wait for objects, tell their machines the same, and
// have the same table at the end.
func TestObjectsDoNotDependOnBatches(t *testing.T) {
	waits, refused, applied := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var ids []object.ID
		for b := byte(1); b <= 8; b++ {
			ids = append(ids, object.ID{b})
		}
		machines := []*keepMachine{{}, {}, {}}
		members := []bareGroup{objectMember(t, machines[0], ids...), objectMember(t, machines[1], ids...), objectMember(t, machines[2])}
		info := map[object.ID]files.Info{}
		for _, i := range members[0].group.machine.objects.Files().List() {
			info[i.ID] = i
		}
		entries := drawObjectEntries(rng, 300-rapid.IntRange(0, 299).Draw(t, "fewer"), info)
		for i, s := range members {
			for rest := entries; len(rest) > 0; {
				n := 1
				if i > 0 {
					n += rng.IntN(len(rest))
				}
				err := s.Apply(rest[:n:n])
				if at := (*apply.WaitingForObject)(nil); i == 2 && errors.As(err, &at) {
					waits++
					putObject(t, s.group.machine.objects.Files(), s.group.machine.objects.Awaits())
					if n = int(at.Index - rest[0].Index); n < 0 {
						t.Fatalf("stopped at entry %d before entry %d", at.Index, rest[0].Index)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if i > 0 && !slices.Equal(machines[i].told, machines[0].told) {
				t.Fatalf("member %d was told\n%s\nand member 1\n%s", i+1, strings.Join(machines[i].told, "\n"), strings.Join(machines[0].told, "\n"))
			}
			if form := objectTable(s); !bytes.Equal(form, objectTable(members[0])) {
				t.Fatalf("member %d has another table of objects than member 1", i+1)
			}
			if form := s.Table().AppendTo(nil); !bytes.Equal(form, members[0].Table().AppendTo(nil)) {
				t.Fatalf("member %d has another table of sessions than member 1", i+1)
			}
		}
		for _, text := range machines[0].told {
			applied++
			if strings.Contains(text, "millrace:") {
				refused++
			}
		}
	})
	if waits == 0 || refused == 0 || applied == 0 {
		t.Errorf("%d waits, %d of %d commands told a refusal; want some of each", waits, refused, applied)
	}
}

// A command that was refused under a number of a session is refused again, also when the set is held by then.
func TestARefusedCommandStaysRefused(t *testing.T) {
	m := &keepMachine{}
	id := object.ID{1}
	s := objectMember(t, m, id)
	info, _ := s.group.machine.objects.Files().Info(id)
	mark := session.Mark{ID: session.ID{Client: [16]byte{9}}, Number: 1, Low: 1}
	index := uint64(0)
	apply := func(h session.Header, data []byte) {
		t.Helper()
		index++
		if err := s.Apply([]statemachine.Entry{{Index: index, Term: 1, Data: h.Put(data)}}); err != nil {
			t.Fatal(err)
		}
	}
	space := func() []byte { return make([]byte, session.Room) }
	apply(session.Header{}, object.AppendOpening(space(), object.Opening{ID: id, Bytes: 10, Hash: info.Hash, Manifest: info.Manifest + 1, Uploader: 1, Life: time.Hour}))
	apply(session.Header{Mark: mark, HasMark: true}, append(object.AppendHead(space(), []object.ID{id}), "too early"...))
	apply(session.Header{}, object.AppendHolding(space(), object.Holding{ID: id, Holders: []object.Holder{{ID: 2}, {ID: 3}}}))
	apply(session.Header{Mark: mark, HasMark: true}, append(object.AppendHead(space(), []object.ID{id}), "too early"...))
	if len(m.told) > 0 {
		t.Errorf("the machine was told %q", m.told)
	}
	mark.Number++
	apply(session.Header{Mark: mark, HasMark: true}, append(object.AppendHead(space(), []object.ID{id}), "now"...))
	if len(m.told) != 1 || !strings.Contains(m.told[0], "now") {
		t.Errorf("the machine was told %q, want one command", m.told)
	}
	if err := m.objects.Keep(id); !errors.Is(err, object.ErrRefused) {
		t.Errorf("Keep outside of Apply: %v", err)
	}
}
