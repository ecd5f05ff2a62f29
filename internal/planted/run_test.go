package planted_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
)

// A run of all bugs, each against the judges that are known to find it, prints a table, and takes some
// minutes. -planted.search asks all judges, the fastest first: it finds the judge of a new bug.
//
//	go test ./internal/planted -run TestEachIsFound -v -timeout 0 -planted.all
//	go test ./internal/planted -run TestEachIsFound -v -timeout 0 -planted.only 'roll|fence' -planted.write
//	go test ./internal/planted -run TestEachIsFound -v -timeout 0 -planted.only forget_vote -planted.search
//
// Without flags a few bugs are drawn. The run prints the seed of the draw; -planted.seed repeats it.

var (
	all    = flag.Bool("planted.all", false, "run all bugs, and print the table")
	only   = flag.String("planted.only", "", "like -planted.all, for the bugs whose names match this expression")
	search = flag.Bool("planted.search", false, "with -planted.all or -planted.only: ask all judges, not those that are known")
	write  = flag.Bool("planted.write", false, "with -planted.all or -planted.only: write the rows into internal/planted/testdata/planted-bugs.md")
	dir    = flag.String("planted.dir", "", "keep the programs in this folder; a bug is switched on by "+variable+"=name in the environment")
	reuse  = flag.Bool("planted.reuse", false, "with -planted.dir: take the programs that exist as they are")
	seed   = flag.Uint64("planted.seed", 0, "draw the bugs of a short run with this seed; 0: with a seed from the clock")
	sample = flag.Int("planted.sample", 2, "bugs that a short run draws")
	labFor = flag.Duration("planted.lab", time.Minute, "time that the crash laboratory has for one bug")
)

func TestBugsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range bugs {
		if seen[b.name] || b.name == "" || b.what == "" || len(b.edits) == 0 {
			t.Errorf("bug %q: the name is taken, or something is missing", b.name)
		}
		if (b.found == "") != (b.same != "") {
			t.Errorf("bug %q needs either a test that finds it or a reason why none can", b.name)
		}
		seen[b.name] = true
	}
	if len(seen) < 80 {
		t.Errorf("%d bugs are planted, want at least 80", len(seen))
	}
}

func TestEachIsFound(t *testing.T) {
	if *all || *only != "" {
		runAll(t)
		return
	}
	if testing.Short() {
		t.Skip("-short: builds the judges of some bugs")
	}
	draw := *seed
	if draw == 0 {
		draw = uint64(time.Now().UnixNano())
	}
	t.Logf("drawn with -planted.seed=%d", draw)
	var drawn []*bug
	for _, b := range pointers(bugs) {
		if b.found != "" && !b.rare {
			drawn = append(drawn, b)
		}
	}
	rng := rand.New(rand.NewPCG(draw, 1))
	rng.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	p := newPrograms(t)
	for _, b := range drawn[:min(*sample, len(drawn))] {
		t.Run(b.name, func(t *testing.T) {
			v, err := p.ask(t, b, b.judge())
			if wide, ok := b.judge().widened(); ok && (err != nil || !v.found) {
				t.Logf("%s %s does not find it any more (%v): other runs than in the table are asked", v.test, b.args, err)
				v, err = p.ask(t, b, wide)
				v.found = v.found && v.test != endless
			}
			if err != nil || !v.found {
				t.Fatalf("%s of %s does not find %s (%s): %v", b.found, v.in, b.name, b.what, err)
			}
			t.Logf("found by %s, in %.1f CPU-seconds: %s: %s", v.layer(), v.cpu.Seconds(), v.test, v.detail)
		})
	}
}

func runAll(t *testing.T) {
	chosen, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-planted.only: %v", err)
	}
	p := newPrograms(t)
	note := func(b *bug, found []verdict) {
		row := b.row(found)
		if *write && !*search {
			if err := writeTable(map[string]string{b.name: row}); err != nil {
				t.Error(err)
			}
		}
	}
	layers, cpu := map[string]int{}, time.Duration(0)
	for _, b := range pointers(bugs) {
		if !chosen.MatchString(b.name) {
			continue
		}
		judges := b.judges()
		switch {
		case *search:
			judges = allJudges(b)
		case b.same != "":
			layers["the same"]++
			note(b, nil)
			fmt.Printf("%s: the same as without: %s\n", b.name, b.same)
			continue
		}
		var found []verdict
		for _, j := range judges {
			v, err := p.ask(t, b, j)
			cpu += v.cpu
			switch {
			case err != nil:
				t.Errorf("%s (%s): %v", b.name, b.what, err)
			case v.found:
				found = append(found, v)
				fmt.Printf("%s: %s: %s %s: %s (%.1f CPU-seconds)\n", b.name, v.layer(), v.test, v.args, v.detail, v.cpu.Seconds())
			case !*search:
				t.Errorf("%s (%s): %s %s of %s does not find it (%.1f CPU-seconds)", b.name, b.what, j.test, j.args, j.in, v.cpu.Seconds())
			}
			if *search && v.found {
				break
			}
		}
		if len(found) == 0 {
			layers["nothing"]++
			fmt.Printf("%s: NOT FOUND\n", b.name)
			continue
		}
		layers[found[0].layer()]++
		note(b, found)
	}
	if *write {
		if err := writeTable(nil); err != nil {
			t.Error(err)
		}
	}
	names := make([]string, 0, len(layers))
	for l := range layers {
		names = append(names, l)
	}
	sort.Slice(names, func(i, j int) bool { return layers[names[i]] > layers[names[j]] })
	for i, l := range names {
		names[i] = fmt.Sprintf("%d %s", layers[l], l)
	}
	fmt.Printf("%s; %.0f CPU-seconds\n", strings.Join(names, ", "), cpu.Seconds())
}

// allJudges returns the judges to ask for a bug whose judge is not known, the fastest first.
func allJudges(b *bug) []judge {
	var judges []judge
	of := func(prefix string) bool {
		for _, f := range b.files() {
			if strings.HasPrefix(f, prefix) {
				return true
			}
		}
		return false
	}
	if of("raft/") {
		judges = append(judges, judge{in: "sim/core", test: "TestSeeds", args: "-seeds 4000"}, judge{in: "raft"})
	}
	if of("wal/") {
		judges = append(judges, judge{in: "wal", test: labTest}, judge{in: "wal"})
	}
	if of("snapshot/") {
		judges = append(judges, judge{in: "snapshot"}, judge{in: "object/files"})
	}
	if of("transport/tcp/") || of("transport/cert/") {
		judges = append(judges, judge{in: "transport/tcp"})
	}
	if of("host/session/") {
		judges = append(judges, judge{in: "host/session"})
	}
	if of("host/rescue/") {
		judges = append(judges, judge{in: "host/rescue"}, judge{in: "sim", test: "TestRescues"})
	}
	if of("host/membership/") {
		judges = append(judges, judge{in: "host/membership"})
	}
	const parts = "host/internal/"
	for _, f := range b.files() {
		part, isPart := strings.CutPrefix(path.Dir(f), parts)
		own := judge{in: parts + part}
		if isPart && !slices.Contains(judges, own) {
			judges = append(judges, own)
		}
	}
	judges = append(judges, judge{in: "sim", test: "TestSeeds", args: "-seeds 500 -failures 1"}, judge{in: "host"})
	for _, scenario := range []string{"TestChurn", "TestSnapshots", "TestObjects", "TestFounding", "TestLeases", "TestExactlyOnce"} {
		judges = append(judges, judge{in: "sim", test: scenario})
	}
	return judges
}
