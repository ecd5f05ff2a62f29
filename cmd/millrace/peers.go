package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Others' libraries are not part of this program: their programs are built, when they are wanted, from the modules under
// cmd/internal/lab/logs in the source tree. Nothing is installed; the go command may download what is not in its cache.

const (
	buildTimeout = 5 * time.Minute
	logPrograms  = "cmd/internal/lab/logs" // a folder of modules, one for each of others' logs
)

// sourceTree finds Millrace's source tree: what was asked for, or the first directory from the current one upwards.
func sourceTree(asked string) (string, error) {
	if asked != "" {
		if !isSourceTree(asked) {
			return "", fmt.Errorf("--source: %s is not Millrace's source tree: it has no cmd/go.mod", asked)
		}
		return filepath.Abs(asked)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for !isSourceTree(dir) {
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("it is built from Millrace's source tree, and the current directory is not in it; give --source")
		}
		dir = parent
	}
	return dir, nil
}

func isSourceTree(dir string) bool {
	module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !strings.HasPrefix(string(module), "module github.com/millrace/millrace\n") {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, "cmd", "go.mod"))
	return err == nil
}

// buildPeer builds the program of the module in dir. The error says why in one line.
func buildPeer(ctx context.Context, dir, program string) error {
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return fmt.Errorf("the source tree has no module in %s", dir)
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off") // it is in no workspace
	out, err := build.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("it is built with the go command, which is not in PATH")
	}
	return fmt.Errorf("go build in %s failed (%w): %s", dir, err, firstComplaint(string(out)))
}

// firstComplaint is the first line that says more than which package it is about.
func firstComplaint(out string) string {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return "it says nothing more"
}
