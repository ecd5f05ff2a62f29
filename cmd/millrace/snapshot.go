package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/inspect"
	"github.com/spf13/cobra"
)

var snapshotLong = `snapshot looks into the snapshots of a host. DIR is the directory that Millrace was opened with, the directory of one
group's snapshots in it (groups/GROUP/snapshots), the directory of one snapshot, or an archive that save or Node.Export made.

inspect and verify only read, and take no lock. Beside a running host the answer is that of a moment: a snapshot that the host takes or
removes meanwhile may look unfinished or damaged. Ask again, or stop the host.

` + snapshotExitHelp()

func newSnapshot(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Look into the snapshots of a host, back up, begin a new cluster: inspect, verify, save, restore",
		Long:  snapshotLong,
		Example: `  millrace snapshot inspect /var/lib/app          what is there?
  millrace snapshot verify --json /var/lib/app    is it whole?`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newSave(a),
		newRestore(a),
		newSnapshotQuestion(a, "inspect", "What is in the snapshots of a host", inspectLong, false),
		newSnapshotQuestion(a, "verify", "Compare every block with the manifest", snapshotVerifyLong, true),
	)
	for _, sub := range append(cmd.Commands(), cmd) {
		sub.Flags().SortFlags = false
	}
	return cmd
}

const snapshotJSON = `JSON: dir, verified, snapshots [{dir, state (published, receiving, unfinished, damaged), index, term, bytes, hash, cluster, group,
machine, host_bytes, skipped (commands that the state lacks, because they were skipped), conf {voters, learners, voters_outgoing, learners_next, auto_leave}, members [{id, incarnation}],
content [{kind, name, bytes, parts}], damage}].

`

var inspectLong = `inspect says what each snapshot stands for, and what it consists of. It reads the manifests and the lengths of the parts,
and not the content: verify does.

` + snapshotJSON + snapshotExitHelp(exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted)

var snapshotVerifyLong = `verify reads all content of all published snapshots and compares it with the manifests: every block with its CRC32C, every
part with its SHA-256. It finds what the host would find before it uses a snapshot.

A directory in which a snapshot is being received, or was being taken when the host ended, is no damage: the next start
continues with the one and removes the other.

` + snapshotJSON + snapshotExitHelp(exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted)

