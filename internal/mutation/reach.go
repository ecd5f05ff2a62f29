//go:build linux

package mutation

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxTest is how long one test may take alone. One that takes longer is no judge.
const maxTest = 30 * time.Second

// testOverhead is what a test costs, in seconds, that is reported with 0.00s.
const testOverhead = 0.005

// A reach is what one test was seen to reach. The file of reaches has one in each line.
type reach struct {
	Test    string
	Draw    string   // of which mutants, as a hash of their names
	Code    string   // a hash of the file that has the test
	Seconds float64  // of the clock: they bound how long the test may take with a mutant
	Cost    float64  // of a processor, or of the clock if that is less: they count in the budget
	Failed  bool     `json:",omitempty"`
	Mutants []string // by name
}

// measure runs each test of the judges alone, on unchanged code in the schema, and learns which mutants it
// reaches and how long it takes. What the file knows is not measured again.
func (b *programs) measure(ctx context.Context, file string, say func(string, ...any)) error {
	known, err := readReaches(file)
	if err != nil {
		return err
	}
	draw := hashOf(strings.Join(ids(b.mutants), "\n"))
	notes := filepath.Join(b.dir, "reached")
	for _, j := range b.judges {
		if err := b.list(ctx, j); err != nil {
			return err
		}
		code, err := testFiles(filepath.Join(b.root, j.Package))
		if err != nil {
			return err
		}
		began, measured := time.Now(), 0
		var start outcome // what the program takes without a test
		for _, t := range b.tests[j.Package] {
			r, ok := known[t.String()+draw+code[t.name]]
			if !ok {
				if measured == 0 {
					if start, err = b.measureStart(ctx, j); err != nil {
						return err
					}
				}
				if r, err = b.measureOne(ctx, t, notes, start); err != nil {
					return err
				}
				r.Draw, r.Code = draw, code[t.name]
				if err := appendLine(file, r); err != nil {
					return err
				}
				measured++
			}
			t.seconds, t.cost, t.failed, t.reaches = r.Seconds, r.Cost, r.Failed, map[string]bool{}
			for _, id := range r.Mutants {
				t.reaches[id] = true
			}
			if r.Failed {
				say("%s fails in the schema without a mutant, and is no judge", t)
			}
		}
		say("%s: %d tests, %d of them measured now in %.0f s", j.Package, len(b.tests[j.Package]), measured, time.Since(began).Seconds())
	}
	return nil
}

// measureStart returns what a program takes to run no test.
func (b *programs) measureStart(ctx context.Context, j *Judge) (outcome, error) {
	return b.run(ctx, []*test{{judge: j, name: "NoTest"}}, -1, "")
}

// measureOne measures one test. A test whose parts run in parallel reports less than it takes, so what
// counts is the time of the process without that of its start. On a busy machine the clock says more than a
// test costs: what a mutant is tried with must not depend on that, so the cost is that of the processor.
func (b *programs) measureOne(ctx context.Context, t *test, notes string, start outcome) (reach, error) {
	const word = 4
	if err := os.WriteFile(notes, make([]byte, word*len(b.mutants)), 0o600); err != nil {
		return reach{}, err
	}
	o, err := b.run(ctx, []*test{t}, -1, notes)
	if err != nil {
		return reach{}, err
	}
	data, err := os.ReadFile(notes)
	if err != nil {
		return reach{}, err
	}
	r := reach{Test: t.String(), Seconds: max(o.seconds-start.seconds, o.inTests, testOverhead), Failed: !o.passed}
	r.Cost = min(r.Seconds, max(o.cpu-start.cpu, testOverhead))
	for i, m := range b.mutants {
		if binary.NativeEndian.Uint32(data[word*i:]) != 0 {
			r.Mutants = append(r.Mutants, m.mutant.ID)
		}
	}
	return r, nil
}

func readReaches(file string) (map[string]reach, error) {
	known := map[string]reach{}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var r reach
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		known[r.Test+r.Draw+r.Code] = r
	}
	return known, in.Err()
}

// testFiles returns, for each test of a folder, a hash of the file that has it.
func testFiles(folder string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	code := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		hash := hashOf(string(data))
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "func "); ok {
				name, _, _ := strings.Cut(rest, "(")
				code[name] = hash
			}
		}
	}
	return code, nil
}

func hashOf(text string) string {
	h := fnv.New64a()
	h.Write([]byte(text))
	return fmt.Sprintf("%016x", h.Sum64())
}

func ids(mutants []*alternative) []string {
	var names []string
	for _, a := range mutants {
		names = append(names, a.mutant.ID)
	}
	return names
}
