// The program that plays upstream's interaction scripts on our core. It is compiled beside upstream's environment, whose
// import paths are rewritten to ours, in a module that exists only while conformance's tests run; see player_test.go
// there. One run plays one script: a case that panics, or that the environment gives up, ends the run, and the cases
// that have been written to the results by then still count. Whether an output is right is not decided here.
package interaction

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/cockroachdb/datadriven"

	"interaction/rafttest"

	"github.com/millrace/millrace/raft"
)

var (
	script  = flag.String("script", "", "the script to play")
	results = flag.String("results", "", "where to write the output of each case, as one JSON string a line")
)

func TestPlay(t *testing.T) {
	out, err := os.Create(*results)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	encoder := json.NewEncoder(out) // no buffer: what was played must be on disk when the next case panics
	env := rafttest.NewInteractionEnv(&rafttest.InteractionOpts{
		SetRandomizedElectionTimeout: (*raft.RawNode).SetElectionTimeout,
	})
	datadriven.RunTest(t, *script, func(t *testing.T, d *datadriven.TestData) string {
		if err := encoder.Encode(env.Handle(t, *d)); err != nil {
			t.Fatal(err)
		}
		return d.Expected
	})
}