func newSnapshotQuestion(a app, name, short, long string, verify bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: name + " DIR", Short: short, Long: long, Args: wantArgs(1, "one directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			answered, err := lookAtSnapshots(cmd.Context(), args[0], verify)
			if err != nil {
				return cannot(err)
			}
			return answer(a, answered, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// snapshots is the answer of both verbs. The names of its JSON form stay as they are.
type snapshots struct {
	Dir       string          `json:"dir"`
	Verified  bool            `json:"verified"`
	Snapshots []snapshotFound `json:"snapshots"`
}

type snapshotFound struct {
	Dir       string            `json:"dir"`
	State     snapshot.State    `json:"state"`
	Index     uint64            `json:"index"`
	Term      uint64            `json:"term"`
	Bytes     int64             `json:"bytes"`
	Hash      string            `json:"hash,omitempty"`
	Cluster   uint64            `json:"cluster,string"`
	Group     uint64            `json:"group"`
	Machine   string            `json:"machine"`
	HostBytes int               `json:"host_bytes"`
	Skipped   []raftpb.Position `json:"skipped,omitempty"` // commands that the state does not have (members skip)
	Conf      snapshotConf      `json:"conf"`
	Members   []snapshotMember  `json:"members"`
	Content   []snapshotContent `json:"content"`
	Damage    string            `json:"damage,omitempty"`
}

type snapshotConf struct {
	Voters         []uint64 `json:"voters"`
	Learners       []uint64 `json:"learners,omitempty"`
	VotersOutgoing []uint64 `json:"voters_outgoing,omitempty"`
	LearnersNext   []uint64 `json:"learners_next,omitempty"`
	AutoLeave      bool     `json:"auto_leave,omitempty"`
}

type snapshotMember struct {
	ID          uint64 `json:"id"`
	Incarnation string `json:"incarnation"`
}

type snapshotContent struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Parts int    `json:"parts"`
}

func lookAtSnapshots(ctx context.Context, dir string, verify bool) (inspect.Answer, error) {
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return lookAtArchive(ctx, dir, verify)
	}
	found, err := snapshot.Find(ctx, vfs.OS(), dir)
	if err != nil {
		return nil, err
	}
	answer := &snapshots{Dir: dir, Verified: verify, Snapshots: make([]snapshotFound, 0, len(found))}
	for i := range found {
		if verify {
			if err := found[i].Verify(ctx); err != nil {
				return nil, err
			}
		}
		answer.Snapshots = append(answer.Snapshots, describeSnapshot(&found[i]))
	}
	return answer, nil
}

func describeSnapshot(f *snapshot.Found) snapshotFound {
	d := snapshotFound{Dir: f.Dir, State: f.State, Index: f.ID.Index, Term: f.ID.Term}
	if f.Damage != nil {
		d.Damage = f.Damage.Error()
	}
	m := f.Manifest
	if m == nil {
		return d
	}
	hash := m.Hash()
	d.Bytes, d.Hash, d.Cluster, d.Group = m.Bytes(), hex.EncodeToString(hash[:]), m.Cluster, m.Group
	d.Machine, d.HostBytes = m.Machine, len(m.Host)
	if skipped, err := host.SkippedCommands(m.Host); err == nil { // a block of another version is not damage
		d.Skipped = skipped
	}
	d.Conf = snapshotConf{m.Conf.Voters, m.Conf.Learners, m.Conf.VotersOutgoing, m.Conf.LearnersNext, m.Conf.AutoLeave}
	for _, member := range m.Members {
		d.Members = append(d.Members, snapshotMember{member.ID, hex.EncodeToString(member.Incarnation[:])})
	}
	for i := 0; i < len(m.Parts); {
		first, n := m.Find(m.Parts[i].Kind, m.Parts[i].Name)
		c := snapshotContent{Kind: m.Parts[i].Kind.String(), Name: m.Parts[i].Name, Parts: n}
		for _, p := range m.Parts[first : first+n] {
			c.Bytes += p.Bytes
		}
		d.Content = append(d.Content, c)
		i = first + n
	}
	return d
}

// Exit implements inspect.Answer.
func (s *snapshots) Exit() int {
	for _, f := range s.Snapshots {
		if f.State == snapshot.Damaged {
			return exitDamaged
		}
	}
	return exitOK
}

// WriteText implements inspect.Answer.
func (s *snapshots) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, f := range s.Snapshots {
		switch {
		case f.State == snapshot.Published && s.Verified:
			fmt.Fprintf(&b, "whole       %s\n", f.Dir)
		default:
			fmt.Fprintf(&b, "%-10s  %s\n", f.State, f.Dir)
		}
		if f.Damage != "" {
			fmt.Fprintf(&b, "            %s\n", f.Damage)
		}
		if f.Hash == "" {
			continue
		}
		fmt.Fprintf(&b, "            group %d of cluster %d, entries through %d of term %d, %d bytes, machine %q\n", f.Group, f.Cluster, f.Index, f.Term, f.Bytes, f.Machine)
		if len(f.Skipped) > 0 {
			fmt.Fprintf(&b, "            without the commands %v, which were skipped\n", f.Skipped)
		}
		fmt.Fprintf(&b, "            voters %d", f.Conf.Voters)
		for _, ids := range []struct {
			what string
			ids  []uint64
		}{{"learners", f.Conf.Learners}, {"outgoing voters", f.Conf.VotersOutgoing}, {"next learners", f.Conf.LearnersNext}} {
			if len(ids.ids) > 0 {
				fmt.Fprintf(&b, ", %s %d", ids.what, ids.ids)
			}
		}
		fmt.Fprintf(&b, "; manifest %.16s\n", f.Hash)
		if s.Verified {
			continue
		}
		for _, c := range f.Content {
			fmt.Fprintf(&b, "            %-7s  %12d bytes in %d parts  %s\n", c.Kind, c.Bytes, c.Parts, c.Name)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
