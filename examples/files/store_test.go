package main

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/smtest"
)

// kept is a keeper that remembers what is kept, and refuses what no sound store asks for.
type kept map[millrace.ObjectID]bool

func (k kept) Keep(id millrace.ObjectID) error {
	if k[id] {
		return errors.New("it is kept already")
	}
	k[id] = true
	return nil
}

func (k kept) Release(id millrace.ObjectID) error {
	if !k[id] {
		return errors.New("it is not kept")
	}
	delete(k, id)
	return nil
}

// anything is a keeper for a store that is restored, and has kept nothing in this life.
type anything struct{}

func (anything) Keep(millrace.ObjectID) error    { return nil }
func (anything) Release(millrace.ObjectID) error { return nil }

// changes are commands that put, replace and delete.
func changes() (all []command) {
	for i, name := range []string{"a", "b", "a", "c/d", "a", "", "b"} {
		c := command{Name: name}
		if i != 4 && i != 6 {
			c.File = &file{Object: millrace.ObjectID{byte(i + 1)}, Bytes: int64(i) << 30, Hash: []byte{byte(i)}, Modified: time.Unix(int64(i), 5).UTC()}
		}
		all = append(all, c)
	}
	return append(all, command{Name: "none"})
}

// A store is what millrace expects of a state machine: deterministic, with snapshots of one moment and an
// atomic Restore.
func TestStore(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[command, bool] {
		s := newStore()
		s.objects = anything{}
		return s.machine(millrace.ObjectOptions{})
	}, changes()...)
}

// Exactly the objects that names refer to are kept, after each command.
func TestKept(t *testing.T) {
	k, s := kept{}, newStore()
	s.objects = k
	for i, c := range changes() {
		existed := make([]bool, 1)
		if err := s.Apply([]millrace.Command[command]{{Value: c}}, existed); err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
		if len(k) != len(s.names) {
			t.Errorf("command %d: %d objects are kept, and there are %d names", i, len(k), len(s.names))
		}
		for name, f := range s.names {
			if !k[f.Object] {
				t.Errorf("command %d: the object of %q is not kept", i, name)
			}
		}
		if want := i == 2 || i == 4 || i == 6; existed[0] != want {
			t.Errorf("command %d: the name existed: %v, want %v", i, existed[0], want)
		}
	}
}
