package spec

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	workers = flag.Int("workers", runtime.GOMAXPROCS(0), "threads of TLC")
	large   = flag.Bool("large", false, "check the larger models too, which takes hours")
	walks   = flag.Int("walks", 150, "how many random walks through the large model to take")
	depth   = flag.Int("depth", 120, "how many steps each of them has at most")
	seed    = flag.Int64("seed", 1, "of the random walks")
)

var findOnce = sync.OnceValues(func() (tlc, error) {
	var t tlc
	var err error
	// The jar is wanted by all tests that follow, so no deadline of one of them counts.
	t.java, t.jar, err = findTLC(context.Background())
	return t, err
})

// checker returns TLC, and a folder with the specification. It skips the test where TLC is not available.
func checker(t *testing.T) (tlc, string) {
	t.Helper()
	checker, err := findOnce()
	var missing *unavailableError
	if errors.As(err, &missing) {
		t.Skipf("the specification is not checked: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := modules(folder); err != nil {
		t.Fatal(err)
	}
	return checker, folder
}

// The models that are checked completely. The large ones take hours.
var (
	smallModels = []string{"elections", "queue", "answers", "replication", "divided", "members", "members_two", "joint",
		"reads", "leases", "leases_late", "snapshots", "prevote", "founding"}
	largeModels = []string{"members_restart", "refusals", "reads_new_leader", "leases_large", "elections_large", "queue_large", "members_large", "snapshots_large"}
)

// moduleOf returns the module that a model configures.
func moduleOf(name string) string {
	if strings.HasPrefix(name, "founding") {
		return "Founding"
	}
	return "Model"
}

func TestModels(t *testing.T) {
	models, threads := smallModels, 1 // small models run side by side
	if *large {
		models, threads = append(models[:len(models):len(models)], largeModels...), *workers
	}
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			if !*large {
				t.Parallel()
			}
			tlc, folder := checker(t)
			config, err := model(name)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			o, err := tlc.run(t.Context(), job{folder: folder, module: moduleOf(name), config: config, workers: threads, long: *large})
			if err != nil {
				t.Fatal(err)
			}
			if o.violated != "" || !o.finished {
				t.Fatalf("%v:\n%s", o, errorIn(o.output))
			}
			t.Logf("%v, in %.1f s", o, time.Since(begin).Seconds())
		})
	}
}

// Random walks go where a complete search does not reach: all parts of the protocol at once, more nodes,
// terms, crashes and changes.
func TestSimulation(t *testing.T) {
	tlc, folder := checker(t)
	config, err := model("all")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	o, err := tlc.run(t.Context(), job{folder: folder, module: "Model", config: config, workers: *workers, long: *walks > 1000,
		args: []string{"-simulate", fmt.Sprintf("num=%d", max(*walks / *workers, 1)), "-depth", fmt.Sprint(*depth), "-seed", fmt.Sprint(*seed)}})
	if err != nil {
		t.Fatal(err)
	}
	if o.violated != "" || !o.finished {
		t.Fatalf("%v:\n%s", o, errorIn(o.output))
	}
	t.Logf("%d states in %d walks of %d steps at most, in %.1f s", o.generated, *walks, *depth, time.Since(begin).Seconds())
}

// Every .cfg file is used by a test.
func TestConfigurationsAreUsed(t *testing.T) {
	used := map[string]bool{"all": true, "Trace": true}
	for _, name := range append(smallModels, largeModels...) {
		used[name] = true
	}
	for _, p := range planted {
		used[p.model] = true
	}
	files, err := sources.ReadDir("tla")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name, isConfig := strings.CutSuffix(f.Name(), ".cfg"); isConfig && !used[name] {
			t.Errorf("no test uses %s", f.Name())
		} else if isConfig {
			delete(used, name)
		}
	}
	for name := range used {
		t.Errorf("there is no file %s.cfg", name)
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}
