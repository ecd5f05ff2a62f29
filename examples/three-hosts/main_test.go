package main

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Three processes elect a leader, its commands are applied on all three, and an interrupt ends them in order.
func TestThreeProcesses(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, port := range []string{"7001", "7002", "7003"} {
		text = strings.ReplaceAll(text, "127.0.0.1:"+port, freeAddress(t))
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "main.go")
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "three-hosts")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, program).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}

	var hosts []*exec.Cmd
	outputs := make([]*bufio.Scanner, 3)
	for i := range outputs {
		h := exec.CommandContext(t.Context(), binary, "-id", strconv.Itoa(i+1))
		h.Dir = dir
		stderr, err := h.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(); err != nil {
			t.Fatal(err)
		}
		hosts, outputs[i] = append(hosts, h), bufio.NewScanner(stderr)
	}
	for i, output := range outputs {
		if said := readUntil(output, "the counter is "); said != "" {
			t.Errorf("host %d applied nothing:\n%s", i+1, said)
		}
	}
	for i, h := range hosts {
		if err := h.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		for outputs[i].Scan() { // until the process ends
		}
		if err := h.Wait(); err != nil {
			t.Errorf("host %d ended with %v, want no error", i+1, err)
		}
	}
}

// readUntil reads lines until one has text in it. It returns what it has read if there is none.
func readUntil(output *bufio.Scanner, text string) (said string) {
	for output.Scan() {
		said += output.Text() + "\n"
		if strings.Contains(output.Text(), text) {
			return ""
		}
	}
	return said + "(end)"
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
