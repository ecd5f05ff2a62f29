package kv

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/lease"
	"github.com/millrace/millrace/sim"
)

var simSeeds = flag.Uint64("sim.seeds", 8, "run the machine in the simulator with this many seeds")

// TestSimulated runs the machine in the simulator, on hosts with all their faults. It is the engine in
// memory: a machine with files of its own cannot be simulated. TestProperty has crashes and restores of the
// other one.
func TestSimulated(t *testing.T) {
	for seed := uint64(1); seed <= *simSeeds; seed++ {
		report, history, err := sim.RunMachine(sim.Options{Seed: seed}, sim.Workload[[]byte, command.Result]{
			Machine: func(uint64) millrace.Machine[[]byte, command.Result] {
				m := must(build(vfs.NewMem(), Options{Engine: "memory", HeadCacheBytes: forgetful}))
				return millrace.InMemory[[]byte, command.Result](whole{volatile{m}}, millrace.Bytes()).Digest(m.digest)
			},
			Command: drawCommand,
			Check:   growing(t),
		})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if len(history) < 10 {
			t.Errorf("seed %d: %d operations: %+v", seed, len(history), report)
		}
	}
}

// whole builds all answers: the simulator compares results with all of their fields.
type whole struct{ volatile }

func (w whole) Apply(batch []millrace.Command[[]byte], results []command.Result) error {
	for i := range batch {
		batch[i].Awaited = true
	}
	return w.volatile.Apply(batch, results)
}

// growing: the revision of a result is never before that of an earlier command.
func growing(t *testing.T) func(history []sim.Operation[[]byte, command.Result]) error {
	return func(history []sim.Operation[[]byte, command.Result]) error {
		byIndex := map[uint64]int64{}
		var last uint64
		for _, op := range history {
			if op.Outcome == sim.Applied {
				byIndex[op.Index] = max(byIndex[op.Index], op.Output.Revision)
				last = max(last, op.Index)
			}
		}
		revision := int64(1)
		for i := uint64(1); i <= last; i++ {
			if r, ok := byIndex[i]; ok && r < revision {
				t.Errorf("the command at %d has revision %d, an earlier one %d", i, r, revision)
			} else if ok {
				revision = r
			}
		}
		return nil
	}
}

// drawCommand draws a command without a twin: its revisions are small.
func drawCommand(rng *rand.Rand) []byte {
	d := draw{rng}
	about := newModel()
	for range rng.IntN(30) {
		about.states = append(about.states, nil)
	}
	switch k := rng.IntN(20); {
	case k < 7:
		return must(command.Put(d.put()))
	case k < 9:
		return must(command.DeleteRange(d.delete()))
	case k < 13:
		return must(command.Txn(d.txn(about, 1, nil)))
	case k < 14:
		return must(command.Compact(&pb.CompactionRequest{Revision: d.revision(about)}))
	case k < 16:
		return command.LeaseGrant(d.lease(), 1)
	case k < 17:
		return command.LeaseRevoke(d.lease())
	case k < 18:
		return command.LeaseRenew([]int64{d.lease(), d.lease()})
	case k < 19:
		return command.LeaseExpire([]lease.Renewal{{ID: d.lease(), Number: uint64(rng.IntN(2))}})
	}
	return d.value()
}
