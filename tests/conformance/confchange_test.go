package conformance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/datadriven"
	theirchange "go.etcd.io/raft/v3/confchange"
	theirs "go.etcd.io/raft/v3/raftpb"
	theirtracker "go.etcd.io/raft/v3/tracker"

	"github.com/millrace/millrace/raft/confchange"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// membership is a configuration under change, ours or theirs. A golden file or a random walk drives it.
type membership interface {
	simple(ccs []raftpb.ConfChangeSingle) (string, error)
	enterJoint(autoLeave bool, ccs []raftpb.ConfChangeSingle) (string, error)
	leaveJoint() (string, error)
	// restore starts again from what storage would keep of the configuration.
	restore() (string, error)
}

// confChangeCases plays
//
//	simple                      with changes in the notation v1 l2 r3 u4
//	enter-joint [autoleave=b]   likewise
//	leave-joint
//
// on a configuration that is empty at first. The log grows by one entry with every command.
func confChangeCases() player {
	m := newOurs()
	return func(t *testing.T, d *datadriven.TestData) string {
		defer func() { m.LastIndex++ }()
		changes, err := raftpb.ConfChangesFromString(d.Input)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		var after string
		switch d.Cmd {
		case "simple":
			after, err = m.simple(changes)
		case "enter-joint":
			autoLeave := false
			d.MaybeScanArgs(t, "autoleave", &autoLeave)
			after, err = m.enterJoint(autoLeave, changes)
		case "leave-joint":
			after, err = m.leaveJoint()
		default:
			d.Fatalf(t, "unknown command")
		}
		if err != nil {
			return err.Error()
		}
		return after
	}
}

type ours struct{ confchange.Changer }

func newOurs() *ours {
	return &ours{confchange.Changer{Tracker: tracker.MakeProgressTracker(10, 0)}}
}

func (m *ours) adopt(config tracker.Config, views tracker.ProgressMap, err error) (string, error) {
	if err != nil {
		return "", err
	}
	m.Tracker.Config, m.Tracker.Progress = config, views
	return fmt.Sprintf("%s\n%s", config, views), nil
}

func (m *ours) simple(ccs []raftpb.ConfChangeSingle) (string, error) {
	return m.adopt(m.Simple(ccs...))
}
func (m *ours) enterJoint(autoLeave bool, ccs []raftpb.ConfChangeSingle) (string, error) {
	return m.adopt(m.EnterJoint(autoLeave, ccs...))
}
func (m *ours) leaveJoint() (string, error) { return m.adopt(m.LeaveJoint()) }
func (m *ours) restore() (string, error) {
	from := newOurs().Changer
	from.LastIndex = m.LastIndex
	return m.adopt(confchange.Restore(from, m.Tracker.ConfState()))
}

type upstreams struct{ theirchange.Changer }

func newUpstreams() *upstreams {
	return &upstreams{theirchange.Changer{Tracker: theirtracker.MakeProgressTracker(10, 0)}}
}

func (m *upstreams) adopt(config theirtracker.Config, views theirtracker.ProgressMap, err error) (string, error) {
	if err != nil {
		return "", err
	}
	m.Tracker.Config, m.Tracker.Progress = config, views
	return fmt.Sprintf("%s\n%s", config, views), nil
}

func (m *upstreams) simple(ccs []raftpb.ConfChangeSingle) (string, error) {
	return m.adopt(m.Simple(toTheirs(ccs)...))
}
func (m *upstreams) enterJoint(autoLeave bool, ccs []raftpb.ConfChangeSingle) (string, error) {
	return m.adopt(m.EnterJoint(autoLeave, toTheirs(ccs)...))
}
func (m *upstreams) leaveJoint() (string, error) { return m.adopt(m.LeaveJoint()) }
func (m *upstreams) restore() (string, error) {
	from := newUpstreams().Changer
	from.LastIndex = m.LastIndex
	return m.adopt(theirchange.Restore(from, m.Tracker.ConfState()))
}

func toTheirs(ccs []raftpb.ConfChangeSingle) []theirs.ConfChangeSingle {
	var out []theirs.ConfChangeSingle
	for _, cc := range ccs {
		out = append(out, theirs.ConfChangeSingle{Type: theirs.ConfChangeType(cc.Type), NodeID: cc.NodeID})
	}
	return out
}

// On random walks both give the same configurations and the same views, and refuse the same changes with the
// same texts.
func TestMembershipSideBySide(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		a, b := newOurs(), newUpstreams()
		var story string
		for range 12 {
			a.LastIndex++
			b.LastIndex++
			operation, run := drawOperation(random)
			story += operation + "\n"
			have, haveErr := run(a)
			want, wantErr := run(b)
			if have != want || fmt.Sprint(haveErr) != fmt.Sprint(wantErr) {
				t.Fatalf("seed %d:\n%shave\n%s%v\nwant\n%s%v", seed, story, have, haveErr, want, wantErr)
			}
		}
	}
}

func drawOperation(random *rand.Rand) (string, func(membership) (string, error)) {
	var changes []raftpb.ConfChangeSingle
	for range random.IntN(5) {
		changes = append(changes, raftpb.ConfChangeSingle{
			Type: raftpb.ConfChangeType(random.IntN(4)), NodeID: random.Uint64N(6),
		})
	}
	autoLeave := random.IntN(2) == 1
	switch random.IntN(8) {
	case 0, 1, 2:
		return "simple " + raftpb.ConfChangesToString(changes), func(m membership) (string, error) { return m.simple(changes) }
	case 3, 4:
		return fmt.Sprintf("enter-joint %v %s", autoLeave, raftpb.ConfChangesToString(changes)),
			func(m membership) (string, error) { return m.enterJoint(autoLeave, changes) }
	case 5, 6:
		return "leave-joint", membership.leaveJoint
	}
	return "restore", membership.restore
}
