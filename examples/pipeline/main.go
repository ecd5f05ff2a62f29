// One goroutine loads lines into a replicated log, a thousand of them under way at any time:
//
//	seq 1000000 | go run ./examples/pipeline -dir data
//
// It is a cluster of one, so that it runs at once; with three members only Config.Members changes.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/millrace/millrace"
)

// window is how many lines are under way at most.
const window = 1000

// load hands in the lines of r, and returns how many were applied. It stops at the first that was not.
func load(node *millrace.Node[[]byte, int64], r io.Reader) (applied int, err error) {
	in, done := bufio.NewScanner(r), millrace.NewCompletions[int64](window)
	var lines [][]byte // read, and not taken yet
	var tags []uint64  // their numbers
	var outcomes []millrace.Completion[int64]
	for number, more := uint64(1), true; more || len(lines) > 0 || done.Space() < window; {
		for more && len(lines) < done.Space() {
			if more = in.Scan(); more {
				lines, tags = append(lines, append([]byte{}, in.Bytes()...)), append(tags, number)
				number++
			}
		}
		taken, err := node.SubmitMany(lines, tags, done)
		lines, tags = lines[taken:], tags[taken:]
		if after, overloaded := millrace.RetryAfter(err); overloaded && taken == 0 {
			<-time.After(after) // others have filled the node
		} else if err != nil && !overloaded && !errors.Is(err, millrace.ErrCompletionsFull) {
			return applied, err
		}
		if done.Space() == window {
			continue // nothing is under way
		}
		<-done.Ready()
		outcomes = done.Take(outcomes)
		for _, c := range outcomes {
			if c.Err != nil {
				return applied, fmt.Errorf("line %d: %w", c.Tag, c.Err)
			}
			applied++
		}
	}
	return applied, in.Err()
}

func main() {
	dir := flag.String("dir", "data", "directory of the node")
	flag.Parse()
	node, err := millrace.Open(context.Background(), millrace.Config{ID: 1, Dir: *dir, Members: map[uint64]string{1: "127.0.0.1:7001"}},
		millrace.InMemory(&volume{}, millrace.Bytes()))
	if err != nil {
		log.Fatal(err)
	}
	start := time.Now()
	n, err := load(node, os.Stdin)
	fmt.Printf("%d lines in %v\n", n, time.Since(start).Round(time.Millisecond))
	if err = errors.Join(err, node.Close(context.Background())); err != nil {
		log.Fatal(err)
	}
}
