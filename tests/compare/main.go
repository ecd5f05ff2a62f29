// Command compare runs the same workload on Millrace and on other Raft libraries, side by side in one run:
//
//	cd tests/compare
//	go run . --quick          # whole clusters, durable, under load: one table
//	go run . --core           # the same, and the cores alone, each in both modes: a second table
//
// It builds this tree's millrace and runs its verb `bench peers`, which has the flags (--help) and builds the
// other libraries' programs. The second table is that of BenchmarkProposal, in the tests of this directory.
// README.md says what is measured and how the comparison is kept fair.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
)

func main() {
	// An interrupt goes to all processes of the terminal. The one that measures ends cleanly, and this one
	// waits.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	status, err := compare(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		status = 1
	}
	os.Exit(status)
}

// compare returns the exit status of what it ran.
func compare(args []string) (status int, err error) {
	tree, err := sourceTree()
	if err != nil {
		return 0, err
	}
	core := slices.Contains(args, "--core")
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--core" })
	scratch, err := os.MkdirTemp("", "millrace-compare-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	program := filepath.Join(scratch, "millrace")
	if status, err := run(filepath.Join(tree, "cmd"), "go", "build", "-o", program, "./millrace"); status != 0 || err != nil {
		return status, err
	}
	status, err = run("", program, append([]string{"bench", "peers", "--source", tree}, args...)...)
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		fmt.Println("      --core                 of this program: then the cores alone, each in both of its modes")
		return status, err
	}
	if status != 0 || err != nil || !core {
		return status, err
	}
	return run(filepath.Join(tree, "tests", "compare"), "go", append([]string{"test", "-run", "^$", "-bench", "Proposal", "."}, coreFlags(args)...)...)
}

// coreFlags make the second table as quick as the first.
func coreFlags(args []string) []string {
	if slices.Contains(args, "--quick") {
		return []string{"-rounds", "5"}
	}
	return nil
}

// sourceTree finds Millrace's source tree, around the current directory.
func sourceTree() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "millrace", "benchpeers.go")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the current directory is not in Millrace's source tree")
		}
		dir = parent
	}
}

// run runs a program with the terminal of this one, and returns its exit status.
func run(dir, program string, args ...string) (status int, err error) {
	process := exec.Command(program, args...)
	process.Dir = dir
	process.Env = append(os.Environ(), "GOWORK=off") // the modules here and in cmd name each other
	process.Stdin, process.Stdout, process.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = process.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return failed.ExitCode(), nil
	}
	return 0, err
}
