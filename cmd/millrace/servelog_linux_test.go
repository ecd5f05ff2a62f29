//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/server/audit"
)

// The log of a stopped member has each request with the revision that its client saw. A user who can only
// read sees it, too. A wrong directory gets a sentence.
func TestServeLog(t *testing.T) {
	dir, revisions := writeService(t)
	makeReachable(t, dir)
	makeReadOnly(t, dir)
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	var out strings.Builder
	have := exitFailed
	scratch.WithoutWriting(t, func() { have = run(t.Context(), []string{"serve", "log", dir}, app{stdout: &out, stderr: said}) })
	if wrong, _ := os.ReadFile(said.Name()); have != exitOK || len(wrong) > 0 {
		t.Fatalf("status %d: %s", have, wrong)
	}
	var puts, txns []int64
	refused := 0
	for line := range strings.Lines(out.String()) {
		var l audit.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Index == 0 || l.Term == 0 || l.Revision == 0 {
			t.Errorf("a line without index, term or revision: %s", line)
		}
		if l.Request == nil {
			continue
		}
		var r pb.InternalRaftRequest
		if err := protojson.Unmarshal(l.Request, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case l.Error != "":
			refused++
		case r.Put != nil:
			puts = append(puts, l.Revision)
		case r.Txn != nil:
			txns = append(txns, l.Revision)
		}
	}
	if len(puts) != 2 || len(txns) != 1 || puts[0] != revisions[0] || txns[0] != revisions[1] || puts[1] != revisions[2] || refused != 1 {
		t.Errorf("puts at %d, transactions at %d, %d refused; the client saw %d\n%s", puts, txns, refused, revisions, out.String())
	}
	for wrong, want := range map[string]string{t.TempDir(): "give the --data-dir of a member", filepath.Join(dir, "none"): "there is no such directory"} {
		if err := said.Truncate(0); err != nil {
			t.Fatal(err)
		}
		have := run(t.Context(), []string{"serve", "log", wrong}, app{stdout: &out, stderr: said})
		if text, _ := os.ReadFile(said.Name()); have != exitCannot || !strings.Contains(string(text), want) {
			t.Errorf("%s: status %d, %q; want %q", wrong, have, text, want)
		}
	}
}
