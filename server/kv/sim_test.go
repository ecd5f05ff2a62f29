package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/lease"
	"github.com/millrace/millrace/sim"
)

var simSeeds = flag.Uint64("sim.seeds", 8, "run the machine in the simulator with this many seeds")

// TestSimulated runs the machine in the simulator, on hosts with all their faults, with the engine in memory.
func TestSimulated(t *testing.T) {
	operations := 0
	for seed := uint64(1); seed <= *simSeeds; seed++ {
		report, history, err := sim.RunMachine(sim.Options{Seed: seed}, sim.Workload[[]byte, command.Result]{
			Machine: func(uint64) millrace.Machine[[]byte, command.Result] {
				m := must(build(vfs.NewMem(), Options{Engine: "memory", HeadCacheBytes: forgetful}))
				return millrace.InMemory[[]byte, command.Result](whole{volatile{m}}, millrace.Bytes()).Digest(m.digest).Versions(withoutMembers, HighestVersion)
			},
			Command: drawCommand,
			Check:   growing(t),
		})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if operations += len(history); len(history) == 0 {
			t.Errorf("seed %d: no operation: %+v", seed, report)
		}
	}
	judgeOperations(t, operations)
}

// judgeOperations demands that the runs together have many operations. One with many faults may have few.
func judgeOperations(t *testing.T, n int) {
	t.Helper()
	if uint64(n) < 50**simSeeds {
		t.Errorf("%d operations in %d runs, want 50 for each", n, *simSeeds)
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

// TestSimulatedOnDisk is TestSimulated with the engine on a disk. A start gets what a power cut leaves of the
// disk, also before a sweep and between its parts, in a flush, and while a database that was replaced is
// removed. TestRestoreIsCutAnywhere has the power cuts within a restore.
func TestSimulatedOnDisk(t *testing.T) {
	var operations, starts, kept, restored, sweeping, separated int
	for seed := uint64(1); seed <= *simSeeds; seed++ {
		type place struct{ host, disk uint64 }
		disks, machines := map[place]*vfs.MemFS{}, map[place]*Machine{}
		cuts := rand.New(rand.NewPCG(seed, 61))
		load := sim.Workload[[]byte, command.Result]{
			Durable: func(host, number uint64) millrace.Machine[[]byte, command.Result] {
				at := place{host, number}
				if disks[at] == nil {
					disks[at] = vfs.NewCrashableMem()
				} else {
					_, compacted := machines[at].Revision()
					if swept, _ := machines[at].store.Load().Swept(); swept < compacted {
						sweeping++
					}
					if hasValues(t, disks[at], "kv") {
						separated++
					}
					disks[at] = disks[at].CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: cuts.IntN(101), RNG: cuts})
				}
				m := must(build(disks[at], Options{Dir: "kv", HeadCacheBytes: forgetful, BlockCacheBytes: 1 << 20, memTableBytes: 64 << 10, separatedBytes: 24, rewriteAge: 1}))
				if machines[at] = m; m.Applied() > 0 {
					kept++
				}
				starts++
				return millrace.Durable(inStreams{durable{m}, cuts, &restored}, millrace.Bytes()).Digest(m.digest).Versions(withoutMembers, HighestVersion)
			},
			Command: drawCommand,
			Check:   growing(t),
		}
		report, history, err := sim.RunMachine(sim.Options{Seed: seed}, load)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if operations += len(history); len(history) == 0 {
			t.Errorf("seed %d: no operation: %+v", seed, report)
		}
	}
	judgeOperations(t, operations)
	t.Logf("%d operations, %d starts, %d of them with commands on the disk, %d with files of values and %d before the end of a sweep; %d restores", operations, starts, kept, separated, sweeping, restored)
	if kept == 0 || sweeping == 0 || restored == 0 || separated == 0 {
		t.Errorf("of %d starts %d had commands on the disk, %d had files of values, and %d snapshots were restored", starts, kept, separated, restored)
	}
}

// hasValues reports whether a database below a directory has a file of values.
func hasValues(t *testing.T, fs vfs.FS, dir string) bool {
	for _, name := range must(fs.List(dir)) {
		if !strings.HasPrefix(name, databasePrefix) {
			continue
		}
		if slices.ContainsFunc(must(fs.List(fs.PathJoin(dir, name))), func(name string) bool { return strings.HasSuffix(name, ".blob") }) {
			return true
		}
	}
	return false
}

// inStreams is a machine on a disk that builds all answers, and whose snapshots have their files in their
// streams: the simulator has no disk to link them to.
type inStreams struct {
	d        durable
	rng      *rand.Rand
	restored *int
}

func (s inStreams) Apply(batch []millrace.Command[[]byte], results []command.Result) error {
	var err error
	switch s.rng.IntN(8) {
	case 0:
		_, err = s.d.m.store.Load().Sweep()
	case 1:
		err = s.d.Sync()
	}
	if err != nil {
		return err
	}
	return whole{volatile{s.d.m}}.Apply(batch, results)
}

func (s inStreams) Applied() (uint64, error) { return s.d.Applied() }

func (s inStreams) MembersChanged(c millrace.Configuration) error { return s.d.MembersChanged(c) }

func (s inStreams) Sync() error { return s.d.Sync() }

func (s inStreams) Snapshot() (millrace.Snapshot, error) {
	c, err := s.d.Snapshot()
	if err != nil {
		return nil, err
	}
	return filesInStream{c.(*checkpoint)}, nil
}

type filesInStream struct{ c *checkpoint }

func (f filesInStream) Close() error { return f.c.Close() }

// WriteTo writes the stream of the checkpoint, then its files, each with its name, and the length before it.
func (f filesInStream) WriteTo(ctx context.Context, w io.Writer) error {
	var stream bytes.Buffer
	if err := f.c.WriteTo(ctx, &stream); err != nil {
		return err
	}
	parts := [][]byte{stream.Bytes()}
	for _, file := range f.c.Files() {
		r, err := f.c.disk.fs.Open(file.Path)
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		parts = append(parts, []byte(file.Name), content)
	}
	for _, p := range parts {
		if _, err := w.Write(append(binary.BigEndian.AppendUint64(nil, uint64(len(p))), p...)); err != nil {
			return err
		}
	}
	return nil
}

// Restore implements millrace.StateMachine.
func (s inStreams) Restore(ctx context.Context, from io.Reader) error {
	all, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	var parts [][]byte
	for len(all) > 0 {
		n := binary.BigEndian.Uint64(all) + 8
		parts, all = append(parts, all[8:n]), all[n:]
	}
	files := inMemory{}
	for k := 1; k < len(parts); k += 2 {
		files[string(parts[k])] = parts[k+1]
	}
	*s.restored++
	return s.d.RestoreFiles(ctx, bytes.NewReader(parts[0]), files)
}

// inMemory is the files of a snapshot.
type inMemory map[string][]byte

func (m inMemory) Names() []string { return slices.Sorted(maps.Keys(m)) }

func (m inMemory) Link(string, string) error { return errors.ErrUnsupported }

func (m inMemory) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m[name])), nil
}
