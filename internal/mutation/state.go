//go:build linux

package mutation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// appendLine appends a value to a file of JSON lines, with one write.
func appendLine(file string, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// readResults returns the results of a file in their order. A mutant may have several; the first is from
// before a survivor got its test, the last is what holds.
func readResults(file string) ([]Result, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	var results []Result
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var r Result
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, len(results)+1, err)
		}
		results = append(results, r)
	}
	return results, in.Err()
}

// earliest returns the first result of each mutant, latest the last; both in the order of the first.
func earliest(results []Result) []Result {
	return pick(results, func(_, first Result) Result { return first })
}

func latest(results []Result) []Result {
	return pick(results, func(next, _ Result) Result { return next })
}

func pick(results []Result, which func(next, before Result) Result) []Result {
	var picked []Result
	at := map[string]int{}
	for _, r := range results {
		if i, ok := at[r.ID]; ok {
			picked[i] = which(r, picked[i])
			continue
		}
		at[r.ID] = len(picked)
		picked = append(picked, r)
	}
	return picked
}
