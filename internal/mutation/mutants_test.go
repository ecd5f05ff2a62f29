//go:build linux

package mutation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// A run draws mutants and judges them; internal/mutation/testdata/mutation.md explains it. It can be
// interrupted at any time: a further run continues.
//
//	go test ./internal/mutation -run TestMutants -v -timeout 0 -mutants 190
//	go test ./internal/mutation -run TestMutants -v -timeout 0 -mutants 190 -mutation.again
//	go test ./internal/mutation -run TestSurvivorsAreJudged -v

var (
	mutants = flag.Int("mutants", 0, "judge this many mutants of each area; without it TestMutants is skipped")
	seed    = flag.Uint64("mutation.seed", 16, "draw the mutants with this seed")
	areas   = flag.String("mutation.area", "", "judge the areas whose names match this expression only")
	state   = flag.String("mutation.state", "testdata/results.jsonl", "the file of results, to which new ones are appended")
	reaches = flag.String("mutation.reach", "", "the file of what each test reaches; empty: <state>.reach in the temporary directory")
	length  = flag.Duration("mutation.for", 0, "end after this time, between two mutants; 0: when all are judged")
	budget  = flag.Duration("mutation.budget", 20*time.Second, "run as many tests for a mutant as take this time together")
	part    = flag.String("mutation.part", "0/1", "judge part i of n, as i/n, so that n runs judge at the same time")
	again   = flag.Bool("mutation.again", false, "judge those only that survived and are not known to be equivalent")
	build   = flag.String("mutation.dir", "", "build here, and leave the programs; empty: in a directory that is removed")
	tests   = flag.String("mutation.tests", "", "with -mutation.again: ask the tests whose names match this expression only, and write kills only")
	only    = flag.String("mutation.only", "", "judge the mutants whose names match this expression, again and without writing the result")
)

const root = "../.."

func TestMutants(t *testing.T) {
	if *mutants == 0 {
		t.Skip("without -mutants: takes an hour")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *length)
		defer cancel()
	}
	chosen, err := regexp.Compile(*areas)
	if err != nil {
		t.Fatalf("-mutation.area: %v", err)
	}
	for i := range Areas {
		if !chosen.MatchString(Areas[i].Name) {
			continue
		}
		if err := judgeArea(ctx, t, &Areas[i]); errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			fmt.Println("interrupted; the same command continues")
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func judgeArea(ctx context.Context, t *testing.T, area *Area) error {
	say := func(format string, args ...any) { fmt.Printf(area.Name+": "+format+"\n", args...) }
	p, err := populate(root, area, *seed)
	if err != nil {
		return err
	}
	fmt.Println(p)
	results, err := readResults(*state)
	if err != nil {
		return err
	}
	if *tests != "" && !*again && *only == "" {
		return errors.New("-mutation.tests needs -mutation.again or -mutation.only: the first result of a mutant is that of all tests")
	}
	drawn := p.order[:min(*mutants, len(p.order))]
	todo, err := remaining(drawn, results)
	if err != nil || len(todo) == 0 {
		say("all %d mutants are judged", len(drawn))
		return err
	}
	dir := *build
	if dir == "" {
		dir = t.TempDir()
	}
	b, err := p.build(ctx, dir, drawn, area.allJudges())
	if err != nil {
		return err
	}
	file := *reaches
	if file == "" {
		file = os.TempDir() + "/mutation.reach"
	}
	if *tests != "" {
		if b.only, err = regexp.Compile(*tests); err != nil {
			return fmt.Errorf("-mutation.tests: %w", err)
		}
	}
	if err := b.measure(ctx, file, say); err != nil {
		return err
	}
	b.remember(results)
	for i, number := range todo {
		r, err := b.judge(ctx, number, *budget)
		if err != nil {
			return err
		}
		say("%d of %d: %s %s:%d %s: %q -> %q %s (%d of %d tests, %.1f s)", i+1, len(todo), r.Result, r.File, r.Line, r.Operator, r.Was, r.Is, r.Test, r.Ran, r.Reach, r.Seconds)
		if *only != "" {
			fmt.Println(r.ID, r.Doubtful, "\n"+r.Tail)
			continue
		}
		if *tests != "" && r.Result != Killed && r.Result != KilledBy {
			continue
		}
		if err := appendLine(*state, r); err != nil {
			return err
		}
	}
	return nil
}

// remaining returns the numbers of the mutants that this run judges.
func remaining(drawn []*alternative, results []Result) ([]int, error) {
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return nil, fmt.Errorf("-mutation.only: %w", err)
	}
	var mine, parts int
	if n, err := fmt.Sscanf(*part, "%d/%d", &mine, &parts); n != 2 || err != nil || mine < 0 || mine >= parts {
		return nil, fmt.Errorf("-mutation.part is %q, want i/n with i below n", *part)
	}
	last := map[string]string{}
	for _, r := range results {
		last[r.ID] = r.Result
	}
	equivalent, err := equivalents()
	if err != nil {
		return nil, err
	}
	var todo []int
	for i, a := range drawn {
		id := a.mutant.ID
		switch {
		case i%parts != mine:
		case *only != "" && chosen.MatchString(id),
			*only == "" && !*again && last[id] == "",
			*only == "" && *again && last[id] == Survived && !equivalent[id]:
			todo = append(todo, i)
		}
	}
	return todo, nil
}
