package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// writeSnapshots makes a snapshot of each group in a host's directory.
func writeSnapshots(t *testing.T, host string, groups ...uint64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, group := range groups {
		store, err := snapshot.OpenStore(vfs.OS(), groupSnapshots(host, group))
		must(err)
		w, err := store.Create(snapshot.ID{Index: 100 + group, Term: 3})
		must(err)
		out, err := w.Stream(snapshot.KindMachine, "state")
		must(err)
		_, err = out.Write([]byte(strings.Repeat("state", 20_000)))
		must(err)
		must(out.Close())
		must(w.SyncParts())
		must(w.Publish(snapshot.Manifest{Cluster: 5, Group: group, Index: 100 + group, Term: 3, Conf: raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}},
			Members: []snapshot.Member{{ID: 1, Incarnation: [16]byte{0xab}}}, Machine: "kv-1"}))
	}
}

func groupSnapshots(host string, group uint64) string {
	return filepath.Join(host, "groups", strconv.FormatUint(group, 10), "snapshots")
}

// ask runs a command line of snapshot.
func ask(t *testing.T, args ...string) (status int, stdout string) {
	t.Helper()
	status, stdout, _ = askAll(t, args...)
	return status, stdout
}

func askAll(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runVerb(t, t.Context(), append([]string{"snapshot"}, args...)...)
}

// What an operator sees of two groups' snapshots, whole and damaged, and of directories that are none.
func TestSnapshotLooksIntoAHost(t *testing.T) {
	host := t.TempDir()
	writeSnapshots(t, host, 7, 12)
	one := filepath.Join(groupSnapshots(host, 7), snapshot.ID{Index: 107, Term: 3}.String())
	expect := func(status int, args string, texts ...string) {
		t.Helper()
		have, stdout := ask(t, strings.Fields(args)...)
		if have != status {
			t.Errorf("%s: status %d, want %d", args, have, status)
		}
		for _, text := range texts {
			if !strings.Contains(stdout, text) {
				t.Errorf("%s: no %q in\n%s", args, text, stdout)
			}
		}
	}
	expect(exitOK, "inspect "+host, "published   "+one, "group 7 of cluster 5, entries through 107 of term 3, 100000 bytes, machine \"kv-1\"", "voters [1 2 3], learners [4]",
		"machine        100000 bytes in 1 parts  state", "group 12 of")
	expect(exitOK, "verify "+host, "whole       "+one)
	expect(exitOK, "verify "+groupSnapshots(host, 12), "entries through 112")
	expect(exitOK, "inspect "+one, "entries through 107")

	part := filepath.Join(one, "part-00000000")
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	data[70_000] ^= 1
	if err := os.WriteFile(part, data, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(exitOK, "inspect "+host, "published   "+one)
	expect(exitDamaged, "verify "+host, "damaged     "+one, part+", block 1 (bytes 65536 to 131072): it has the CRC32C", "whole       "+groupSnapshots(host, 12))
	if err := os.WriteFile(part, data[:70_000], 0o600); err != nil {
		t.Fatal(err)
	}
	expect(exitDamaged, "inspect "+host, "it has 70000 bytes, want 100000")
	if err := os.Rename(filepath.Join(one, "MANIFEST"), filepath.Join(one, "OFFER")); err != nil {
		t.Fatal(err)
	}
	expect(exitOK, "verify "+host, "receiving   "+one)
	if err := os.Remove(filepath.Join(one, "OFFER")); err != nil {
		t.Fatal(err)
	}
	expect(exitOK, "verify "+host, "unfinished  "+one)

	_, stdout := ask(t, "verify", "--json", host)
	var answer struct {
		Verified  bool
		Snapshots []struct {
			State   string
			Index   uint64
			Content []struct{ Name string }
			Members []struct{ Incarnation string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || !answer.Verified || len(answer.Snapshots) != 2 || answer.Snapshots[1].Index != 112 ||
		answer.Snapshots[1].Content[0].Name != "state" || !strings.HasPrefix(answer.Snapshots[1].Members[0].Incarnation, "ab00") {
		t.Errorf("%v in\n%s", err, stdout)
	}
}
