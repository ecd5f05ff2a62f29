package sim_test

import (
	"flag"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var objects = flag.Uint64("objects", 30, "run TestObjects with this many seeds")

// TestObjects: clients upload large objects and name them in commands, under every fault, and while the
// members change. What a client was told is held is never lost, and all members keep the same.
func TestObjects(t *testing.T) {
	eachWith(t, min(*objects, most(t, 30)), sim.Objects, sim.UploadsHeld, sim.UploadsOver, sim.ObjectsNamed, sim.NamesRefused,
		sim.Fetches, sim.FetchesOver)
}

// A member of an idle group regains its authority. Files of an object that the log no longer knows must go
// then, and not with the next command.
func TestStrayFilesGoWithoutACommand(t *testing.T) {
	if _, err := sim.Objects(sim.Options{Seed: 901, Faults: 1500 * time.Millisecond}); err != nil {
		t.Error(err)
	}
}
